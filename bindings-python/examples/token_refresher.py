"""Many processes share one access token of some API; when it has expired, exactly one of them fetches a new one.

The address of the lock server is in $ONELOCK_URL; the token is shared through $TOKEN_FILE. Run a few at the same time:

    for i in 1 2 3 4; do python token_refresher.py & done; wait
"""

import json
import os
import time
from pathlib import Path

from onelock import Client

LIFE = 2.0
"""How long a token is good, in seconds."""


class SharedToken:
    """An access token that all processes have from one place."""

    def __init__(self, locks: Client, file: Path) -> None:
        self._lock = locks.lock("token:refresh", timeout=30)
        self._file = file

    def get(self) -> str:
        """The present token, or a new one."""
        found = self._read()
        if found is None:
            with self._lock as lease:
                # who had to wait finds what the other one has fetched
                found = self._read()
                if found is None:
                    found = self._fetch()
                    # fetching may have taken long: only who still holds the lock may store
                    if lease.held:
                        self._write(found)
        return found

    def _read(self) -> str | None:
        try:
            stored = json.loads(self._file.read_text())
        except FileNotFoundError:
            return None
        return stored["token"] if stored["good_until"] > time.time() else None

    def _write(self, token: str) -> None:
        new = self._file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({"token": token, "good_until": time.time() + LIFE}))
        new.replace(self._file)

    def _fetch(self) -> str:
        """Stands for a request to the API, which would lock us out if every process made one."""
        print(f"{os.getpid()} fetches a token")
        time.sleep(0.2)
        return os.urandom(8).hex()


if __name__ == "__main__":
    with Client() as client:
        token = SharedToken(client, Path(os.environ.get("TOKEN_FILE", "token.json")))
        print(f"{os.getpid()} uses {token.get()}")

"""A real server for all tests, and what they share."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
import trustme

from onelock import Client

ROOT = Path(__file__).resolve().parents[2]
SERVERS = Path(os.environ.get("ONELOCK_SERVERS") or ROOT / ".tools" / "bin")


def free_port() -> int:
    """A port that nobody uses just now, between those of the Rust tests and those that the system gives to whoever connects."""
    while True:
        port = 21_000 + secrets.randbelow(11_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Server:
    """A server of our own on a free port."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        program: str | None = None,
        config: str | None = None,
        password: str | None = None,
    ) -> None:
        """`config` is what stands in its configuration file; then it is a Sentinel, which writes there."""
        self.folder, self.password = folder, password
        folder.mkdir(exist_ok=True)
        path = SERVERS / (program or os.environ.get("ONELOCK_TEST_SERVER", "valkey-server-9.1"))
        words = [str(path)]
        if config is not None:
            (folder / "sentinel.conf").write_text(config, encoding="utf-8")
            words += [str(folder / "sentinel.conf"), "--sentinel"]
        else:
            words += ["--save", ""]
        words += ["--bind", "127.0.0.1", "--logfile", "log", "--dir", str(folder), *options]
        if password is not None:
            words += ["--requirepass", password]
        for _ in range(20):
            self.port = free_port()
            self.process = subprocess.Popen([*words, "--port", str(self.port)], stdout=subprocess.DEVNULL)
            # a port can be taken between the choice and the start
            while self.process.poll() is None:
                try:
                    # it may be another one that answers there, and ours about to find the port taken
                    said = str(self.command("INFO", "server"))
                    if "process_id:" not in said or f"process_id:{self.process.pid}\r" in said:
                        return
                except OSError:
                    pass
                time.sleep(0.005)
        raise RuntimeError("the server did not start")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/"

    def command(self, *words: str | bytes) -> object:
        """One command on a connection of its own; the answer is a text, a number or a list of them."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection, connection.makefile("rb") as stream:
            if self.password is not None:
                connection.sendall(_request("AUTH", self.password))
                _read(stream)
            connection.sendall(_request(*words))
            return _read(stream)

    def info(self, section: str) -> dict[str, str]:
        """The fields of an INFO section."""
        lines = str(self.command("INFO", section)).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def _request(*words: str | bytes) -> bytes:
    raw = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in raw)


def _read(stream: IO[bytes]) -> object:
    line = stream.readline().rstrip(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind in b"+-":
        return rest.decode()
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2].decode("latin-1")
    return [_read(stream) for _ in range(int(rest))]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def url(server: Server) -> str:
    return server.url


_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A lock name that no other test uses."""
    return f"test:{os.getpid()}:{next(_numbers)}"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def until(condition: Callable[[], object], limit: float = 30.0) -> None:
    """Waits for a condition; a bound that is never reached unless something is wrong."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.005)


def quick_once(limit: float, attempt: Callable[[], float]) -> None:
    """Tries until it took less than the limit once: a busy machine delays some of the tries, what is wrong delays each."""
    slow: list[float] = []
    while len(slow) < 10:
        slow.append(attempt())
        if slow[-1] < limit:
            return
    raise AssertionError(f"never within {limit} s: {slow}")


def gunicorn_config(folder: Path) -> Path:
    """A configuration with which every worker tells when it is ready; see `ready_workers`.

    One that is still starting when it is told to end does not hear it, whatever it serves, and its master waits half a
    minute for it.
    """
    config = folder / "gunicorn.conf.py"
    config.write_text(
        f"def post_worker_init(worker):\n    open(f'{folder}/ready-{{worker.pid}}', 'w').close()\n", encoding="utf-8"
    )
    return config


def ready_workers(folder: Path) -> int:
    """How many workers have been ready so far."""
    return len(list(folder.glob("ready-*")))


def is_free(url: str, name: str) -> bool:
    """Whether nobody holds the lock, as a client of its own sees it."""
    with Client(url) as other:
        return other.inspect(name) is None


class Secured(Server):
    """A server that speaks TLS, and what its clients need."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca, cert, key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        certificate = authority.issue_cert("127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(str(cert))
        certificate.private_key_pem.write_to_path(str(key))
        self.tls_port = free_port()
        files = ["--tls-ca-cert-file", str(self.ca), "--tls-cert-file", str(cert), "--tls-key-file", str(key)]
        options = ["--tls-port", str(self.tls_port), "--tls-auth-clients", "no", *files]
        super().__init__(folder, *options, program="redis-server-7.0")

    @property
    def tls_url(self) -> str:
        return f"rediss://127.0.0.1:{self.tls_port}/"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("tls"))
    yield secured
    secured.stop()

"""The Python driver: carries out what the supervisor asks for, one line of JSON at a time.

`driver.py sync` uses `Client`, `driver.py asyncio` uses `AsyncClient`. The protocol stands in
`tests/drivers/README.md`.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    mode = sys.argv[1]
    if mode == "sync":
        import threads

        threads.Driver().run(sys.stdin)
        end()
    elif mode == "asyncio":
        import asyncio

        import tasks

        asyncio.run(tasks.Driver().run(sys.stdin, end))
    else:
        sys.exit(f"the mode is sync or asyncio, not {mode!r}")


def end() -> None:
    # without an orderly end: what is still held then ends as it does when a process is killed
    os._exit(0)


if __name__ == "__main__":
    main()

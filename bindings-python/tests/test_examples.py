"""The examples, each run as a person runs it.

`ONELOCK_TEST_PYTHON` names another interpreter: that of an environment where the wheel was installed.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from conftest import ROOT, Server, free_port, gunicorn_config, ready_workers, until

EXAMPLES = ROOT / "bindings-python" / "examples"
PYTHON = os.environ.get("ONELOCK_TEST_PYTHON", sys.executable)


def environment(server: Server, **more: str) -> dict[str, str]:
    return {**os.environ, "ONELOCK_URL": server.url, "PYTHONWARNINGS": "error", **more}


def run(server: Server, example: str, *parts: str) -> None:
    """Runs it and expects these parts of lines in its output, in this order."""
    command = [PYTHON, str(EXAMPLES / f"{example}.py")]
    done = subprocess.run(command, env=environment(server), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(parts), done.stdout
    for line, part in zip(lines, parts, strict=True):
        assert re.search(part, line), done.stdout
    assert server.command("KEYS", "example:*") == []


def test_acquire(server: Server) -> None:
    run(server, "acquire", r"mine, with fencing token \d{16}", "released")


def test_acquire_that_has_to_give_up(server: Server) -> None:
    server.command("SET", "example:acquire", "somebody", "PX", "60000")
    command = [PYTHON, str(EXAMPLES / "acquire.py")]
    done = subprocess.run(command, env=environment(server), capture_output=True, text=True, timeout=60)
    server.command("DEL", "example:acquire")
    assert "example:acquire" in done.stdout
    assert done.returncode == 0


def test_try_acquire(server: Server) -> None:
    run(server, "try_acquire", "got it", "else: None", "again: True", "asyncio: got it", "asyncio: somebody else: None")


def test_transfer(server: Server) -> None:
    run(server, "transfer", "30 transfers, together 300")


def test_job_queue(server: Server) -> None:
    run(server, "job_queue", r"30 jobs, each taken once; no machine took more than \d+$")


def test_cache(server: Server) -> None:
    run(server, "cache", "20 readers, refreshed 1 time")


def test_downloads(server: Server) -> None:
    run(server, "downloads", "12 downloads, [123] at a time at most")


def test_only_one(server: Server) -> None:
    command = [PYTHON, str(EXAMPLES / "only_one.py")]
    done = subprocess.run(command, env=environment(server), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    ticks = [re.search(r"machine \d runs (tick \d)", line) for line in done.stdout.splitlines()[:-1]]
    assert [tick and tick[1] for tick in ticks] == ["tick 1", "tick 2", "tick 3"], done.stdout
    assert done.stdout.endswith("each tick ran once: True\n")
    # released long ago, and still nobody's for the rest of `min_hold`
    assert server.command("DEL", *(f"example:report:{tick}" for tick in (1, 2, 3))) == 3


def test_renew(server: Server) -> None:
    run(
        server,
        "renew",
        *("automatic: after 2 s held: True", r"automatic: [3-9]\d* renewals", "by hand: after 1.25 s held: True"),
        *("by hand: after 2.25 s held: False", "by hand: release says already_expired"),
    )


def test_lost_lease(server: Server) -> None:
    run(
        server,
        "lost_lease",
        *("first: writes: True", "first: stopped, the lock was taken", "second: writes: True"),
        "first: writes late: False",
    )


def test_redlock(server: Server, tmp_path: Path) -> None:
    """Three servers, of which two are enough."""
    others: list[Server] = []
    try:
        for number in range(2):
            folder = tmp_path / f"server-{number}"
            folder.mkdir()
            others.append(Server(folder))
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in [server, *others])
        # they are young, and would not vote yet
        shared = {**environment(server), "ONELOCK_URL": f"redlock://{hosts}?quarantine_ms=0"}
        command = [PYTHON, str(EXAMPLES / "redlock.py")]
        done = subprocess.run(command, env=shared, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert len(re.findall(r"turn \d: held by a majority, fencing token \d{16}", done.stdout)) == 3
        others[0].stop()
        done = subprocess.run(command, env=shared, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        others[1].stop()
        done = subprocess.run(command, env=shared, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        for one in others:
            assert str(one.port) in done.stderr
    finally:
        for one in others:
            one.stop()


def test_token_refresher(server: Server, tmp_path: Path) -> None:
    """Eight processes at once: one of them fetches, all use the same."""
    shared = environment(server, TOKEN_FILE=str(tmp_path / "token.json"), PYTHONUNBUFFERED="1")
    command = [PYTHON, str(EXAMPLES / "token_refresher.py")]
    processes = [subprocess.Popen(command, env=shared, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    tokens = {line.rsplit(" ", 1)[1] for text in said for line in text.splitlines() if " uses " in line}
    fetches = sum(text.count("fetches") for text in said)
    # a machine so slow that a token of two seconds grew old while the processes started fetches another one
    assert fetches == len(tokens)
    assert 1 <= fetches <= 3
    assert sum(text.count(" uses ") for text in said) == 8


PIECES = 20


@contextmanager
def shop(server: Server, folder: Path, *command: str) -> Generator[str]:
    """The shop with four worker processes; the folder has its stock."""
    with closing(sqlite3.connect(folder / "stock.db")) as stock, stock:
        stock.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER, fence INTEGER)")
        stock.execute("INSERT INTO stock VALUES ('lamp', ?, 0)", (PIECES,))
    port = free_port()
    shared = environment(server, STOCK_FILE=str(folder / "stock.db"), PYTHONWARNINGS="ignore")
    words = [word.replace("PORT", str(port)) for word in command]
    process = subprocess.Popen([PYTHON, "-m", *words], env=shared, cwd=EXAMPLES)
    try:
        until(lambda: post(f"http://127.0.0.1:{port}/orders/chair") == (410, {"error": "sold out"}), limit=30)
        yield f"http://127.0.0.1:{port}/orders"
    finally:
        process.terminate()
        assert process.wait(20) == 0


def post(url: str) -> tuple[int, object]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError as error:
        return 0, error


WORKERS = 4


@pytest.mark.parametrize("options", [[], ["--preload"]], ids=["loaded-by-workers", "preload"])
@pytest.mark.parametrize("kind", ["sync", "gthread", "gevent"])
def test_flash_sale_under_gunicorn(server: Server, tmp_path: Path, kind: str, options: list[str]) -> None:
    """More orders than pieces, at the same time, through four forked workers: each piece is sold once."""
    gunicorn = [
        "gunicorn",
        "--config",
        str(gunicorn_config(tmp_path)),
        "--bind",
        "127.0.0.1:PORT",
        "--workers",
        str(WORKERS),
    ]
    gunicorn += ["--threads", "2", "--worker-class", kind, "--log-level", "error", *options, "flash_sale:app"]
    with shop(server, tmp_path, *gunicorn) as url, ThreadPoolExecutor(12) as pool:
        until(lambda: ready_workers(tmp_path) == WORKERS, limit=30)
        answers = list(pool.map(lambda _: post(f"{url}/lamp"), range(PIECES + 10)))
    left = sorted(body["left"] for status, body in answers if status == 200)  # type: ignore[index]
    assert left == list(range(PIECES))
    assert [status for status, _ in answers].count(410) == 10
    assert server.command("KEYS", "shop:*") == []

#!/usr/bin/env python3
"""tools/cli/pictures.py COMMAND: draws cli/pictures/*.svg anew: what the command shows on a terminal, from a real run.

It starts a server (tools/with-server.sh starts this script again with its address), lets a few commands hold and wait for locks,
and runs what is drawn on a pseudo-terminal of 100 columns.
"""

import fcntl
import os
import pathlib
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
import time
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "cli/pictures"
COLUMNS, ROWS = 100, 12
WIDTH, HEIGHT = 8.4, 19
# what a terminal is told by these numbers
STYLES = {"1": "font-weight: bold", "31": "fill: #ff7b72", "33": "fill: #ffa657"}
COLOURS = {"ok": "#7ee787", "note": "#79c0ff", "!": "#ffa657", "FAIL": "#ff7b72"}


def shown(words):
    """What a command writes to a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["COLUMNS"] = str(COLUMNS)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execv(words[0], words)
    text = b""
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:
            break
        if not more:
            break
        text += more
    os.waitpid(child, 0)
    return text.decode().replace("\r\n", "\n")


def whole_screen(words, wanted):
    """The last drawing of a command that has the whole screen, line by line, once it shows what is wanted; `q` ends it."""
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execv(words[0], words)
    text, until = b"", time.monotonic() + 10
    while time.monotonic() < until:
        text += os.read(terminal, 4096)
        drawn = text.decode(errors="ignore").split("\x1b[H")[-1]
        if drawn.endswith("\x1b[J") and all(part in drawn for part in wanted):
            break
    os.write(terminal, b"q")
    # it ends when everything that it writes was read
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:
        pass
    os.waitpid(child, 0)
    assert all(part in drawn for part in wanted), drawn
    return drawn.replace("\x1b[K", "").replace("\x1b[J", "").split("\r\n")


def ask(url, *commands):
    """Sends commands to the server, as another client would."""
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as server:
        for command in commands:
            server.sendall(command.encode() + b"\r\n")
            assert server.recv(4096)[:1] in b"+:", command


def drawn_line(text, number):
    """One line of a screen: what is inverse, bold or in a colour is so for the whole line."""
    codes, plain = re.findall(r"\x1b\[(\d+)m", text), re.sub(r"\x1b\[\d+m", "", text)
    place = f'x="16" y="{44 + HEIGHT * number}"'
    if "7" in codes:
        high = 44 + HEIGHT * number - 14
        bar = f'<rect x="16" y="{high}" width="{round(WIDTH * COLUMNS)}" height="{HEIGHT}" fill="#e6edf3"/>'
        return f'{bar}<text {place} style="fill: #0d1117">{escape(plain)}</text>'
    style = "".join(f"{STYLES[code]}; " for code in codes if code in STYLES)
    return f'<text {place} style="{style.strip()}">{escape(plain)}</text>' if style else f"<text {place}>{escape(plain)}</text>"


def line(text, number):
    """One line of the picture; the mark of a finding has a colour."""
    found = re.match(r"^  (ok|note|!|FAIL)(?= )", text)
    place = f'x="16" y="{44 + HEIGHT * number}"'
    if text.startswith("$ "):
        return f'<text {place} class="typed">{escape(text)}</text>'
    if found is None:
        return f"<text {place}>{escape(text)}</text>"
    mark = found.group(1)
    rest = escape(text[found.end() :])
    return f'<text {place}>  <tspan fill="{COLOURS[mark]}">{escape(mark)}</tspan>{rest}</text>'


def draw(name, typed, text):
    """Writes a picture of lines below what was typed."""
    lines = [f"$ {typed}", *text.rstrip("\n").split("\n")]
    width = max(len(each) for each in lines)
    write(name, typed, width, [line(each, number) for number, each in enumerate(lines)])


def write(name, typed, columns, lines):
    """Writes a picture of these lines."""
    wide = round(32 + WIDTH * columns)
    high = 36 + HEIGHT * (len(lines) + 1)
    body = "\n".join(lines)
    picture = f"""<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" role="img" xml:space="preserve">
<title>{escape(typed)}</title>
<style>text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #e6edf3; white-space: pre }}
.typed {{ fill: #ffffff; font-weight: bold }}</style>
<rect width="{wide}" height="{high}" rx="8" fill="#0d1117"/>
{body}
</svg>
"""
    (FOLDER / f"{name}.svg").write_text(picture, encoding="utf-8")
    print(f"cli/pictures/{name}.svg")


def main():
    """Draws all of them."""
    command = str(pathlib.Path(sys.argv[1]).resolve())
    if "ONELOCK_URL" not in os.environ:
        script = str(ROOT / "tools/with-server.sh")
        os.execv(script, [script, sys.executable, __file__, command])
    FOLDER.mkdir(exist_ok=True)
    holders = [
        ("invoices", "ann", "--fair"),
        ("invoices", "bob", "--fair"),
        ("invoices", "eve", "--fair"),
        ("deploy:shop", "ada"),
        ("nightly", "report.sh"),
        ("import:7", "worker"),
        ("import:8", "worker"),
        ("deploy:shop", "dan"),
    ]
    # two that other clients hold
    url = os.environ["ONELOCK_URL"]
    ask(
        url,
        "SET report:weekly 8d4e6b51c0a84f2f9d7c0a4b3c2d1e0f PX 45000",
        "HSET billing c7f1e2d3-0000-4000-8000-0123456789ab:47 1",
        "PEXPIRE billing 30000",
    )
    running = []
    for name, label, *options in holders:
        words = [command, "run", name, "--label", label, *options, "--", "cat"]
        running.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        until = time.monotonic() + 10
        # each holds or waits before the next one comes; the last one waits for a plain lock, which tells no name
        while label != "dan" and label not in shown([command, "inspect", name, "--json"]) and time.monotonic() < until:
            time.sleep(0.05)
    # two that are waited for, and five that are not
    until = time.monotonic() + 10
    while shown([command, "list", "--json"]).count('"waiting":0') != 5 and time.monotonic() < until:
        time.sleep(0.05)
    host = os.uname().nodename
    try:
        listed = shown([command, "list"])
        assert "deploy:shop" in listed and host in listed, listed
        # no name of this machine; the columns stay where they are
        other = ("build-7" if len(host) >= 7 else "b7").ljust(len(host))
        draw("list", "onelock list", listed.replace(host, other))
        screen = whole_screen([command, "top"], [host, " 3 waiting", "bob", "eve", "round trip"])
        screen = [each.replace(host, other) for each in screen]
        write("top", "onelock top", COLUMNS, [drawn_line(each, number) for number, each in enumerate(screen)])
        seen = shown([command, "doctor"]).replace(url.rstrip("/"), "redis://127.0.0.1:6379")
        seen = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:6379", seen)
        draw("doctor", "onelock doctor", seen)
    finally:
        for process in running:
            process.stdin.close()
        for process in running:
            process.wait()


main()

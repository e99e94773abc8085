#!/usr/bin/env python3
"""tools/cli/pictures.py COMMAND: draws cli/pictures/*.svg anew: what the command shows on a terminal, from a real run.

It starts a server (tools/with-server.sh starts this script again with its address), lets a few commands hold and wait for locks,
and runs what is drawn on a pseudo-terminal of 100 columns.
"""

import os
import pathlib
import pty
import re
import subprocess
import sys
import time
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "cli/pictures"
COLUMNS = 100
WIDTH, HEIGHT = 8.4, 19
COLOURS = {"ok": "#7ee787", "note": "#79c0ff", "!": "#ffa657", "FAIL": "#ff7b72"}


def shown(words):
    """What a command writes to a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["COLUMNS"] = str(COLUMNS)
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
    """Writes a picture."""
    lines = [f"$ {typed}", *text.rstrip("\n").split("\n")]
    wide = round(32 + WIDTH * max(len(each) for each in lines))
    high = 36 + HEIGHT * (len(lines) + 1)
    body = "\n".join(line(each, number) for number, each in enumerate(lines))
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
        ("deploy:shop", "ada"),
        ("deploy:shop", "bob"),
        ("deploy:shop", "eve"),
        ("nightly", "report.sh"),
        ("import:7", "worker"),
        ("import:8", "worker"),
    ]
    running = []
    for name, label in holders:
        words = [command, "run", name, "--label", label, "--", "cat"]
        running.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        until = time.monotonic() + 10
        # each holds or waits before the next one comes
        while f'"name":"{name}"' not in shown([command, "list", "--json"]) and time.monotonic() < until:
            time.sleep(0.05)
    until = time.monotonic() + 10
    while '"waiting":2' not in shown([command, "list", "--json"]) and time.monotonic() < until:
        time.sleep(0.05)
    host = os.uname().nodename
    try:
        listed = shown([command, "list"])
        assert "deploy:shop" in listed and host in listed, listed
        # no name of this machine; the columns stay where they are
        draw("list", "onelock list", listed.replace(host, "build-7".ljust(len(host)) if len(host) > 7 else "build-7"))
        url = os.environ["ONELOCK_URL"]
        seen = shown([command, "doctor"]).replace(url.rstrip("/"), "redis://127.0.0.1:6379")
        seen = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:6379", seen)
        draw("doctor", "onelock doctor", seen)
    finally:
        for process in running:
            process.stdin.close()
        for process in running:
            process.wait()


main()

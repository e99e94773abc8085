"""A shop sells the last few pieces of something through Flask: no piece is sold twice, whichever process serves the order.

    flask --app flash_sale run           # or: gunicorn --workers 4 flash_sale:app
    curl -X POST localhost:5000/orders/lamp

The address of the lock server is in $ONELOCK_URL; the stock is a database in $STOCK_FILE.
"""

import os
import sqlite3
from contextlib import closing
from typing import Any

from flask import Flask, jsonify

from onelock import Client, LockTimeout

app = Flask(__name__)
# opens no connection yet: forked workers may share this line, and each connects for itself
locks = Client(prefix="shop:", ttl=10)


def database() -> sqlite3.Connection:
    return sqlite3.connect(os.environ.get("STOCK_FILE", "stock.db"), timeout=30)


class Stale(Exception):
    """Somebody with a newer lease has written already."""


@app.post("/orders/<item>")
def order(item: str) -> Any:
    try:
        with locks.lock(f"stock:{item}", timeout=5) as lease:
            left = take_one(item, lease.fencing_token or 0)
    except LockTimeout:
        return jsonify(error="too many orders at once, try again"), 503
    except Stale:
        return jsonify(error="the order came too late, try again"), 409
    if left is None:
        return jsonify(error="sold out"), 410
    return jsonify(left=left)


def take_one(item: str, fence: int) -> int | None:
    """Reads, thinks, writes: right only because nobody else does it at the same time."""
    with closing(database()) as stock:
        row = stock.execute("SELECT pieces FROM stock WHERE item = ?", (item,)).fetchone()
        if row is None or row[0] == 0:
            return None
        left: int = row[0] - 1
        # what is written carries the fencing token, so a process that slept through the end of its lease cannot spoil it
        with stock:
            done = stock.execute(
                "UPDATE stock SET pieces = ?, fence = ? WHERE item = ? AND fence <= ?", (left, fence, item, fence)
            )
        if done.rowcount == 0:
            raise Stale
        return left

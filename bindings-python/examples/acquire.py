"""Waits for a lock, does something, releases it. The address is in $ONELOCK_URL."""

from onelock import Client, LockTimeout

with Client() as client:
    try:
        with client.lock("example:acquire", timeout=5) as lease:
            print(f"mine, with fencing token {lease.fencing_token}")
    except LockTimeout as error:
        print(error)
    else:
        print("released")

"""A lock that survives the loss of a server: independent servers, held by whoever holds a majority of them.

The address is in $ONELOCK_URL: redlock://host1:6379,host2:6379,host3:6379. A server without an append-only file does not
vote in the first minute after it was started: it may have forgotten who holds what.
"""

import sys

from onelock import Client, NoQuorum

with Client() as client:
    try:
        facts = client.check()
        print(f"{facts.server}, tokens {facts.grade}")
        for turn in range(1, 4):
            with client.lock("example:redlock", timeout=5) as lease:
                print(f"turn {turn}: held by a majority, fencing token {lease.fencing_token}")
    except NoQuorum as error:
        # what each server said
        sys.exit("\n  ".join([str(error), *error.causes]))

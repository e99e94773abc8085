"""Holds a lock for longer than its ttl. The address is in $ONELOCK_URL."""

import time

from onelock import Client

# what others wait at most after this process was killed; 30 by default, short here so that renewal can be watched
TTL = 1

with Client() as client:
    with client.lock("example:renew", ttl=TTL) as lease:
        time.sleep(2 * TTL)
        print(f"automatic: after {2 * TTL} s held: {lease.held}")
    print(f"automatic: {client.stats().renewals} renewals")

    # a fixed lease ends by itself, unless it is extended; `extend` sets what is left and adds nothing
    lease = client.lock("example:renew", ttl=TTL, auto_renew=False).acquire()
    lease.extend(2 * TTL)
    time.sleep(1.25 * TTL)
    print("by hand: after 1.25 s held:", lease.held)
    time.sleep(TTL)
    print("by hand: after 2.25 s held:", lease.held)
    print("by hand: release says", lease.release())

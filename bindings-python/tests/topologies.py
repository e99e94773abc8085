"""Several real servers that belong together."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import cast

from conftest import Server, free_port, until

GROUP = "the-group"
"""What the Sentinels call it."""
LIMIT = 40.0
"""Far longer than anything here takes."""


class Group:
    """A master with two replicas, and three Sentinels that watch them; each kind asks for a password of its own."""

    PASSWORD, SENTINEL_PASSWORD = "s3rver p@ss/", "w@tch"

    def __init__(self, folder: Path) -> None:
        self.servers: list[Server] = []
        self.sentinels: list[Server] = []
        try:
            self._start(folder)
        except BaseException:
            self.stop()
            raise

    def _start(self, folder: Path) -> None:
        options = ["--masterauth", self.PASSWORD, "--repl-diskless-sync-delay", "0"]
        for number in range(3):
            replica = ["--replicaof", f"127.0.0.1 {self.servers[0].port}"] if number else []
            server = Server(folder / f"server-{number}", *options, *replica, password=self.PASSWORD)
            self.servers.append(server)
        for server in self.servers[1:]:
            until(partial(self._has_all, server), LIMIT)
        config = "".join(
            f"sentinel {line}\n"
            for line in (
                f"monitor {GROUP} 127.0.0.1 {self.servers[0].port} 2",
                f'auth-pass {GROUP} "{self.PASSWORD}"',
                # nobody dies here: a server that is only slow is not to be replaced before a test asks for it
                f"down-after-milliseconds {GROUP} 20000",
                f"failover-timeout {GROUP} 5000",
                f'sentinel-pass "{self.SENTINEL_PASSWORD}"',
            )
        )
        for number in range(3):
            sentinel = Server(folder / f"sentinel-{number}", config=config, password=self.SENTINEL_PASSWORD)
            self.sentinels.append(sentinel)
        for sentinel in self.sentinels:
            until(partial(self._knows_all, sentinel), LIMIT)

    @staticmethod
    def _has_all(replica: Server) -> bool:
        return replica.info("replication").get("master_link_status") == "up"

    @staticmethod
    def _knows_all(sentinel: Server) -> bool:
        answer = sentinel.command("SENTINEL", "MASTER", GROUP)
        assert isinstance(answer, list)
        words = [str(word) for word in cast("list[object]", answer)]
        facts = dict(zip(words[::2], words[1::2], strict=True))
        return facts["num-slaves"] == "2" and facts["num-other-sentinels"] == "2"

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://:s3rver%20p%40ss%2F@{hosts}/{GROUP}?sentinel_password=w%40tch"

    @property
    def master(self) -> Server:
        """The server that all Sentinels call the master; waits until they agree."""
        found: list[str] = []

        def agreed() -> bool:
            named = [sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", GROUP) for sentinel in self.sentinels]
            found[:] = [str(cast("list[object]", name)[1]) for name in named if isinstance(name, list)]
            return len(found) == 3 and len(set(found)) == 1

        until(agreed, LIMIT)
        return next(server for server in self.servers if str(server.port) == found[0])

    def fail_over(self) -> Server:
        """Has the Sentinels make another server the master; waits until all know, also the one that was it before.
        The new master.

        Until then that one goes on as a master, and what it grants is lost.
        """
        before, asked = self.master, float("-inf")
        after = before

        def done() -> bool:
            nonlocal asked, after
            # one that does not get on in time is given up by the Sentinels
            if self.master is before and time.monotonic() > asked + 8:
                ask = "SENTINEL", "FAILOVER", GROUP
                answer = self.sentinels[0].command(*ask, "COORDINATED")
                if "wrong number of arguments" in str(answer):
                    # older ones, which take ten seconds more
                    answer = self.sentinels[0].command(*ask)
                asked = time.monotonic() if answer == "OK" else asked
            try:
                # one that changes sides may answer with an error, or hang up
                after = self.master
                roles = [server.info("replication").get("role") for server in (after, before)]
            except OSError:
                return False
            # one and the same may be asked before it changes sides and after
            return after is not before and roles == ["master", "slave"]

        until(done, 2 * LIMIT)
        return after

    def stop(self) -> None:
        for server in [*self.sentinels, *self.servers]:
            server.stop()


class Cluster:
    """Three masters that share the slots."""

    def __init__(self, folder: Path) -> None:
        self.nodes: list[Server] = []
        try:
            self._start(folder)
        except BaseException:
            self.stop()
            raise

    def _start(self, folder: Path) -> None:
        buses = [str(free_port()) for _ in range(3)]
        for number, bus in enumerate(buses):
            options = ["--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "15000"]
            node = Server(folder / f"node-{number}", *options)
            self.nodes.append(node)
            node.command("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
            first, last = 16384 * number // 3, 16384 * (number + 1) // 3 - 1
            node.command("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
        for node, bus in zip(self.nodes[1:], buses[1:], strict=True):
            self.nodes[0].command("CLUSTER", "MEET", "127.0.0.1", str(node.port), bus)
        for node in self.nodes:
            until(partial(self._is_whole, node), LIMIT)

    @staticmethod
    def _is_whole(node: Server) -> bool:
        info = str(node.command("CLUSTER", "INFO"))
        return "cluster_state:ok" in info and "cluster_known_nodes:3" in info

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def keeper(self, key: str) -> Server:
        """The node that has this key."""
        return next(node for node in self.nodes if "MOVED" not in str(node.command("GET", key)))

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

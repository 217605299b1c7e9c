"""Several servers that work together: a Redis Cluster, and a master with a replica and sentinels.

Both are made of the same programs as single servers (``servers.py``), configured over their own
commands, and tuned to notice a death within a second.

- ``Cluster``: three masters with a replica each; slots are moved, masters killed and replaced.
- ``Sentinels``: a master, a replica, three sentinels.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import redis
from servers import Server, _die_with_parent, free_port, wait_until

from skedulr.cluster import SLOTS, slot_of
from skedulr.wire import Wire, WireError

#: A node that does not answer for so long is down, ms.
NODE_TIMEOUT_MS = 700


class Cluster:
    """Started by ``start``; ``url`` names all nodes."""

    def __init__(self, name: str, masters: int = 3, *, replicas: bool = True) -> None:
        count = masters * (2 if replicas else 1)
        self.name, self.masters = name, masters
        self.nodes = [
            Server(
                name, tcp=True, cluster_enabled="yes", cluster_config_file="nodes.conf",
                cluster_port=str(free_port()), cluster_node_timeout=str(NODE_TIMEOUT_MS),
                cluster_replica_validity_factor="0", repl_diskless_sync_delay="0",
                cluster_require_full_coverage="no",
            )
            for _ in range(count)
        ]
        self._started = False

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{places}"

    def start(self) -> Cluster:
        """Start what does not run, and put it together the first time; returns when all is well."""
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.start()
        if not self._started:
            self._put_together()
            self._started = True
        wait_until(self.is_well, 15, f"the Cluster is well: {self.describe()}")
        return self

    def _put_together(self) -> None:
        size = -(-SLOTS // self.masters)
        for number, node in enumerate(self.nodes):
            # As redis-cli does: nodes that begin with one epoch have to settle who is newer first.
            node.client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number < self.masters:
                last = min(SLOTS, (number + 1) * size) - 1
                node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * size, last)
        for one in self.nodes:
            for other in self.nodes:
                if one is not other:
                    one.client.execute_command(
                        "CLUSTER", "MEET", "127.0.0.1", other.port, other.options["cluster-port"]
                    )
        ids = [self.id_of(node) for node in self.nodes]
        wait_until(lambda: all(len(self._known(node)) == len(self.nodes) for node in self.nodes),
                   10, "all nodes know each other")
        for number, node in enumerate(self.nodes[self.masters:]):
            node.client.execute_command("CLUSTER", "REPLICATE", ids[number])

    def is_well(self) -> bool:
        """Whether every node that runs says so, and every master has its replicas in line."""
        for node in self.running():
            info = node.client.execute_command("CLUSTER", "INFO")
            text = info if isinstance(info, dict) else _pairs(info)
            if text["cluster_state"] != "ok" or int(text["cluster_known_nodes"]) != len(self.nodes):
                return False
            role = node.client.execute_command("ROLE")
            if role[0] == b"slave" and role[3] != b"connected":
                return False
        expected = len(self.nodes) - self.masters
        return sum(
            len(node.client.execute_command("ROLE")[2]) for node in self.running()
            if node.client.execute_command("ROLE")[0] == b"master"
        ) == min(expected, len(self.running()) - self.masters)

    def running(self) -> list[Server]:
        """The nodes whose processes live."""
        return [node for node in self.nodes
                if node.process is not None and node.process.poll() is None]

    def master_of(self, key: str) -> Server:
        """The node that has a key, as a node that runs sees it."""
        slot = slot_of(key)
        for first, last, owner, *_ in self.running()[0].client.execute_command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return self._at(int(owner[1]))
        raise AssertionError(f"nobody has slot {slot}")

    def others(self, *not_these: Server) -> list[Server]:
        """The masters besides these."""
        return [node for node in self.running() if node not in not_these
                and node.client.execute_command("ROLE")[0] == b"master"]

    def replica_of(self, master: Server) -> Server:
        """The replica of a master."""
        _, port, _ = master.client.execute_command("ROLE")[2][0]
        return self._at(int(port))

    def id_of(self, node: Server) -> str:
        """A node's name in the Cluster."""
        answer = node.client.execute_command("CLUSTER", "MYID")
        return answer.decode() if isinstance(answer, bytes) else str(answer)

    def move_slot(self, key: str, to: Server, *, hold_s: float = 0.0) -> None:
        """Move the slot of a key to another master, key by key, as an operator's tools do;
        ``hold_s`` lets it stay half moved."""
        slot, source = slot_of(key), self.master_of(key)
        to.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))
        end = time.monotonic() + hold_s
        while True:
            keys = source.client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
            if not keys:
                if time.monotonic() >= end:
                    break
                time.sleep(0.01)
                continue
            source.client.execute_command(
                "MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys
            )
        for node in (to, source, *self.others(to, source)):
            node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to))

    @property
    def client(self) -> redis.Redis:
        """A client of the node that has the pool ``default`` of the namespace ``faults``."""
        return self.master_of("{faults:default}:").client

    def flush(self) -> None:
        """Empty, all of it."""
        for node in self.others():
            node.client.flushall()

    def all_keys(self) -> list[bytes]:
        """Every key there is."""
        return sorted(key for node in self.others() for key in node.client.keys("*"))

    def describe(self) -> str:
        """What the first node that runs sees."""
        running = self.running()
        return str(running[0].client.execute_command("CLUSTER", "NODES")) if running else "all dead"

    def close(self) -> None:
        """End all of it."""
        for node in self.nodes:
            node.close()

    def _at(self, port: int) -> Server:
        return next(node for node in self.nodes if node.port == port)

    @staticmethod
    def _known(node: Server) -> list[str]:
        answer = node.client.execute_command("CLUSTER", "NODES")
        if isinstance(answer, dict):
            return [place for place, one in answer.items() if "handshake" not in one["flags"]]
        return [line for line in answer.decode().splitlines() if "handshake" not in line]


class Sentinels:
    """A master, a replica, and three sentinels of which two have to agree."""

    def __init__(self, name: str, service: str = "main", **options: str) -> None:
        self.name, self.service = name, service
        options = {"repl_diskless_sync_delay": "0", **options}
        self.servers = [Server(name, tcp=True, **options) for _ in range(2)]
        self.ports = [free_port() for _ in range(3)]
        self.folder = Path(tempfile.mkdtemp(prefix="skt-"))
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"redis+sentinel://{places}/{self.service}/0"

    def start(self) -> Sentinels:
        """Returns when the replica is in line and the sentinels know each other."""
        first, second = (server.start() for server in self.servers)
        second.client.execute_command("REPLICAOF", "127.0.0.1", first.port)
        for port in self.ports:
            file = self.folder / f"{port}.conf"
            file.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {self.folder}\n"
                f"sentinel monitor {self.service} 127.0.0.1 {first.port} 2\n"
                f"sentinel down-after-milliseconds {self.service} 600\n"
                f"sentinel failover-timeout {self.service} 3000\n"
                f"sentinel parallel-syncs {self.service} 1\n"
            )
            log = open(self.folder / f"{port}.log", "ab")  # noqa: SIM115 - the child's
            self._processes.append(subprocess.Popen(
                [first.binary, str(file), "--sentinel"], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            ))
            log.close()
        wait_until(self._is_well, 20, "replica and sentinels are in line")
        return self

    def _is_well(self) -> bool:
        try:
            facts = [self._facts(port) for port in self.ports]
        except WireError:
            return False
        return all(
            one["num-slaves"] == "1" and one["num-other-sentinels"] == "2"
            and one["flags"] == "master" for one in facts
        ) and self.servers[1].client.execute_command("ROLE")[3] == b"connected"

    def _facts(self, port: int) -> dict[str, str]:
        texts = [part.decode() for part in self._ask(port, "MASTER")]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    def _ask(self, port: int, what: str) -> Any:
        # Not by redis-py's client, which makes something else of the answers with each version.
        wire = Wire(f"redis://127.0.0.1:{port}", name="test:sentinel", timeout_s=2)
        try:
            return wire.call("SENTINEL", what, self.service)
        finally:
            wire.close()

    def master(self) -> Server:
        """The server that the first sentinel takes for the master."""
        port = self.named()
        return next(server for server in self.servers if server.port == port)

    @property
    def client(self) -> redis.Redis:
        """A client of the master."""
        return self.master().client

    def named(self) -> int:
        """The port of the master, as the first sentinel has it."""
        return int(self._ask(self.ports[0], "GET-MASTER-ADDR-BY-NAME")[1])

    def close(self) -> None:
        """End all of it."""
        for process in self._processes:
            process.kill()
            process.wait(10)
        for server in self.servers:
            server.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _pairs(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode().splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}

"""What is sent to Redis while nothing happens: counted command by command, not timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import pytest
from servers import Server

from skedulr.hub.driver import Driver
from skedulr.keys import PoolKeys
from skedulr.lead import LeadStore
from skedulr.pools import poison
from skedulr.pools.deliverer import ALL_POOLS, Deliverer
from skedulr.pools.sweeper import Keep, Sweeper
from skedulr.pools.tuner import Tuner
from skedulr.redis_scripts import Script
from skedulr.store import Store
from skedulr.wires import SharedWire

POOLS = ("default", "mail")


class CountingWire(SharedWire):
    """Remembers what it sent, each command of a pipeline too."""

    def __init__(self, url: str) -> None:
        super().__init__(url, name="counted")
        self.sent: list[str] = []

    def call(self, *command: Any, timeout_s: float | None = None) -> Any:
        self.sent.append(command[0])
        return super().call(*command, timeout_s=timeout_s)

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        self.sent.append("EVALSHA")
        return super().run(script, keys, args)

    def calls(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        self.sent += [command[0] for command in commands]
        return super().calls(commands)

    def counted(self) -> list[str]:
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture
def wire(one_server: Server) -> Iterator[CountingWire]:
    made = CountingWire(one_server.url)
    yield made
    made.close()


def record(node: str) -> bytes:
    packed: bytes = msgpack.packb({
        "id": node, "beat_at": time.time(), "free_cores": 2.0, "free_memory": 0.5,
        "target_wait": [1.0, 5.0],
        "children": [{"pool": one, "workers": 1, "cpu": 0.0, "lag_ms": 0} for one in POOLS],
        "pools": [{"name": one, "min": 1, "max": 8, "processes": 1, "short": False}
                  for one in POOLS],
    })
    return packed


def test_a_leader_that_sizes_pools_asks_one_script_of_each_beside_its_beat(
    wire: CountingWire,
) -> None:
    store = LeadStore("skedulr")
    tuner = Tuner(store=store, wire=wire, node="n1")

    def look() -> None:
        tuner.look(store.beat(
            wire, "n1", willing=True, known_term=1, tuned=True, record=record("n1"), pools=POOLS
        ))

    look()  # the scripts are loaded, and what a leader before left is read
    wire.counted()
    look()
    assert wire.counted() == ["EVALSHA"] * (1 + len(POOLS))


def test_a_sweep_is_one_script_and_says_whether_the_outbox_holds_anything(
    wire: CountingWire,
) -> None:
    keys, owing = PoolKeys("skedulr", "default"), []
    sweeper = Sweeper(
        store=Store(keys), wire=wire, driver=Driver(), lease_s=15, keep=Keep(1, 1, 1),
        judgement=poison.judge_host(), on_undelivered=lambda: owing.append(True),
    )
    sweeper.recover()
    wire.counted()
    sweeper.recover()
    assert wire.counted() == ["EVALSHA"] and owing == []
    wire.call("ZADD", keys.outbox, 1, "s a")
    sweeper.recover()
    assert owing == [True]
    wire.call("ZADD", keys.outbox, 4e12, "s a")
    sweeper.recover()
    assert owing == [True], "another deliverer has it in hand"


def test_a_deliverer_asks_for_nothing_but_now_and_then_for_all_pools(wire: CountingWire) -> None:
    wire.call("HSET", "{skedulr}:pools", "default", 1, "mail", 1)
    deliverer = Deliverer(namespace="skedulr", pool="default", wire=wire, driver=Driver())
    wire.counted()
    for _ in range(ALL_POOLS - 1):
        deliverer.look()
    assert wire.counted() == []
    deliverer.look()
    assert sorted(wire.counted()) == ["EXISTS", "EXISTS", "HKEYS"]

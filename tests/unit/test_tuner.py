"""The tuner: what it makes of nodes' records; one whose node leads no more writes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from servers import Server

from skedulr.lead import Beat, LeadStore
from skedulr.pools.tuner import LATE_S, Tuner, pools_of
from skedulr.wires import SharedWire


def record(node: str, workers: int = 2, **fields: Any) -> dict[str, Any]:
    child = {"pool": "default", "workers": workers, "cpu": fields.pop("cpu", 0.1), "lag_ms": 0}
    spec = {"name": "default", "min": 2, "max": 20, "processes": 1,
            "short": fields.pop("short", False)}
    return {"id": node, "beat_at": time.time(), "children": [child], "pools": [spec],
            "free_cores": 2.0, "free_memory": 0.5, "target_wait": [1.0, 5.0], **fields}


class World:
    """A leader's tuner, with records of nodes and a queue written by hand."""

    def __init__(self, url: str) -> None:
        self.wire, self.store = SharedWire(url, name="test"), LeadStore("skedulr")
        self.now_s = 0.0
        self.tuner = Tuner(
            store=self.store, wire=self.wire, node="n1", monotonic=lambda: self.now_s
        )
        self.term = 0

    def write(self, *records: dict[str, Any]) -> None:
        for one in records:
            self.wire.call("HSET", self.store.space.nodes, one["id"], msgpack.packb(one))

    def look(self) -> None:
        beat = self.beat()
        self.term = beat.term
        self.tuner.look(beat)

    def beat(self, node: str = "n1") -> Beat:
        return self.store.beat(self.wire, node, willing=True, known_term=self.term, tuned=True)

    def sizes(self) -> dict[str, Any]:
        return self.store.tuned_sizes(self.wire)[1]


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    made = World(server.url)
    yield made
    made.wire.close()


def grown(world: World) -> World:
    """A pool of two nodes that a predecessor made eight workers large."""
    world.write(record("n1", 4), record("n2", 4))
    world.beat("n0")
    kept = {"size": 8, "grew": 0.0, "shrank": 0.0, "penalty": 1, "penalized": 0.0}
    world.store.steer(world.wire, "n0", 1, sizes=[("default", {"state": kept})], decisions=[])
    world.store.resign(world.wire, "n0", 1)
    world.look()
    return world


def test_a_new_leader_goes_on_with_the_size_it_finds_and_shares_it_anew(world: World) -> None:
    published = grown(world).sizes()["default"]
    assert published["total"] == 8
    assert [place[0] for place in published["places"]] == ["n1", "n2"]


def test_the_workers_of_a_node_that_is_late_go_to_the_others(world: World) -> None:
    grown(world)
    world.now_s += LATE_S + 1
    later = record("n1", 4)
    later["beat_at"] += 5
    world.write(later)
    world.look()
    published = world.sizes()["default"]
    assert [place[0] for place in published["places"]] == ["n1"]
    assert published["total"] == 8


def test_a_leader_that_was_frozen_while_another_took_over_changes_nothing(world: World) -> None:
    grown(world)
    # One node less calls for a new share, which it would publish.
    world.wire.call("HDEL", world.store.space.nodes, "n2")
    frozen_with = world.beat()
    world.wire.call("HSET", world.store.space.leader, "until", 1)
    assert world.beat("n2").leader == "n2"
    before = world.wire.call("HGETALL", world.store.space.tuning)
    world.tuner.look(frozen_with)
    assert world.wire.call("HGETALL", world.store.space.tuning) == before
    assert world.wire.call("LLEN", world.store.space.decisions) == 0


def test_a_node_that_is_short_of_memory_keeps_what_it_has_and_gets_no_more() -> None:
    (pool,) = pools_of([record("n1", 3, short=True), record("n2", 2)])
    assert [(place.node, place.most) for place in pool.places] == [("n1", 3), ("n2", 20)]
    assert (pool.most, pool.room) == (40, 23)


@pytest.mark.parametrize(("first", "second", "out"), [(0.95, 0.9, True), (0.95, 0.2, False)])
def test_a_pool_is_out_of_cpu_when_all_of_its_processes_are(
    first: float, second: float, out: bool
) -> None:
    (pool,) = pools_of([record("n1", cpu=first), record("n2", cpu=second)])
    assert pool.out_of_cpu is out


def test_a_node_with_more_free_weighs_more_and_what_the_pool_itself_uses_counts_as_free() -> None:
    (pool,) = pools_of([
        record("n1", free_cores=0.5, cpu=1.5), record("n2", free_cores=4.0, cpu=0.0),
        record("n3", free_cores=4.0, cpu=0.0, free_memory=0.15),
    ])
    assert [place.weight for place in pool.places] == [2.0, 4.0, 2.0]


def test_records_of_a_release_without_tuning_are_passed_over() -> None:
    assert pools_of([{"id": "old", "beat_at": 0.0, "children": []}]) == []

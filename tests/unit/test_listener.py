"""Hooks for the whole cluster: whoever listens, each thing is told once; crossings, not levels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from servers import Server

from skedulr.errors import ConfigError
from skedulr.hooks import Hooks
from skedulr.hub.driver import Driver
from skedulr.lead import LeadStore
from skedulr.pools.listener import Listener
from skedulr.wire import Wire

NAMESPACE = "skedulr"


class World:
    """A leader that says what it sees, and children that listen; ``told`` is all they were told."""

    def __init__(self, url: str) -> None:
        self.wire, self.store = Wire(url, name="test"), LeadStore(NAMESPACE)
        self.told: list[tuple[Any, ...]] = []
        self.term = 0
        self.lead("n1")

    def lead(self, node: str) -> None:
        self.wire.call("HSET", self.store.space.leader, "until", 0)
        self.node = node
        self.term = self.store.beat(
            self.wire, node, willing=True, known_term=self.term, tuned=False
        ).term

    def see(self, wait: float | None, *, at: float = 0.0, **fields: Any) -> None:
        pool = {
            "name": "default", "predicted_wait": wait, "oldest_age": None, "paused": False, **fields
        }
        self.store.tell(self.wire, self.node, self.term, {"at": at, "stats": {"pools": [pool]}})

    def child(self, *thresholds: float | None, pool: str | None = None) -> Listener:
        hooks = Hooks()
        for seconds in thresholds:
            hooks.on_long_queue(seconds, pool)(
                lambda queue: self.told.append((queue["threshold"], queue["long"]))
            )
        if not thresholds:
            hooks.on("leader_change")(lambda now, before: self.told.append((now, before)))
        return Listener(
            store=self.store, wire=self.wire, hooks=hooks, driver=Driver(), usual_s=5.0
        )


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    made = World(server.url)
    yield made
    made.wire.close()


def test_a_crossing_and_the_way_back_are_told_once_by_one_of_all_who_listen(world: World) -> None:
    children = [world.child(10) for _ in range(3)]
    for wait in (1, 12, 15, 9, 11, 7.9, 9, 3, 10.5):
        world.see(wait)
        for child in children:
            child.look()
    # Between 8 and 10 s it is as it was.
    assert world.told == [(10, True), (10, False), (10, True)]


def test_a_new_leader_and_a_new_child_repeat_nothing(world: World) -> None:
    world.see(20)
    world.child(10).look()
    world.lead("n2")
    world.see(21)
    world.child(10).look()
    assert world.told == [(10, True)]
    world.see(0)
    world.child(10).look()
    assert world.told == [(10, True), (10, False)]


def test_a_child_that_heard_something_old_tells_nothing_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = world.child(10)
    world.see(20)
    notice = world.store.notice

    def late(*args: Any) -> Any:
        # While it was stopped, the wait came back.
        monkeypatch.undo()
        world.see(1)
        return notice(*args)

    monkeypatch.setattr(world.store, "notice", late)
    child.look()
    assert world.told == []
    child.look()
    assert world.told == []


def test_each_threshold_is_told_for_itself_and_none_means_the_edge_of_the_band(
    world: World
) -> None:
    child = world.child(None, 30)
    world.see(8)
    child.look()
    world.see(40)
    child.look()
    assert world.told == [(5, True), (30, True)]


def test_hooks_of_another_pool_and_paused_pools_are_not_told(world: World) -> None:
    other, own = world.child(10, pool="other"), world.child(10, pool="default")
    world.see(20)
    other.look()
    assert world.told == []
    world.see(20, paused=True)
    own.look()
    assert world.told == []


def test_where_nothing_can_be_predicted_the_oldest_task_tells(world: World) -> None:
    child = world.child(10)
    world.see(None, oldest_age=30.0)
    child.look()
    assert world.told == [(10, True)]


def test_a_change_of_leader_is_told_once_with_the_one_before(world: World) -> None:
    children = [world.child() for _ in range(2)]
    for node in ("n1", "n2"):
        if node != "n1":
            world.lead(node)
        for _ in range(2):
            world.see(0)
            for child in children:
                child.look()
    assert world.told == [("n1", None), ("n2", "n1")]


def test_statistics_are_told_once_a_minute(world: World) -> None:
    hooks, minutes = Hooks(), []
    hooks.on("stats")(lambda stats: minutes.append(len(stats["pools"])))
    child = Listener(
        store=world.store, wire=world.wire, hooks=hooks, driver=Driver(), usual_s=5.0
    )
    for at in (0, 2, 59, 61, 100, 125):
        world.see(0, at=float(at))
        child.look()
    assert minutes == [1, 1, 1]


@pytest.mark.parametrize("threshold", [0, -1, True, "5", float("inf"), float("nan")])
def test_a_threshold_that_is_no_time_is_refused(threshold: Any) -> None:
    with pytest.raises(ConfigError, match="threshold="):
        Hooks().on_long_queue(threshold, None)

"""The read side: a task in each of its states, pages over them, counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from servers import Server
from stand_in import StandIn

import skedulr
from skedulr import ConfigError, lists
from skedulr.keys import PoolKeys, SpaceKeys
from skedulr.lists import Selection
from skedulr.queries import PoolQueries, check_state, pool_names
from skedulr.wire import Wire

#: The fields of DESIGN's "task".
FIELDS = {
    "id", "uid", "pool", "name", "state", "priority", "attempt", "max_retries", "crashes",
    "progress", "note", "submitted_at", "due_at", "started_at", "finished_at", "result", "error",
    "key", "tags", "worker", "workflow", "depends_on", "args", "kwargs",
}


class World:
    """An app that submits, a stand-in that ends tasks, and the questions."""

    def __init__(self, server: Server) -> None:
        self.app = skedulr.Skedulr(url=server.url)
        self.task = self.app.remote("t")
        self.worker = StandIn(server.url)
        self.wire = Wire(server.url, name="test:queries")
        self.queries = PoolQueries(PoolKeys("skedulr", "default"))

    def submit(self, uid: str, **options: Any) -> None:
        self.task.using(id=uid, **options).submit(1, b=2)

    def ask(self, uid: str) -> dict[str, Any]:
        found = self.queries.task(self.wire, uid)
        assert found is not None
        return found

    def page(
        self, state: str | None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[str], str | None]:
        selection = Selection(state=state, pool="default")
        page = lists.page(self.wire, "skedulr", ["default"], selection, limit, cursor)
        return [item["uid"] for item in page.items], page.cursor


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    made = World(server)
    yield made
    made.app.close()
    made.worker.close()
    made.wire.close()


def test_a_queued_task_has_all_fields_and_few_of_them_set(world: World) -> None:
    world.submit("a", priority=7, tags=["x"], max_retries=2)
    task = world.ask("a")
    assert set(task) == FIELDS
    submitted_at = task.pop("submitted_at")
    assert submitted_at == pytest.approx(time.time(), abs=60)
    assert task == {
        "id": "default/a", "uid": "a", "pool": "default", "name": "t", "state": "queued",
        "priority": 7, "attempt": 0, "max_retries": 2, "crashes": 0, "progress": None, "note": None,
        "due_at": None, "started_at": None, "finished_at": None, "result": None, "error": None,
        "key": None, "tags": ["x"], "worker": None, "workflow": None, "depends_on": [],
        "args": [1], "kwargs": {"b": 2},
    }


def test_a_scheduled_task_has_its_due_time(world: World) -> None:
    world.submit("a", delay=600, priority=-3)
    task = world.ask("a")
    assert (task["state"], task["priority"]) == ("scheduled", -3)
    assert task["due_at"] == pytest.approx(task["submitted_at"] + 600, abs=0.01)


def test_a_running_task_has_its_worker_and_start(world: World) -> None:
    world.submit("a", priority=5)
    world.worker.claim()
    task = world.ask("a")
    assert (task["state"], task["attempt"], task["priority"]) == ("running", 1, 5)
    assert task["worker"].startswith("test:")
    assert task["started_at"] == pytest.approx(time.time(), abs=60)
    assert task["finished_at"] is None


def test_a_succeeded_task_has_its_result(world: World) -> None:
    world.submit("a", priority=5)
    world.worker.claim()
    world.worker.succeed("a", {"n": 1})
    task = world.ask("a")
    assert (task["state"], task["result"], task["error"]) == ("succeeded", {"n": 1}, None)
    assert (task["attempt"], task["priority"], task["worker"]) == (1, 5, "stand-in")
    assert task["finished_at"] == pytest.approx(time.time(), abs=60)


def test_a_dead_task_has_its_error(world: World) -> None:
    world.submit("a")
    world.worker.claim()
    world.worker.fail("a", "KeyError", "'x'")
    task = world.ask("a")
    assert (task["state"], task["result"]) == ("dead", None)
    assert task["error"] == {
        "type": "KeyError", "message": "'x'", "traceback": "Traceback ...",
    }
    (attempt,) = world.queries.attempts(world.wire, "a")
    assert (attempt["state"], attempt["attempt"], attempt["error"]) == ("dead", 1, task["error"])


def test_a_cancelled_task_says_so(world: World) -> None:
    world.submit("a")
    world.app.cancel("a")
    task = world.ask("a")
    assert task["state"] == "cancelled"
    assert task["error"] == {
        "type": "cancelled", "message": "cancelled before it started", "traceback": "",
    }


def test_nothing_is_known_of_an_unknown_uid(world: World) -> None:
    assert world.queries.task(world.wire, "nope") is None
    assert world.queries.state(world.wire, "nope") is None
    assert world.queries.attempts(world.wire, "nope") == []
    assert world.queries.look(world.wire, []) == []


def test_a_task_that_can_not_be_read_is_shown_with_the_reason(
    world: World, server: Server
) -> None:
    world.submit("a")
    server.client.hset(PoolKeys("skedulr", "default").tasks, "a", b"\xc1 no msgpack")
    task = world.ask("a")
    assert (task["id"], task["state"], task["name"]) == ("default/a", "queued", None)
    assert "can not be read" in task["unreadable"]


def test_several_are_asked_in_one_step(world: World) -> None:
    for uid in "abc":
        world.submit(uid)
    views = world.queries.tasks(world.wire, ["c", "nope", "a"])
    assert [view["uid"] for view in views] == ["c", "a"]


@pytest.fixture
def mixed(world: World) -> World:
    """Two of each: queued q, scheduled s, running r, dead d, succeeded w, cancelled c."""
    for kind in "wdrqsc":
        for n in range(2):
            world.submit(f"{kind}{n}", **({"delay": 60 + n} if kind == "s" else {}))
        if kind in "wdr":
            world.worker.claim()
        for n in range(2):
            if kind == "w":
                world.worker.succeed(f"w{n}")
            elif kind == "d":
                world.worker.fail(f"d{n}")
            elif kind == "c":
                world.app.cancel(f"c{n}")
    return world


@pytest.mark.parametrize(("state", "uids"), [
    ("queued", ["q0", "q1"]), ("scheduled", ["s0", "s1"]), ("running", ["r0", "r1"]),
    ("succeeded", ["w0", "w1"]), ("dead", ["d0", "d1"]), ("cancelled", ["c0", "c1"]),
    ("waiting", []), ("skipped", []), ("expired", []),
])
def test_a_page_of_one_state(mixed: World, state: str, uids: list[str]) -> None:
    found, follow = mixed.page(state)
    assert (sorted(found), follow) == (uids, None)


def test_pages_of_all_states_show_each_task_once(mixed: World) -> None:
    seen: list[str] = []
    cursor: str | None = None
    while not seen or cursor is not None:
        uids, cursor = mixed.page(None, limit=5, cursor=cursor)
        assert len(uids) <= 5
        seen += uids
    assert sorted(seen) == sorted(f"{kind}{n}" for kind in "wdrqsc" for n in range(2))


def test_counts_are_of_what_is_there(mixed: World) -> None:
    assert mixed.queries.counts(mixed.wire) == {
        "queued": 2, "parked": 0, "scheduled": 2, "running": 2, "dead": 2, "succeeded": 2,
        "failed": 2,
    }


def test_every_pool_that_was_used_is_named(world: World) -> None:
    for pool in ("b", "a", "b"):
        world.task.using(pool=pool).submit()
    assert pool_names(world.wire, SpaceKeys("skedulr")) == ["a", "b"]


def test_an_unknown_state_names_the_nearest() -> None:
    assert check_state(None) is None and check_state("dead") == "dead"
    with pytest.raises(ConfigError, match=r"no state is called 'quued' .*did you mean 'queued'"):
        check_state("quued")


def test_asking_never_scans(mixed: World, server: Server) -> None:
    server.client.config_resetstat()
    for state in (None, "queued", "dead", "succeeded"):
        mixed.page(state)
    mixed.ask("q0")
    mixed.queries.counts(mixed.wire)
    used = {name.removeprefix("cmdstat_") for name in server.client.info("commandstats")}
    assert not used & {"keys", "scan", "hscan", "sscan", "zscan", "hgetall", "hvals", "smembers"}

"""Pages of tasks: complete and in order while tasks come, go and move between two pages."""

from __future__ import annotations

from typing import Any

import pytest
from servers import Server
from ui_world import NAMESPACE, World

from skedulr import lists
from skedulr.errors import ConfigError
from skedulr.keys import PoolKeys
from skedulr.lists import Selection


@pytest.fixture
def world(one_server: Server) -> World:
    return World(one_server.url)


def page(world: World, cursor: str | None = None, limit: int = 3, **selection: Any) -> lists.Page:
    """A page over pools a and b."""
    return world.client.ask(lambda wire: lists.page(
        wire, NAMESPACE, ["b", "a"], Selection(**selection), limit, cursor
    ))


def uids(found: lists.Page) -> list[str]:
    return [task["uid"] for task in found.items]


def rest(world: World, cursor: str | None, **selection: Any) -> list[str]:
    """Everything from a cursor on."""
    found: list[str] = []
    while cursor:
        one = page(world, cursor, **selection)
        found += uids(one)
        cursor = one.cursor
    return found


def test_new_tasks_do_not_move_what_comes_on_the_next_page(world: World) -> None:
    for i in range(6):
        world.submit("work", id=f"t{i}", pool="a")
    first = page(world, state="queued")
    for i in range(4):
        world.submit("work", id=f"new{i}", pool="a")
    assert uids(first) + rest(world, first.cursor, state="queued") == ["t5", "t4", "t3", "t2", "t1",
                                                                      "t0"]


def test_tasks_that_went_leave_no_gap_on_the_next_page(world: World) -> None:
    for i in range(6):
        world.submit("work", id=f"t{i}", pool="a")
    first = page(world, state="queued")
    for uid in uids(first):
        world.client.cancel(f"a/{uid}")
    assert rest(world, first.cursor, state="queued") == ["t2", "t1", "t0"]


def test_tasks_that_ended_in_one_moment_are_each_shown_once(world: World) -> None:
    for pool in ("a", "b"):
        for i in range(7):
            world.submit("work", id=f"{pool}{i}", pool=pool)
        world.succeed(pool=pool, count=7)
    first = page(world, state="succeeded")
    seen = uids(first) + rest(world, first.cursor, state="succeeded")
    assert sorted(seen) == sorted(f"{pool}{i}" for pool in "ab" for i in range(7))


def test_what_ended_last_comes_first_over_all_pools(world: World) -> None:
    for i, pool in enumerate("abab"):
        world.submit("work", id=f"t{i}", pool=pool)
        world.die(pool=pool)
        # They may all have ended in one millisecond.
        world.call("ZADD", PoolKeys(NAMESPACE, pool).dead, 1_700_000_000_000 + i, f"t{i}")
    assert uids(page(world, state="dead", limit=10)) == ["t3", "t2", "t1", "t0"]


def test_scheduled_tasks_come_in_the_order_they_are_due(world: World) -> None:
    for delay in (300, 100, 200):
        world.submit("work", id=f"t{delay}", pool="a", delay=delay)
    first = page(world, state="scheduled", limit=2)
    assert uids(first) == ["t100", "t200"]
    assert rest(world, first.cursor, state="scheduled") == ["t300"]


def test_every_state_is_walked_through_with_one_cursor(world: World) -> None:
    for i in range(9):
        world.submit("work", id=f"t{i}", pool="ab"[i % 2])
    world.submit("work", id="later", pool="a", delay=60)
    world.succeed(pool="a")
    world.die(pool="b")
    world.start(pool="a")
    first = page(world, limit=2)
    assert sorted(uids(first) + rest(world, first.cursor)) == sorted(
        [*(f"t{i}" for i in range(9)), "later"]
    )


def test_a_filter_looks_at_so_many_and_goes_on_from_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_LOOKED_AT", 4)
    for i in range(10):
        world.submit("rare" if i == 0 else "work", id=f"t{i}", pool="a")
    first = page(world, state="queued", name="rare")
    assert (first.items, first.looked_at) == ([], 4)
    assert rest(world, first.cursor, state="queued", name="rare") == ["t0"]


def test_a_task_larger_than_a_page_may_read_is_shown_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_BYTES", 10)
    for i in range(3):
        world.submit("work", "x" * 100, id=f"t{i}", pool="a")
    first = page(world, state="queued")
    assert uids(first) == ["t2"]
    assert rest(world, first.cursor, state="queued") == ["t1", "t0"]


@pytest.mark.parametrize("cursor", ["x", "e30", "W10", "WzEsMl0", "é", "=" * 500, "bnVsbA"])
def test_a_cursor_that_no_list_gave_is_refused(world: World, cursor: str) -> None:
    with pytest.raises(ConfigError, match="not one that this list gave"):
        page(world, cursor)


@pytest.mark.parametrize("limit", [0, -1, 501])
def test_a_limit_out_of_bounds_is_refused(world: World, limit: int) -> None:
    with pytest.raises(ConfigError, match="1 to 500"):
        page(world, limit=limit)

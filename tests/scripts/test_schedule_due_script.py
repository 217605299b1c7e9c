"""schedule_due.lua: what is due, page by page, and when the next one will be."""

from __future__ import annotations

from schedule_driver import Schedules, plan
from script_driver import Scripts

FAR = 4_000_000_000_000


def test_due_ticks_come_oldest_first_with_their_states(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("late", 2000), ("early", 1000), ("far", FAR), ("farther", FAR + 1))
    before = pool.state()
    assert schedules.due().rest == [
        0, FAR, "early", 1000, plan(1000), "late", 2000, plan(2000)
    ]
    assert pool.state() == before


def test_pages_go_on_where_the_last_one_ended(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(*((f"s{i:03}", 1000 + i) for i in range(7)))
    assert schedules.due(0, 3).rest[2::3] == ["s000", "s001", "s002"]
    assert schedules.due(6, 3).rest[2::3] == ["s006"]
    assert schedules.due(7, 3).rest == [0, -1]


def test_a_paused_pool_says_so(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", 1000))
    pool.pause()
    assert schedules.due().rest == [1, -1, "a", 1000, plan(1000)]


def test_no_schedules(pool: Scripts) -> None:
    assert Schedules(pool).due().rest == [0, -1]


def test_a_tick_without_a_state_has_an_empty_one(pool: Scripts) -> None:
    pool.call("ZADD", pool.keys.ticks, 1000, "ghost")
    assert Schedules(pool).due().rest == [0, -1, "ghost", 1000, ""]

"""schedule_put.lua: new and changed schedules are planned, the same ones keep their place."""

from __future__ import annotations

from schedule_driver import Schedules, plan
from script_driver import Scripts

FAR = 4_000_000_000_000


def test_new_schedules_are_stored_with_their_first_tick(pool: Scripts) -> None:
    schedules = Schedules(pool)
    assert schedules.put(("a", FAR), ("b", FAR + 5)).verdicts == "nn"
    assert pool.state() == {
        "schedules": {"a": "def-r1", "b": "def-r1"},
        "planned": {"a": plan(FAR), "b": plan(FAR + 5)},
        "ticks": {"a": FAR, "b": FAR + 5},
    }


def test_a_tick_that_is_spread_fires_later_than_it_is_called(pool: Scripts) -> None:
    Schedules(pool).put(("a", FAR), fires=FAR + 77)
    assert pool.state("schedules") == {"planned": {"a": plan(FAR)}, "ticks": {"a": FAR + 77}}


def test_the_same_schedule_again_changes_nothing(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    before = pool.state()
    assert schedules.put(("a", FAR + 999)).verdicts == "s"
    assert pool.state() == before


def test_a_changed_one_is_planned_anew_and_keeps_what_it_counted(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    pool.call("HSET", pool.keys.planned, "a", plan(FAR, "7,5", fired=2, skipped=1, held=1))
    assert schedules.put(("a", FAR + 9), revision="r2").verdicts == "c"
    assert pool.state() == {
        "schedules": {"a": "def-r2"},
        "planned": {"a": plan(FAR + 9, "7,5", revision="r2", fired=2, skipped=1)},
        "ticks": {"a": FAR + 9},
    }


def test_a_paused_one_that_changed_stays_paused(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    schedules.move("a", FAR, "rest", "paused")
    assert schedules.put(("a", FAR + 9), revision="r2").verdicts == "c"
    assert pool.state() == {
        "schedules": {"a": "def-r2"}, "planned": {"a": plan(FAR, revision="r2")},
        "resting": {"a": "paused"},
    }


def test_one_that_never_ticks_again_rests(pool: Scripts) -> None:
    Schedules(pool).put(("a", "-"))
    assert pool.state("schedules") == {"planned": {"a": plan("-")}, "resting": {"a": "ended"}}


def test_a_next_tick_that_got_lost_comes_back(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    pool.call("DEL", pool.keys.ticks)
    assert schedules.put(("a", FAR + 3)).verdicts == "s"
    assert pool.state("schedules") == {"planned": {"a": plan(FAR + 3)}, "ticks": {"a": FAR + 3}}


def test_one_that_was_retired_goes_on_where_it_stopped(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR), by="s1")
    schedules.move("a", FAR, "rest", "undeclared")
    assert schedules.put(("a", FAR + 3), by="s2").verdicts == "s"
    assert pool.state("schedules") == {"planned": {"a": plan(FAR, by="s2")}, "ticks": {"a": FAR}}


def test_one_that_failed_is_tried_again(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    schedules.move("a", FAR, "rest", "error no such zone")
    schedules.put(("a", FAR + 3))
    assert pool.state("schedules") == {"planned": {"a": plan(FAR + 3)}, "ticks": {"a": FAR + 3}}


def test_the_api_does_not_replace_what_code_declares_but_code_takes_over(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("code", FAR), by="s1")
    schedules.put(("api", FAR))
    before = pool.state()
    assert schedules.put(("code", FAR + 1), revision="r2").verdicts == "d"
    assert pool.state() == before
    assert schedules.put(("api", FAR + 1), by="s1", revision="r2").verdicts == "c"
    assert schedules.planned("api") == plan(FAR + 1, revision="r2", by="s1")


def test_nothing_is_nothing(pool: Scripts) -> None:
    assert Schedules(pool).put().verdicts == ""
    assert pool.state() == {}

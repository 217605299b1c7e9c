"""schedule_move.lua: a schedule rests and goes on, unless it is another by now."""

from __future__ import annotations

import pytest
from schedule_driver import Schedules, plan
from script_driver import Scripts

FAR = 4_000_000_000_000


@pytest.fixture
def schedules(pool: Scripts) -> Schedules:
    made = Schedules(pool)
    made.put(("a", FAR))
    return made


@pytest.mark.parametrize("why", ["paused", "error no zone is called X"])
def test_one_that_rests_has_no_tick_and_a_reason(schedules: Schedules, why: str) -> None:
    assert schedules.move("a", FAR, "rest", why) == 1
    assert schedules.state("schedules") == {"planned": {"a": plan(FAR)}, "resting": {"a": why}}


def test_one_whose_code_is_not_heard_any_more_is_retired(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR), ("b", FAR), by="s1")
    schedules.move("b", FAR, "rest", "paused")
    schedules.declare("s1", "registered")
    assert schedules.move("a", FAR, "retire", 60_000) == 0, "it lives"
    pool.call("ZADD", pool.keys.declarers, pool.now() - 61_000, "s1")
    assert schedules.move("a", FAR, "retire", 60_000) == 1
    assert schedules.move("b", FAR, "retire", 60_000) == 0
    assert pool.state()["resting"] == {"a": "undeclared", "b": "paused"}


def test_one_goes_on_with_the_given_tick(schedules: Schedules) -> None:
    schedules.move("a", FAR, "rest", "paused")
    assert schedules.move("a", FAR, "resume", FAR + 50, FAR + 57) == 1
    assert schedules.state("schedules") == {
        "planned": {"a": plan(FAR + 50)}, "ticks": {"a": FAR + 57}
    }


def test_one_without_a_further_tick_has_ended(schedules: Schedules) -> None:
    schedules.move("a", FAR, "rest", "paused")
    assert schedules.move("a", FAR, "resume", "-", 0) == 1
    assert schedules.state("schedules") == {
        "planned": {"a": plan("-")}, "resting": {"a": "ended"}
    }


def test_one_that_rests_is_not_replanned(schedules: Schedules) -> None:
    assert schedules.move("a", FAR, "replan", FAR - 500, FAR - 500) == 1
    schedules.move("a", FAR - 500, "rest", "paused")
    before = schedules.state()
    assert schedules.move("a", FAR - 500, "replan", FAR, FAR) == 0
    assert schedules.state() == before


def test_what_changed_since_it_was_looked_at_is_left_alone(schedules: Schedules) -> None:
    before = schedules.state()
    assert schedules.move("a", FAR + 1, "rest", "paused") == 0
    assert schedules.move("a", FAR, "rest", "paused", revision="r0") == 0
    assert schedules.move("b", FAR, "resume", FAR, FAR) == 0
    assert schedules.state() == before


def test_a_full_redis_still_pauses(real: Scripts) -> None:
    made = Schedules(real)
    made.put(("a", FAR))
    real.runner.server.fill()
    assert made.move("a", FAR, "rest", "paused") == 1

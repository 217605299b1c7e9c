"""schedule_remove.lua: nothing is left of a schedule, and its runs stay."""

from __future__ import annotations

from schedule_driver import Schedules, Tick, plan
from script_driver import Scripts

FAR = 4_000_000_000_000


def test_everything_of_a_schedule_goes(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR), ("b", FAR), ("c", "-"))
    assert schedules.remove("a", "c", "nobody") == "rr-"
    assert pool.state() == {
        "schedules": {"b": "def-r1"}, "planned": {"b": plan(FAR)}, "ticks": {"b": FAR}
    }


def test_a_run_that_was_enqueued_stays(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", 1000))
    schedules.fire(Tick("a", 1000, FAR))
    schedules.remove("a")
    assert set(pool.state()) == {"ready", "tasks", "info", "meta", "wake"}


def test_only_what_a_set_still_declares_is_retired(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR), by="s1")
    schedules.put(("b", FAR), by="s2")
    schedules.put(("c", FAR))
    schedules.declare("s1", "registered")
    assert schedules.remove("a", "b", "c", by="s1") == "---", "it lives"
    pool.call("ZADD", pool.keys.declarers, pool.now() - 61_000, "s1")
    assert schedules.remove("a", "b", "c", by="s1") == "r--"
    assert set(pool.state()["planned"]) == {"b", "c"}


def test_no_names_are_no_work(pool: Scripts) -> None:
    assert Schedules(pool).remove() == ""

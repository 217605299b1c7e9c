"""schedule_declare.lua: which sets of declarations live, and who has to register."""

from __future__ import annotations

from schedule_driver import Schedules
from script_driver import Scripts


def silence(pool: Scripts, group: str, ago_ms: int) -> int:
    at = pool.now() - ago_ms
    pool.call("ZADD", pool.keys.declarers, at, group)
    return at


def registered_ago(pool: Scripts, group: str, ago_ms: int) -> None:
    pool.call("ZADD", pool.keys.declared, pool.now() - ago_ms, group)


def test_an_unknown_set_is_to_be_registered_and_then_known(pool: Scripts) -> None:
    schedules = Schedules(pool)
    assert schedules.declare("s1").rest == ["n"]
    assert pool.state() == {}
    done = schedules.declare("s1", "registered")
    assert done.rest == ["k"]
    assert pool.state() == {"declared": {"s1": done.now}, "declarers": {"s1": done.now}}
    assert schedules.declare("s1").rest == ["k"]


def test_a_set_that_is_being_registered_is_heard_but_not_known(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.declare("s1", "registered")
    silence(pool, "s1", 90_000)
    begun = schedules.declare("s1", "registering")
    assert begun.rest == ["k"]
    assert pool.state() == {"declarers": {"s1": begun.now}}
    # Had its process died now, another one would begin again.
    assert schedules.declare("s1").rest == ["n"]


def test_to_be_known_moves_the_time_it_was_heard_last(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.declare("s1", "registered")
    silence(pool, "s1", 30_000)
    heard = schedules.declare("s1")
    assert heard.rest == ["k"]
    assert pool.state()["declarers"] == {"s1": heard.now}


def test_a_set_that_was_silent_is_registered_anew_and_listed(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.declare("s1", "registered")
    last = silence(pool, "s1", 90_000)
    assert schedules.declare("s1").rest == ["n", "s1", last]
    assert schedules.declare("s1", "registered").rest == ["k"]


def test_an_older_set_takes_over_once_when_a_newer_one_falls_silent(pool: Scripts) -> None:
    schedules = Schedules(pool)
    for group, age in (("old", 9000), ("new", 5000)):
        schedules.declare(group, "registered")
        registered_ago(pool, group, age)
    assert schedules.declare("old").rest == ["k"]
    last = silence(pool, "new", 90_000)
    assert schedules.declare("old").rest == ["a", "new", last]
    assert schedules.declare("old", "registered").rest == ["k", "new", last]
    assert schedules.declare("old").rest == ["k", "new", last]


def test_a_newer_set_does_not_mind_an_older_one(pool: Scripts) -> None:
    schedules = Schedules(pool)
    for group, age in (("old", 9000), ("new", 5000)):
        schedules.declare(group, "registered")
        registered_ago(pool, group, age)
    last = silence(pool, "old", 90_000)
    assert schedules.declare("new").rest == ["k", "old", last]


def test_who_declares_nothing_only_hears_who_is_silent(pool: Scripts) -> None:
    schedules = Schedules(pool)
    assert schedules.declare("").rest == ["k"]
    schedules.declare("s1", "registered")
    last = silence(pool, "s1", 90_000)
    assert schedules.declare("").rest == ["k", "s1", last]


def test_after_a_flush_every_set_is_to_be_registered(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.declare("s1", "registered")
    pool.call("FLUSHALL")
    assert schedules.declare("s1").rest == ["n"]

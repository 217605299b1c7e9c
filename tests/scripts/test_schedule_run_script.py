"""schedule_run.lua: a run now, beside the ticks."""

from __future__ import annotations

from schedule_driver import Schedules, plan
from script_driver import Scripts, body, place

FAR = 4_000_000_000_000


def test_a_run_is_enqueued_counted_and_leaves_the_next_tick(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    assert schedules.run_now("a", "a@5") == "f"
    at = int.from_bytes(pool.state()["tasks"]["a@5"][-8:], "big")
    assert pool.state() == {
        "schedules": {"a": "def-r1"}, "planned": {"a": plan(FAR, "5", fired=1)},
        "ticks": {"a": FAR}, "tasks": {"a@5": body("a@5", at)}, "ready": {"a@5": place(1)},
        "meta": {"sequence": "1"}, "wake": ["1"],
    }


def test_a_paused_one_runs_too(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    schedules.move("a", FAR, "rest", "paused")
    assert schedules.run_now("a", "a@5") == "f"
    assert pool.state()["resting"] == {"a": "paused"}


def test_the_same_run_twice_is_one(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    schedules.run_now("a", "a@5")
    before = pool.state()
    assert schedules.run_now("a", "a@5") == "k"
    assert pool.state() == before


def test_a_run_whose_unique_key_is_taken_is_refused(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    assert schedules.run_now("a", "a@5", options="0 - d:x:0:dig") == "f"
    assert schedules.run_now("a", "a@6", options="0 - d:x:0:dig") == "u"


def test_a_schedule_that_changed_or_went_does_not_run(pool: Scripts) -> None:
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    assert schedules.run_now("a", "a@5", revision="r0") == "l"
    assert schedules.run_now("b", "b@5") == "l"


def test_a_run_with_a_priority_in_a_pool_that_runs_in_order_is_refused(pool: Scripts) -> None:
    pool.run("set_transport", "streams", 15_000)
    schedules = Schedules(pool)
    schedules.put(("a", FAR))
    raw = pool.run("schedule_run", "a", "r1", "a@5", b"env", "5 @5 -")
    assert (raw[1], pool.call("EXISTS", pool.keys.tasks)) == (b"o", 0)
    assert schedules.run_now("a", "a@5") == "f"

"""fire.lua: a due tick becomes one task, and the next tick is stored in the same step."""

from __future__ import annotations

import pytest
from schedule_driver import Schedules, Tick, plan
from script_driver import Scripts, body, limited, place

from skedulr.limiting import Limit

FAR = 4_000_000_000_000


@pytest.fixture
def schedules(pool: Scripts) -> Schedules:
    return Schedules(pool)


def claimed(schedules: Schedules) -> str:
    """Claim everything; the token."""
    return schedules.pool.claim().token


def test_a_tick_becomes_a_task_and_the_next_one_is_stored(
    pool: Scripts, schedules: Schedules
) -> None:
    schedules.put(("a", 1000))
    fired = schedules.fire(Tick("a", 1000, FAR, fires=FAR + 7))
    assert fired.verdicts == "f"
    assert pool.state() == {
        "schedules": {"a": "def-r1"}, "planned": {"a": plan(FAR, "1000", fired=1)},
        "ticks": {"a": FAR + 7}, "tasks": {"a@1000": body("a@1000", fired.now)},
        "ready": {"a@1000": place(1)}, "info": {"a@1000": "0 0 0 1000 -"},
        "meta": {"sequence": "1"}, "wake": ["1"],
    }


def test_a_tick_is_fired_once_whoever_tries(pool: Scripts, schedules: Schedules) -> None:
    schedules.put(("a", 1000))
    assert [schedules.fire(Tick("a", 1000, FAR)).verdicts for _ in range(3)] == ["f", "l", "l"]
    assert list(pool.state()["tasks"]) == ["a@1000"]


def test_many_ticks_go_in_one_call(pool: Scripts, schedules: Schedules) -> None:
    names = [f"s{i}" for i in range(100)]
    schedules.put(*((name, 1000) for name in names))
    assert schedules.fire(*(Tick(name, 1000, FAR) for name in names)).verdicts == "f" * 100
    assert pool.claim(want=500).uids == [f"{name}@1000" for name in names]
    assert set(pool.state()["ticks"].values()) == {FAR}


def test_a_tick_is_never_early(pool: Scripts, schedules: Schedules) -> None:
    schedules.put(("a", FAR))
    before = pool.state()
    assert schedules.fire(Tick("a", FAR, FAR + 1)).verdicts == "n"
    assert pool.state() == before


def test_one_that_changed_paused_or_went_is_not_fired(
    pool: Scripts, schedules: Schedules
) -> None:
    schedules.put(("a", 1000), ("b", 1000))
    schedules.put(("a", 2000), revision="r2")
    schedules.move("b", 1000, "rest", "paused")
    before = pool.state()
    assert schedules.fire(
        Tick("a", 1000, FAR), Tick("a", 2000, FAR), Tick("b", 1000, FAR), Tick("c", 1000, FAR)
    ).verdicts == "llll"
    assert pool.state() == before


def test_a_missed_tick_is_passed_over(pool: Scripts, schedules: Schedules) -> None:
    schedules.put(("a", 1000))
    assert schedules.fire(Tick("a", 1000, FAR, envelope=b"", options="")).verdicts == "p"
    assert pool.state("schedules") == {
        "planned": {"a": plan(FAR, skipped=1)}, "ticks": {"a": FAR}
    }


def test_the_last_tick_ends_the_schedule(pool: Scripts, schedules: Schedules) -> None:
    schedules.put(("a", 1000))
    assert schedules.fire(Tick("a", 1000)).verdicts == "f"
    assert pool.state("tasks", "ready", "info", "meta", "wake", "schedules") == {
        "planned": {"a": plan("-", "1000", fired=1)}, "resting": {"a": "ended"}
    }


def test_the_last_ten_runs_are_kept(schedules: Schedules) -> None:
    schedules.put(("a", 1))
    for tick in range(1, 14):
        schedules.fire(Tick("a", tick, tick + 1))
    assert schedules.planned("a") == plan(14, "13,12,11,10,9,8,7,6,5,4", fired=13)


def test_a_paused_pool_fires_nothing(pool: Scripts, schedules: Schedules) -> None:
    schedules.put(("a", 1000), ("b", 1000))
    pool.pause()
    before = pool.state()
    assert schedules.fire(Tick("a", 1000, FAR), Tick("b", 1000, FAR)).verdicts == "xx"
    assert pool.state() == before


def test_priority_delay_and_unique_key_are_those_of_the_call(
    pool: Scripts, schedules: Schedules
) -> None:
    schedules.put(("a", 1000), ("b", 1000))
    assert schedules.fire(
        Tick("a", 1000, 2000, options="5 @1000 d:x:0:dig"),
        Tick("b", 1000, FAR, options=f"0 @{FAR} -"),
    ).verdicts == "ff"
    assert pool.state()["delayed"] == {"b@1000": FAR}
    assert pool.state()["info"] == {"a@1000": "5 0 0 1000 d:dig"}
    assert schedules.fire(Tick("a", 2000, FAR, options="5 @2000 d:x:0:dig")).verdicts == "u"
    assert schedules.planned("a") == plan(FAR, "1000", fired=1, skipped=1)


def test_an_id_that_was_used_is_not_used_again_unless_the_clock_went_back(
    pool: Scripts, schedules: Schedules
) -> None:
    schedules.put(("a", 1000))
    schedules.fire(Tick("a", 1000, 1000))
    assert schedules.fire(Tick("a", 1000, 1000)).verdicts == "k"
    assert schedules.fire(Tick("a", 1000, 1000), again="+1").verdicts == "f"
    assert schedules.fire(Tick("a", 1000, 1000), again="+1").verdicts == "k"
    assert set(pool.state()["tasks"]) == {"a@1000", "a@1000+1"}
    assert schedules.planned("a") == plan(1000, "1000+1,1000", fired=2, skipped=2)


# Overlap


def test_allow_starts_another_run(pool: Scripts, schedules: Schedules) -> None:
    schedules.put(("a", 1000))
    schedules.fire(Tick("a", 1000, 2000))
    claimed(schedules)
    assert schedules.fire(Tick("a", 2000, FAR)).verdicts == "f"
    assert set(pool.state()["tasks"]) == {"a@1000", "a@2000"}


@pytest.mark.parametrize("running", [False, True])
def test_skip_passes_a_tick_while_the_run_before_waits_or_runs(
    pool: Scripts, schedules: Schedules, running: bool
) -> None:
    schedules.put(("a", 1000))
    schedules.fire(Tick("a", 1000, 2000, overlap="s"))
    token = claimed(schedules) if running else ""
    assert schedules.fire(Tick("a", 2000, 3000, overlap="s")).verdicts == "s"
    assert schedules.planned("a") == plan(3000, "1000", fired=1, skipped=1)
    if running:
        pool.finish(("a@1000", token, "s", b"done"))
        assert schedules.fire(Tick("a", 3000, FAR, overlap="s")).verdicts == "f"


def test_queue_one_holds_a_tick_until_the_run_before_ends(
    pool: Scripts, schedules: Schedules
) -> None:
    schedules.put(("a", 1000))
    schedules.fire(Tick("a", 1000, 2000, overlap="q"))
    token = claimed(schedules)
    assert schedules.fire(Tick("a", 2000, 3000, overlap="q")).verdicts == "h"
    assert schedules.fire(Tick("a", 2000, 3000, overlap="q")).verdicts == "h"
    assert schedules.planned("a") == plan(2000, "1000", fired=1, held=1)
    assert pool.state()["ticks"] == {"a": 2000}
    # Whoever listens to the control channel hears of the end.
    assert pool.state()["watch"] == {"a@1000": "control"}
    pool.finish(("a@1000", token, "s", b"done"))
    assert schedules.fire(Tick("a", 2000, FAR, overlap="q")).verdicts == "f"
    assert schedules.planned("a") == plan(FAR, "2000,1000", fired=2)
    assert "watch" not in pool.state()


def test_queue_one_skips_while_one_is_queued_already(schedules: Schedules) -> None:
    schedules.put(("a", 1000))
    schedules.fire(Tick("a", 1000, 2000, overlap="q"))
    assert schedules.fire(Tick("a", 2000, FAR, overlap="q")).verdicts == "s"


def test_cancel_previous_ends_a_run_that_has_not_started(
    pool: Scripts, schedules: Schedules
) -> None:
    schedules.put(("a", 1000))
    first = schedules.fire(Tick("a", 1000, 2000, overlap="c"))
    second = schedules.fire(Tick("a", 2000, FAR, overlap="c"))
    assert second.verdicts == "f"
    assert list(pool.state()["ready"]) == ["a@2000"]
    assert pool.state()["records"] == {
        "a@1000": body("a@1000", first.now, (b"cancelled", second.now))
    }


def test_cancel_previous_tells_a_run_that_goes_on_to_stop(
    pool: Scripts, schedules: Schedules
) -> None:
    schedules.put(("a", 1000))
    schedules.fire(Tick("a", 1000, 2000, overlap="c"))
    claimed(schedules)
    assert schedules.fire(Tick("a", 2000, FAR, overlap="c")).verdicts == "f"
    assert pool.state()["cancels"] == {"a@1000"}
    assert list(pool.state()["ready"]) == ["a@2000"]


def test_a_full_redis_still_fires(real: Scripts) -> None:
    schedules = Schedules(real)
    schedules.put(("a", 1000))
    real.runner.server.fill()
    assert schedules.fire(Tick("a", 1000, FAR)).verdicts == "f"
    assert list(real.state()["ready"]) == ["a@1000"]


def test_options_nobody_can_read_change_nothing(pool: Scripts, schedules: Schedules) -> None:
    schedules.put(("a", 1000))
    before = pool.state()
    with pytest.raises(Exception, match="options nobody can read"):
        schedules.fire(Tick("a", 1000, FAR, options="what"))
    assert pool.state() == before


def test_a_priority_or_a_limit_in_a_pool_that_runs_in_order_fires_nothing(
    pool: Scripts, schedules: Schedules
) -> None:
    pool.run("set_transport", "streams", 15_000)
    schedules.put(("a", 1000), ("b", 1000))
    before = pool.call("HGETALL", pool.keys.planned)
    high = Tick("a", 1000, FAR, options="5 @1000 -")
    bound = Tick("b", 1000, FAR, options=f"0 @1000 - {limited(Limit(concurrency=1))}")
    assert schedules.fire(high, bound).verdicts == "oo"
    assert pool.call("HGETALL", pool.keys.planned) == before
    assert not pool.call("EXISTS", pool.keys.tasks)
    assert schedules.fire(Tick("a", 1000, FAR)).verdicts == "f"

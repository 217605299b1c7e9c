"""Plans and policies: when a schedule ticks, and what becomes of ticks that were missed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import snippets

import skedulr
from skedulr import scheduling
from skedulr.cronline import CronLine
from skedulr.errors import ConfigError
from skedulr.scheduling import LATE_MS, Decision, Plan, Policy, decide

NOON = round(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp() * 1000)
TEN_SECONDS = Plan(every_ms=10_000)
EVERY_MINUTE = Plan(line=CronLine.parse("* * * * *"))
DAILY = Plan(line=CronLine.parse("0 9 * * *"), zone="Europe/Paris")
TEN_YEARS_MS = 10 * 365 * 86_400_000


def decided(plan: Plan, policy: Policy, tick: int, now: int, **more: Any) -> Decision:
    return decide(
        plan, policy, name="s", tick_ms=tick, now_ms=now,
        watching_since_ms=more.pop("since", 0), **more,
    )


# Plans


def test_an_interval_begins_one_period_after_it_was_made() -> None:
    assert TEN_SECONDS.next_after(NOON, NOON) == NOON + 10_000


def test_an_interval_does_not_drift_however_late_each_tick_is_fired() -> None:
    dice = random.Random(3)
    tick = TEN_SECONDS.next_after(NOON, NOON)
    for _ in range(10_000):
        assert tick is not None
        fired_at = tick + dice.randrange(30_000)
        tick = decided(TEN_SECONDS, Policy(), tick, fired_at).next_ms
    assert tick is not None
    assert (tick - NOON) % 10_000 == 0


def test_an_interval_with_a_start_ticks_at_it_and_hangs_on_it() -> None:
    plan = Plan(every_ms=10_000, start_ms=NOON)
    assert plan.next_after(NOON - 86_400_000, NOON - 5) == NOON
    assert plan.next_after(NOON, 77) == NOON + 10_000
    assert plan.next_after(NOON + 12_345, 77) == NOON + 20_000


def test_a_start_and_an_end_bound_a_cron_line() -> None:
    plan = Plan(line=EVERY_MINUTE.line, start_ms=NOON + 30_000, end_ms=NOON + 120_000)
    assert plan.upcoming(NOON - 86_400_000, 0, 10) == [NOON + 60_000, NOON + 120_000]


def test_the_latest_tick_is_found_as_by_walking() -> None:
    plan = Plan(line=CronLine.parse("*/7 3-5 * * *"), zone="America/New_York")
    dice = random.Random(5)
    for _ in range(40):
        first = plan.next_after(NOON + dice.randrange(TEN_YEARS_MS), 0)
        assert first is not None
        until = first + dice.randrange(3 * 86_400_000)
        walked = [first, *plan.upcoming(first, 0, 500)]
        assert plan.latest(first, until) == max(tick for tick in walked if tick <= until)


def test_spreading_is_never_early_and_the_same_for_all() -> None:
    plan = Plan(every_ms=10_000, jitter_ms=3_000)
    offsets = [plan.fires_at("s", tick) - tick for tick in range(NOON, NOON + 2_000_000, 10_000)]
    assert min(offsets) >= 0
    assert max(offsets) <= 3_000
    assert len(set(offsets)) > 100
    assert plan.fires_at("s", NOON) == plan.fires_at("s", NOON)
    assert plan.fires_at("s", NOON) != plan.fires_at("other", NOON)


# Missed ticks


def test_a_tick_in_time_is_fired() -> None:
    for catch_up in scheduling.CATCH_UP:
        assert decided(TEN_SECONDS, Policy(catch_up), NOON, NOON + 3) == Decision(
            NOON, NOON + 10_000
        )


def test_of_many_missed_ticks_the_latest_runs_once() -> None:
    assert decided(TEN_SECONDS, Policy(), NOON, NOON + 71_000) == Decision(
        NOON + 70_000, NOON + 80_000
    )


def test_latest_with_a_window_lets_older_ticks_go() -> None:
    policy = Policy("latest", window_ms=3_600_000)
    nine = DAILY.next_after(NOON, 0)
    assert nine is not None
    assert decided(DAILY, policy, nine, nine + 3_599_000).fire_ms == nine
    late = decided(DAILY, policy, nine, nine + 3_601_000)
    assert late == Decision(None, nine + 86_400_000)


def test_none_fires_what_is_late_by_a_stall_and_passes_over_what_was_missed() -> None:
    policy = Policy("none")
    assert decided(DAILY, policy, NOON, NOON + LATE_MS).fire_ms == NOON
    assert decided(DAILY, policy, NOON, NOON + LATE_MS + 1).fire_ms is None


def test_none_passes_over_what_came_due_before_anyone_looked() -> None:
    policy = Policy("none")
    missed = decided(TEN_SECONDS, policy, NOON, NOON + 71_000, since=NOON + 70_900)
    assert missed == Decision(None, NOON + 80_000)
    # Others may be about to fire this one: it is not old enough to have been missed.
    assert decided(TEN_SECONDS, policy, NOON, NOON + 70_200, since=NOON + 70_100).fire_ms == (
        NOON + 70_000
    )


def test_all_fires_each_tick_in_its_window_in_order() -> None:
    policy, now = Policy("all", window_ms=30_000), NOON + 71_000
    fired, tick = [], NOON
    while tick <= now:
        decision = decided(TEN_SECONDS, policy, tick, now)
        assert decision.next_ms is not None
        fired.append(decision.fire_ms)
        tick = decision.next_ms
    assert fired == [NOON + 50_000, NOON + 60_000, NOON + 70_000]


def test_all_without_a_tick_in_its_window_fires_nothing() -> None:
    nine = DAILY.next_after(NOON, 0)
    assert nine is not None
    decision = decided(DAILY, Policy("all"), nine, nine + 5 * 86_400_000 - 3_600_001)
    assert decision == Decision(None, nine + 5 * 86_400_000)


@pytest.mark.parametrize("catch_up", scheduling.CATCH_UP)
@pytest.mark.parametrize("plan", [TEN_SECONDS, EVERY_MINUTE, DAILY, Plan(every_ms=10)])
def test_a_jump_of_ten_years_costs_no_more_than_a_second(plan: Plan, catch_up: str) -> None:
    tick = plan.next_after(NOON, NOON)
    assert tick is not None
    now = tick + TEN_YEARS_MS
    decision = decided(plan, Policy(catch_up), tick, now)
    assert decision.next_ms is not None
    assert decision.next_ms > tick
    if catch_up != "all":
        assert now < decision.next_ms <= now + 86_400_000


def test_a_held_tick_was_not_missed_and_stands_for_the_latest() -> None:
    held = decided(TEN_SECONDS, Policy("none"), NOON, NOON + 71_000, since=NOON + 70_900, held=True)
    assert held == Decision(NOON + 70_000, NOON + 80_000)


def test_a_spread_tick_waits_for_its_time_when_earlier_ones_are_caught_up() -> None:
    plan = Plan(every_ms=10_000, jitter_ms=9_000)
    decision = decided(plan, Policy(), NOON, NOON + 70_001)
    assert decision.fire_ms == NOON + 60_000
    assert decision.next_ms == NOON + 70_000


def test_the_last_tick_is_followed_by_none() -> None:
    plan = Plan(every_ms=10_000, end_ms=NOON + 5_000)
    assert decided(plan, Policy(), NOON, NOON + 1) == Decision(NOON, None)


# What a user may say


@pytest.fixture
def app() -> skedulr.Skedulr:
    return skedulr.Skedulr()


@pytest.fixture
def poll(app: skedulr.Skedulr) -> Any:
    @app.task(name="poll")
    def poll() -> None: ...

    return poll


@pytest.mark.parametrize(("make", "said"), [
    (lambda t: scheduling.recurring(t, 0, {}), "every=0 is not usable"),
    (lambda t: scheduling.recurring(t, -5, {}), "every=-5"),
    (lambda t: scheduling.recurring(t, float("nan"), {}), "every=nan"),
    (lambda t: scheduling.recurring(t, float("inf"), {}), "every=inf"),
    (lambda t: scheduling.recurring(t, "10", {}), "every='10'"),
    (lambda t: scheduling.recurring(t, 10, {"jiter": 5}), r"unknown option 'jiter'.*jitter"),
    (lambda t: scheduling.recurring(t, 10, {"tz": "UTC"}), "unknown option 'tz'"),
    (lambda t: scheduling.recurring(t, 10, {"jitter": -1}), "jitter=-1"),
    (lambda t: scheduling.recurring(t, 10, {"catch_up": "some"}), "catch_up='some'.*'latest'"),
    (lambda t: scheduling.recurring(t, 10, {"overlap": "no"}), "overlap='no'.*'queue_one'"),
    (lambda t: scheduling.recurring(t, 10, {"catch_up_window": "x"}), "catch_up_window"),
    (lambda t: scheduling.recurring(t, 10, {"name": "a b"}), "schedule name 'a b'"),
    (lambda t: scheduling.recurring(t, 10, {"name": "x" * 171}), "schedule name"),
    (lambda t: scheduling.recurring(t, 10, {"start": datetime(2026, 1, 1)}), "no time zone"),
    (lambda t: scheduling.recurring(t, 10, {"start": 5, "end": 4}), "end= is before start="),
    (lambda t: scheduling.cron(t, "* * * * *", {"tz": "Mars"}), "no time zone is called 'Mars'"),
    (lambda t: scheduling.cron(t, "0 0 30 2 *", {}), "never fires"),
    (lambda t: scheduling.cron(t.using(id="x"), "* * * * *", {}), "id= belongs to one call"),
    (lambda t: scheduling.cron(t.using(at=5), "* * * * *", {}), "at= belongs to one call"),
    (lambda t: scheduling.cron(t.bind(1), "* * * * *", {}), "can not be called like this"),
    (lambda t: scheduling.cron("poll", "* * * * *", {}), "give a task"),
])
def test_what_can_not_be_used_is_refused_with_the_reason(
    poll: Any, make: Callable[[Any], object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make(poll)


def test_times_may_be_timedeltas_and_aware_datetimes(poll: Any) -> None:
    declared = scheduling.recurring(poll, timedelta(minutes=1), {
        "start": datetime(2026, 11, 30, 12, tzinfo=UTC), "jitter": timedelta(seconds=5),
    })
    assert declared.plan == Plan(every_ms=60_000, start_ms=NOON, jitter_ms=5_000)
    assert (declared.name, declared.pool) == ("poll", "default")


def test_decorators_give_the_task_back_and_note_the_schedule(app: skedulr.Skedulr) -> None:
    @app.every(10, name="often", overlap="skip")
    @app.cron("0 9 * * *", tz="Europe/Paris")
    @app.task(name="digest")
    def digest() -> str:
        return "done"

    assert digest() == "done"
    assert {name: one.plan.kind for name, one in app.declared.items()} == {
        "digest": "cron", "often": "recurring"
    }


def test_a_decorator_below_task_is_refused_with_the_fix(app: skedulr.Skedulr) -> None:
    with pytest.raises(ConfigError, match="@cron goes above @task"):
        @app.task
        @app.cron("* * * * *")  # type: ignore[arg-type]
        def wrong() -> None: ...


def test_a_decorator_without_its_argument_is_refused(app: skedulr.Skedulr, poll: Any) -> None:
    with pytest.raises(ConfigError, match="every="):
        app.every(poll)
    with pytest.raises(ConfigError, match="@cron takes a line"):
        app.cron(poll)


def test_a_task_that_needs_arguments_is_refused_with_the_fix(app: skedulr.Skedulr) -> None:
    with pytest.raises(ConfigError, match=r"missing a required argument: 'to'.*task.bind"):
        @app.every(10)
        @app.task(name="mail")
        def mail(to: str) -> None: ...


def test_two_schedules_of_one_name_are_refused(app: skedulr.Skedulr, poll: Any) -> None:
    app.every(10)(poll)
    with pytest.raises(ConfigError, match="two schedules are called 'poll'"):
        app.every(20)(poll)


def test_a_module_imported_twice_declares_the_same_schedule_again(app: skedulr.Skedulr) -> None:
    for _ in range(2):
        @app.every(10)
        @app.task(name="again")
        def again() -> None: ...

    assert list(app.declared) == ["again"]


def test_a_task_of_another_app_is_refused(app: skedulr.Skedulr, poll: Any) -> None:
    with pytest.raises(ConfigError, match="belongs to another app"):
        skedulr.Skedulr().every(10)(poll)


def test_a_preview_shows_the_next_times_in_the_zone(app: skedulr.Skedulr) -> None:
    shown = app.preview(
        "30 2 * * *", 2, tz="Europe/Paris", start=datetime(2026, 3, 28, 12, tzinfo=UTC)
    )
    assert [one.isoformat() for one in shown] == [
        "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"
    ]
    assert app.preview("* * * * *", 1)[0].timestamp() > time.time()
    with pytest.raises(ConfigError, match="count=0"):
        app.preview("* * * * *", 0)


def test_declaring_loads_nothing_that_must_wait_for_patching() -> None:
    assert snippets.run("""
import sys
import skedulr

@skedulr.every(10, jitter=1)
@skedulr.cron("0 9 * * mon-fri", name="daily", tz="Europe/Paris")
@skedulr.task(name="poll")
def poll() -> None: ...

loaded = {name.partition(".")[0] for name in sys.modules}
report(sorted(loaded & {"gevent", "greenlet", "redis", "hiredis", "ssl", "socket", "asyncio"}))
""") == []

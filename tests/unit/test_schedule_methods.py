"""Schedules on a server whose clock a test moves: registering, firing, pausing, clock steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, cast

import pytest

import skedulr
from skedulr import testing
from skedulr.errors import ConfigError, DuplicateTask, ScheduleNotFound, TaskNotFound
from skedulr.hub.driver import Driver
from skedulr.keys import PoolKeys, SpaceKeys
from skedulr.pools.ticker import Ticker, Times, definitions_of
from skedulr.schedule_store import Directory, ScheduleStore
from skedulr.store import Store
from skedulr.testing.crew import _Unwound
from skedulr.testing.driven import DrivenApp
from skedulr.testing.fake import FakeWire
from skedulr.testing.standing import Clock, RedisClock

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
ONE_MONTH = 30 * 86_400


class World:
    """A driven app with a task that notes the ticks it ran for, seconds since noon."""

    def __init__(self, driven: DrivenApp) -> None:
        self.driven, self.ticks = driven, []

        @driven.task(name="poll", max_retries=0)
        def poll(what: str = "") -> None:
            tick = skedulr.current_task().tick
            assert tick is not None
            self.ticks.append(tick - NOON)

        self.poll = poll


@pytest.fixture
def world() -> Iterator[World]:
    served = skedulr.Skedulr()
    with testing.app(Clock(NOON), served=served) as driven:
        yield World(driven)


def test_a_recurring_schedule_runs_once_a_period(world: World) -> None:
    made = world.driven.schedule_recurring(world.poll, 10, name="poll")
    assert made.next_due == NOON + 10
    world.driven.advance(35)
    assert world.ticks == [10, 20, 30]
    shown = world.driven.schedules()["poll"].info()
    assert {key: shown[key] for key in (
        "name", "task", "pool", "kind", "spec", "tz", "next_due", "last_due", "last_id", "paused",
        "error",
    )} == {
        "name": "poll", "task": "poll", "pool": "default", "kind": "recurring", "spec": "10",
        "tz": None, "next_due": NOON + 40, "last_due": NOON + 30,
        "last_id": f"default/poll@{int(NOON + 30) * 1000}", "paused": False, "error": None,
    }
    assert (shown["fired"], shown["skipped"]) == (3, 0)


def test_a_cron_schedule_runs_in_its_zone(world: World) -> None:
    world.driven.schedule_cron(
        world.poll.bind("all"), "0 14 * * *", name="digest", tz="Europe/Paris"
    )
    world.driven.advance(86_400)
    assert world.ticks == [3600]
    assert world.driven.get(f"digest@{int(NOON + 3600) * 1000}").info()["args"] == ["all"]


def test_a_schedule_for_once_is_a_delayed_task(world: World) -> None:
    @world.driven.task(name="hello")
    def hello(name: str) -> str:
        return f"hello {name}"

    handle = world.driven.schedule_once(hello.bind("ann"), datetime.fromtimestamp(NOON + 60, UTC))
    assert handle.state == "scheduled"
    world.driven.advance(60)
    assert handle.result(timeout=0) == "hello ann"
    with pytest.raises(ConfigError, match="no time zone"):
        world.driven.schedule_once(hello.bind("ann"), datetime(2027, 1, 1))


def test_a_run_carries_the_options_of_its_call(world: World) -> None:
    world.driven.schedule_recurring(
        world.poll.using(priority=7, tags=["x"], max_retries=5, delay=2), 10, name="poll"
    )
    world.driven.advance(11)
    info = world.driven.get(f"poll@{int(NOON + 10) * 1000}").info()
    assert (info["state"], info["priority"], info["tags"], info["max_retries"]) == (
        "scheduled", 7, ["x"], 5
    )
    assert info["due_at"] == NOON + 12


def test_a_start_an_end_and_what_comes_after(world: World) -> None:
    world.driven.schedule_recurring(
        world.poll, 10, name="poll", start=NOON + 100, end=NOON + 125
    )
    world.driven.advance(200)
    assert world.ticks == [100, 110, 120]
    schedule = world.driven.schedules()["poll"]
    assert (schedule.ended, schedule.next_due) == (True, None)


def test_jitter_is_never_early_and_keeps_the_ticks(world: World) -> None:
    world.driven.schedule_recurring(world.poll, 100, name="poll", jitter=50)
    next_due = world.driven.schedules()["poll"].next_due
    assert next_due is not None
    assert NOON + 100 <= next_due <= NOON + 150
    world.driven.advance(460)
    assert world.ticks == [100, 200, 300, 400]


def test_the_same_again_keeps_its_place_and_a_change_replaces_it(world: World) -> None:
    for _ in range(3):
        world.driven.schedule_recurring(world.poll, 10, name="poll")
        world.driven.advance(4)
    assert world.ticks == [10]
    world.driven.schedule_recurring(world.poll, 25, name="poll")
    world.driven.advance(50)
    assert world.ticks == [10, 37, 62]
    assert [one.name for one in world.driven.schedules()] == ["poll"]
    assert world.driven.schedules()["poll"].fired == 3


def test_a_schedule_moves_to_another_pool_and_ticks_once(world: World) -> None:
    world.driven.schedule_recurring(world.poll, 10, name="poll")
    world.driven.schedule_recurring(world.poll.using(pool="other"), 10, name="poll")
    world.driven.advance(10)
    assert world.ticks == [10]
    assert [(one.name, one.pool) for one in world.driven.schedules()] == [("poll", "other")]


def test_pause_stops_the_ticks_and_resume_makes_up_none(world: World) -> None:
    schedule = world.driven.schedule_recurring(world.poll, 10, name="poll", catch_up="all")
    assert schedule.pause().paused
    world.driven.advance(34)
    assert world.ticks == []
    resumed = schedule.resume()
    assert (resumed.paused, resumed.next_due) == (False, NOON + 40)
    world.driven.advance(10)
    assert world.ticks == [40]


def test_a_paused_one_stays_paused_when_it_is_put_again(world: World) -> None:
    world.driven.schedule_recurring(world.poll, 10, name="poll").pause()
    assert world.driven.schedule_recurring(world.poll, 10, name="poll").paused
    assert world.driven.schedule_recurring(world.poll, 20, name="poll").paused
    world.driven.advance(60)
    assert world.ticks == []


def test_run_now_runs_beside_the_ticks_paused_or_not(world: World) -> None:
    schedule = world.driven.schedule_recurring(world.poll, 10, name="poll").pause()
    world.driven.clock.forward(3)
    handle = schedule.run()
    world.driven.drain()
    assert handle.id == f"default/poll@{int(NOON + 3) * 1000}"
    assert world.ticks == [3]
    assert world.driven.schedules()["poll"].last_id == handle.id


def test_run_now_whose_unique_key_is_taken_is_refused(world: World) -> None:
    schedule = world.driven.schedule_recurring(
        world.poll.using(unique="until_done"), 10, name="poll"
    )
    schedule.run()
    world.driven.clock.forward(1)
    with pytest.raises(DuplicateTask):
        schedule.run()


def test_unschedule_removes_the_next_tick_and_the_name_is_free_again(world: World) -> None:
    for _ in range(5):
        world.driven.schedule_recurring(world.poll, 10, name="poll")
        world.driven.advance(10)
        assert world.driven.unschedule("poll")
        world.driven.advance(20)
    assert world.ticks == [10, 40, 70, 100, 130]
    assert not world.driven.unschedule("poll")
    assert len(world.driven.schedules()) == 0


def test_an_unknown_name_is_said_to_be_unknown(world: World) -> None:
    with pytest.raises(ScheduleNotFound, match="no schedule is called 'nobody'"):
        world.driven.schedules()["nobody"]
    assert "nobody" not in world.driven.schedules()
    with pytest.raises(TaskNotFound):
        world.driven.get("poll@123")


def test_schedules_are_read_page_by_page(world: World) -> None:
    for number in range(30):
        world.driven.schedule_recurring(
            world.poll.using(pool=f"p{number % 3}"), 10, name=f"s{number:02}"
        )
    names = [f"s{number:02}" for number in range(30)]
    schedules = world.driven.schedules()
    assert [one.name for one in schedules] == names
    assert (len(schedules), schedules[4].name, schedules[-1].name) == (30, "s04", "s29")
    assert [one.name for one in schedules[27:]] == names[27:]
    with pytest.raises(IndexError):
        schedules[30]
    from skedulr.schedule_client import Schedules

    paged, cursor = [], None
    while True:
        page = Schedules(world.driven.client).page(limit=7, cursor=cursor)
        paged += [item["name"] for item in page["items"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert paged == names


def test_the_last_runs_are_shown_newest_first(world: World) -> None:
    world.driven.schedule_recurring(world.poll, 10, name="poll")
    world.driven.advance(125)
    runs = world.driven.schedules()["poll"].runs()
    assert [run["state"] for run in runs] == ["succeeded"] * 10
    assert [int(run["uid"].partition("@")[2]) / 1000 - NOON for run in runs] == list(
        range(120, 20, -10)
    )


def test_a_preview_of_a_schedule_follows_its_lattice(world: World) -> None:
    schedule = world.driven.schedule_recurring(world.poll, 10, name="poll", jitter=3)
    world.driven.advance(14)
    assert [one.timestamp() - NOON for one in schedule.preview(2)] == [20, 30]


# Declared in code


def test_declared_schedules_tick_without_being_stored_by_anyone_else() -> None:
    served = skedulr.Skedulr()
    ticks: list[float | None] = []

    @served.every(10)
    @served.task(name="poll")
    def poll() -> None:
        ticks.append(skedulr.current_task().tick)

    with testing.app(Clock(NOON), served=served) as driven:
        driven.advance(25)
        shown = driven.schedules()["poll"]
        assert shown.declared
        with pytest.raises(ConfigError, match="declared in code"):
            driven.schedule_recurring(poll, 20)
        with pytest.raises(ConfigError, match="declared in code"):
            driven.schedule_recurring(poll.using(pool="other"), 20)
        driven.advance(10)
    assert ticks == [NOON + 10, NOON + 20, NOON + 30]


class Deployment:
    """Children of one version of the code: a ticker each, on a server they share."""

    def __init__(self, server: Server, declare: Callable[[Any], None], pool: str = "default"):
        app = skedulr.Skedulr()

        @app.task(name="poll", pool=pool)
        def poll() -> None: ...

        declare((app, poll))
        self.ticker = Ticker(
            store=server.store(pool), store_of=server.store, directory=server.directory,
            wire=server.wire, driver=cast(Driver, _Unwound()), clock=RedisClock(server.clock),
            owner="test", declared=definitions_of(app, pool, 100_000, [pool]),
            times=Times(silent_ms=60_000, retire_ms=3_600_000),
        )


class Server:
    """A fake server with its own clock, and what it holds."""

    def __init__(self) -> None:
        self.clock = Clock(NOON)
        self.wire = FakeWire(self.clock)
        self.directory = Directory(SpaceKeys("skedulr"))
        self.keys = PoolKeys("skedulr", "default")

    def store(self, pool: str) -> ScheduleStore:
        return ScheduleStore(PoolKeys("skedulr", pool), "control")

    def runs(self) -> list[str]:
        """Every run that was enqueued, as schedule@seconds since noon, in order."""
        uids = [uid.decode() for uid in self.wire.call("HKEYS", self.keys.tasks)]
        split = [uid.rpartition("@") for uid in uids]
        return [f"{name}@{int(tick) // 1000 - int(NOON)}" for name, _, tick in sorted(
            split, key=lambda one: int(one[2])
        )]

    def pass_time(self, seconds: float, *deployments: Deployment, step: float = 5) -> None:
        """Let time pass, each deployment beating every ``step`` seconds."""
        end = self.clock.ms + round(seconds * 1000)
        while self.clock.ms < end:
            self.clock.ms = min(end, self.clock.ms + round(step * 1000))
            for deployment in deployments:
                deployment.ticker.beat()

    def planned(self) -> list[str]:
        return sorted(name.decode() for name in self.wire.call("HKEYS", self.keys.schedules))


@pytest.fixture
def server() -> Server:
    return Server()


def every(seconds: float, name: str = "poll", **more: Any) -> Callable[[Any], None]:
    return lambda given: given[0].every(seconds, name=name, **more)(given[1]) and None


def nothing(given: Any) -> None:
    """A version of the code without schedules."""


def test_children_that_declare_the_same_register_it_once_and_fire_each_tick_once(
    server: Server,
) -> None:
    children = [Deployment(server, every(10)) for _ in range(3)]
    for child in children:
        child.ticker.beat()
    server.pass_time(60, *children)
    assert server.runs() == [f"poll@{tick}" for tick in (10, 20, 30, 40, 50, 60)]
    assert sum(child.ticker.fired for child in children) == 6


@pytest.mark.parametrize("text", [b"", b"rubbish", b"r - x 0 0 0 -", b"\xff \xfe", b"a b 1 0 0 0"])
def test_a_state_that_nobody_can_read_silences_no_other_schedule(
    server: Server, text: bytes, caplog: pytest.LogCaptureFixture,
) -> None:
    child = Deployment(server, every(10))
    child.ticker.beat()
    for name in (b"bad", b"\xff"):
        server.wire.call("HSET", server.keys.schedules, name, b"?")
        server.wire.call("HSET", server.keys.planned, name, text)
        server.wire.call("ZADD", server.keys.ticks, server.clock.ms - 1, name)
    server.pass_time(40, child)
    assert server.runs() == [f"poll@{tick}" for tick in (10, 20, 30, 40)]
    said = [line.getMessage() for line in caplog.records if "can not be read" in line.message]
    assert len(said) == 2 and "schedule default/bad" in said[0] + said[1]


def test_a_page_of_unreadable_states_does_not_hide_what_is_due_behind_it(server: Server) -> None:
    child = Deployment(server, every(10))
    child.ticker.beat()
    for n in range(1200):
        server.wire.call("HSET", server.keys.planned, f"bad{n}", b"?")
        server.wire.call("ZADD", server.keys.ticks, server.clock.ms - 5000 + n, f"bad{n}")
    server.pass_time(20, child)
    assert server.runs() == ["poll@10", "poll@20"]


def test_what_nobody_foresaw_does_not_stop_the_beats(
    server: Server, caplog: pytest.LogCaptureFixture,
) -> None:
    child = Deployment(server, every(10))
    child.ticker.beat()
    server.wire.call("ZADD", server.keys.declarers, 0, b"\xff")
    server.pass_time(60, child)
    assert "poll@60" in server.runs()


def test_a_flushed_server_gets_its_schedules_back_with_the_next_beat(server: Server) -> None:
    child = Deployment(server, every(10))
    child.ticker.beat()
    server.wire.call("FLUSHALL")
    server.pass_time(15, child)
    assert server.runs() == ["poll@15"]
    assert server.planned() == ["poll"]


def test_a_next_tick_that_was_deleted_by_hand_comes_back(server: Server) -> None:
    child = Deployment(server, every(10))
    child.ticker.beat()
    server.wire.call("DEL", server.keys.ticks)
    child.ticker.sweep()  # as some of the heartbeats do
    server.pass_time(15, child)
    assert server.runs() == ["poll@10"]


def test_a_new_version_changes_the_interval_and_keeps_the_counts(server: Server) -> None:
    old = Deployment(server, every(10))
    old.ticker.beat()
    server.pass_time(20, old)
    new = Deployment(server, every(15))
    new.ticker.beat()
    server.pass_time(30, new)
    assert server.runs() == ["poll@10", "poll@20", "poll@35", "poll@50"]
    assert server.store("default").get(server.wire, ["poll"])[0].state.fired == 4


def test_while_two_versions_live_the_newer_one_holds_and_nothing_ticks_twice(
    server: Server,
) -> None:
    old, new = Deployment(server, every(10)), Deployment(server, every(15))
    old.ticker.beat()
    server.pass_time(10, old)
    server.pass_time(30, new, old)
    assert server.runs() == ["poll@10", "poll@30"]
    # A child of the old version is replaced: that changes nothing.
    again = Deployment(server, every(10))
    server.pass_time(30, new, old, again)
    assert server.runs() == ["poll@10", "poll@30", "poll@45", "poll@60"]


def test_an_old_version_that_is_left_alone_takes_its_schedules_back(server: Server) -> None:
    old, new = Deployment(server, every(10)), Deployment(server, every(15))
    old.ticker.beat()
    server.pass_time(10, old)
    server.pass_time(10, new, old)
    server.pass_time(130, old)
    gaps = [int(run.partition("@")[2]) for run in server.runs()[-3:]]
    assert [late - early for early, late in pairwise(gaps)] == [10, 10]


def test_a_schedule_that_left_the_code_is_silent_at_once_and_removed_after_an_hour(
    server: Server,
) -> None:
    old = Deployment(server, every(10))
    old.ticker.beat()
    server.pass_time(20, old)
    new = Deployment(server, nothing)
    server.pass_time(3300, new, step=30)
    assert server.runs() == ["poll@10", "poll@20"]
    assert server.planned() == ["poll"]
    server.pass_time(600, new, step=30)
    assert server.planned() == []
    assert server.directory.count(server.wire) == 0
    assert server.wire.call("ZCARD", server.keys.declarers) == 0


def test_it_goes_on_where_it_was_if_the_code_comes_back_before(server: Server) -> None:
    old = Deployment(server, every(10))
    old.ticker.beat()
    server.pass_time(20, old)
    server.pass_time(300, Deployment(server, nothing))
    server.pass_time(15, Deployment(server, every(10)))
    assert server.runs() == ["poll@10", "poll@20", "poll@320", "poll@330"]


def test_schedules_of_the_api_outlive_every_version(server: Server) -> None:
    child = Deployment(server, every(10, name="made"))
    definition = child.ticker._declared["made"]
    from skedulr.schedule_store import place

    server.store("default").put(server.wire, [place(definition, server.clock.ms)])
    other = Deployment(server, nothing)
    server.pass_time(2 * 3600, other, step=30)
    assert server.planned() == ["made"]
    assert len(server.runs()) == 240


def test_a_schedule_moves_with_the_code_to_another_pool(server: Server) -> None:
    Deployment(server, every(10)).ticker.beat()
    Deployment(server, every(10), pool="other").ticker.beat()
    assert server.planned() == []
    assert server.directory.pools_of(server.wire, "poll") == ["other"]


# Missed ticks and clock steps


@pytest.mark.parametrize(("catch_up", "expected"), [
    ("latest", ["poll@70", "poll@80"]), ("none", ["poll@80"]),
    ("all", [f"poll@{tick}" for tick in range(50, 90, 10)]),
])
def test_after_downtime_each_policy_does_what_it_says(
    server: Server, catch_up: str, expected: list[str]
) -> None:
    version = every(10, catch_up=catch_up, catch_up_window=30 if catch_up == "all" else None)
    Deployment(server, version).ticker.beat()
    server.clock.forward(75)
    server.pass_time(7, Deployment(server, version), step=1)
    assert server.runs() == expected


def test_a_paused_pool_fires_nothing_and_catches_up_when_it_goes_on(server: Server) -> None:
    child = Deployment(server, every(10))
    child.ticker.beat()
    server.wire.call("HSET", server.keys.meta, "paused", "1")
    server.pass_time(45, child)
    assert server.runs() == []
    server.wire.call("HDEL", server.keys.meta, "paused")
    # The resume is told on the control channel, which makes it look.
    child.ticker.look()
    server.pass_time(10, child)
    assert server.runs() == ["poll@40", "poll@50"]


@pytest.mark.parametrize("version", [
    every(10), lambda given: given[0].cron("* * * * *", name="poll")(given[1]) and None,
])
@pytest.mark.parametrize("jump", [90, -90, 315_360_000, -3600])
def test_a_clock_that_jumps_costs_one_run_and_the_next_comes_within_a_period(
    server: Server, version: Callable[[Any], None], jump: int
) -> None:
    child = Deployment(server, version)
    server.pass_time(120, child, step=1)
    before = child.ticker.fired
    server.clock.ms += jump * 1000
    child.ticker.beat()
    assert child.ticker.fired - before <= 1
    server.pass_time(61, child, step=1)
    assert child.ticker.fired > before


def test_ten_thousand_missed_ticks_are_decided_in_one_look(server: Server) -> None:
    child = Deployment(server, every(1))
    child.ticker.beat()
    server.clock.forward(ONE_MONTH)
    calls = 0
    run = server.wire.run

    def counted(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        return run(*given)

    server.wire.run = counted  # type: ignore[method-assign]
    child.ticker.look()
    assert server.runs() == [f"poll@{ONE_MONTH}"]
    assert calls == 2


def test_a_schedule_whose_arithmetic_fails_stops_alone_and_says_why(server: Server) -> None:
    def two(given: Any) -> None:
        every(10)(given)
        every(10, name="sick")(given)

    child = Deployment(server, two)
    child.ticker.beat()
    definition = child.ticker._kept["sick"]
    object.__setattr__(definition.plan, "zone", "Atlantis/Nowhere")
    object.__setattr__(definition.plan, "line", skedulr.cronline.CronLine.parse("* * * * *"))
    server.pass_time(30, child)
    assert server.runs() == ["poll@10", "poll@20", "poll@30"]
    stored = server.store("default").get(server.wire, ["sick"])[0]
    assert stored is not None
    assert stored.why.startswith("error ZoneInfoNotFoundError")


def test_a_definition_nobody_can_read_stops_alone(server: Server) -> None:
    child = Deployment(server, every(10))
    child.ticker.beat()
    from skedulr.schedule_store import place

    made = Deployment(server, every(10, name="made")).ticker._declared["made"]
    server.store("default").put(server.wire, [place(made, server.clock.ms)])
    server.wire.call("HSET", server.keys.schedules, "made", b"\x93what")
    server.pass_time(20, child)
    assert server.runs() == ["poll@10", "poll@20"]
    stored = server.store("default").get(server.wire, ["made"])[0]
    assert stored is not None
    assert stored.why.startswith("error PayloadError")


REFUSED = "pool 'default' has no priorities and no limits: its transport runs tasks in the order"


def in_order(wire: Any, keys: PoolKeys, transport: str = "streams") -> None:
    """The pool's ready work is kept in a stream from now on, or no more."""
    assert Store(keys, transport).settle(wire, 15_000) is None


def test_a_priority_or_a_limit_is_refused_in_a_pool_that_runs_in_order(world: World) -> None:
    client = world.driven.client
    client.ask(lambda wire: in_order(wire, PoolKeys("skedulr", "default")))
    high = world.poll.using(priority=5)
    limited = world.poll.using(limit=skedulr.Limit(concurrency=1))
    for one in (high, limited):
        with pytest.raises(ConfigError, match=REFUSED):
            world.driven.schedule_recurring(one, 10, name="poll")
        with pytest.raises(ConfigError, match=REFUSED):
            world.driven.schedule_cron(one, "* * * * *", name="poll")
        with pytest.raises(ConfigError, match=REFUSED):
            world.driven.schedule_once(one.bind(), datetime.fromtimestamp(NOON + 60, UTC))
    assert not world.driven.schedules()
    world.driven.schedule_recurring(world.poll, 10, name="poll")
    with pytest.raises(ConfigError, match=REFUSED):
        world.driven.schedule_recurring(high, 10, name="poll")
    world.driven.advance(25)
    assert world.ticks == [10, 20]


def test_one_with_a_priority_stops_and_says_why_when_its_pool_becomes_a_stream(
    world: World,
) -> None:
    world.driven.schedule_recurring(world.poll.using(priority=5), 10, name="poll")
    world.driven.advance(15)
    keys = PoolKeys("skedulr", "default")
    world.driven.client.ask(lambda wire: in_order(wire, keys))
    world.driven.advance(15)
    assert world.ticks == [10]
    assert REFUSED in (world.driven.schedules()["poll"].error or "")
    schedule = world.driven.schedules()["poll"]
    for act in (schedule.resume, schedule.run):
        with pytest.raises(ConfigError, match=REFUSED):
            act()
    world.driven.client.ask(lambda wire: in_order(wire, keys, "zset"))
    schedule.resume()
    world.driven.advance(10)
    assert world.ticks == [10, 40]


def test_one_of_the_code_stops_when_it_is_registered_and_the_others_tick(server: Server) -> None:
    in_order(server.wire, server.keys)

    def two(given: Any) -> None:
        every(10)(given)
        every(10, name="high")((given[0], given[1].using(priority=5)))

    child = Deployment(server, two)
    child.ticker.beat()
    stored = server.store("default").get(server.wire, ["high"])[0]
    assert stored is not None
    assert stored.why.startswith(f"error ConfigError: {REFUSED}")
    server.pass_time(20, child)
    assert server.runs() == ["poll@10", "poll@20"]

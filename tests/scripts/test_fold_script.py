"""fold.lua and what it adds up: what finish, retry, release and submit count of runs.

For these scripts time stands still, so that no minute ends in the middle of a test.
"""

from __future__ import annotations

from typing import Any

import pytest
from script_driver import FakeRunner, RealRunner, Scripts, task

from skedulr.redis_scripts import Script, script
from skedulr.statistics import BOUNDS_MS, OTHERS, Tally

MINUTE_MS = 60_000
#: How a script learns what time it is.
ASKS_TIME = "redis.call('TIME')"


class StandingStill(Scripts):
    """The scripts of a pool, all of them run in the middle of one minute."""

    def __init__(self, runner: FakeRunner | RealRunner) -> None:
        super().__init__(runner)
        self._now_ms = super().now() // MINUTE_MS * MINUTE_MS + MINUTE_MS // 2

    def now(self) -> int:
        return self._now_ms

    def run(self, name: str, *args: Any, owner: str | None = None) -> Any:
        moving, time = script(name), f"{{'{self._now_ms // 1000}', '0'}}"
        assert moving.text.count(ASKS_TIME) == 1
        still = Script(name, moving.text.replace(ASKS_TIME, time))
        return self.runner.run(still, self.keys.of(moving.keys, owner), list(args))


@pytest.fixture
def pool(runner: FakeRunner | RealRunner) -> Scripts:
    return StandingStill(runner)


def minute_of(pool: Scripts) -> int:
    """The one minute that something was counted in."""
    return int(pool.figures()["open"].split()[-1])


def tally(pool: Scripts, field: str) -> Tally:
    return Tally.read(pool.figures()[field].encode())


def run(pool: Scripts, *samples: str, number: int | None = None) -> None:
    """Submit, claim and end one task a sample."""
    first = int(pool.call("HGET", pool.keys.meta, "sequence") or 0)
    uids = [f"u{first + n}" for n in range(len(samples))]
    pool.submit(*map(task, uids))
    token = pool.claim(want=500).token
    pool.finish(*((u, token, s, b"x") for u, s in zip(uids, samples, strict=True)))


def later(pool: Scripts, minutes: int) -> int:
    """Redis ms so many minutes after the one that something was counted in."""
    return (minute_of(pool) + minutes) * MINUTE_MS


def age(pool: Scripts, minutes: int) -> None:
    """As if all that was counted had been counted so many minutes earlier."""
    figures = pool.figures()
    old = minute_of(pool)
    for field, text in figures.items():
        if field.startswith(f"m{old}"):
            pool.call("HDEL", pool.keys.history, field)
            pool.call("HSET", pool.keys.history, field.replace(str(old), str(old - minutes)), text)
    pool.call("HSET", pool.keys.history, "open", f"0 {old - minutes}")


def test_the_bounds_of_lua_are_those_of_python() -> None:
    text = script("finish").text.partition("local BOUNDS = {")[2].partition("}")[0]
    assert tuple(map(int, text.split(","))) == BOUNDS_MS


def test_runs_are_counted_by_name_in_their_minute(pool: Scripts) -> None:
    run(pool, "s 40 7 app.a", "s 40 7 app.a", "d 5 9000 app.a", "s - 1 app.b", "c - - app.b", "e")
    minute = minute_of(pool)
    a, b = tally(pool, f"m{minute} app.a"), tally(pool, f"m{minute} app.b")
    assert (a.runs, a.succeeded, a.dead, a.failed) == (3, 2, 1, 1)
    assert (a.waited.count, a.waited.sum_ms, a.waited.longest_ms) == (3, 85, 40)
    assert (a.ran.count, a.ran.sum_ms, a.ran.longest_ms) == (3, 9014, 9000)
    assert (b.runs, b.succeeded, b.cancelled) == (1, 1, 1)
    assert (b.waited.count, b.ran.count) == (0, 1)
    assert pool.figures()[f"m{minute}+"] == "6"


def test_only_what_is_kept_counts_and_a_repeated_call_counts_once(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    stale = pool.claim("n1")
    pool.release(("b", stale.token), owner="n1")
    batch = (("a", stale.token, "s 1 1 x", b"e"), ("b", stale.token, "s 1 1 x", b"e"))
    assert pool.finish(*batch, owner="n1", number=3).verdicts == "kl"
    assert pool.finish(*batch, owner="n1", number=3).verdicts == "kl"
    assert tally(pool, f"m{minute_of(pool)} x").succeeded == 1


def test_a_retry_counts_as_a_run_that_failed(pool: Scripts) -> None:
    pool.submit(task("a"))
    token = pool.claim().token
    pool.run("retry", 1, "a", token, "500 3 20 x", b"oops", owner="n1")
    counted = tally(pool, f"m{minute_of(pool)} x")
    assert (counted.runs, counted.retried, counted.failed, counted.ended) == (1, 1, 1, 0)
    assert counted.ran.sum_ms == 20
    assert set(pool.state()["delayed"]) == {"a"}


def test_crashes_are_counted_under_the_name_of_the_culprit(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim("n1")
    pool.run("release", "owner", "n1", "a", 1, b"crash", b"killed", "1", "app.a", owner="n1")
    counted = tally(pool, f"m{minute_of(pool)} app.a")
    assert (counted.runs, counted.crashed, counted.dead, counted.ran.count) == (1, 1, 1, 0)
    pool.submit(task("b"))
    pool.claim("n2")
    pool.judge_owner("n2", culprit="b")
    assert tally(pool, f"m{minute_of(pool)} (unknown)").crashed == 1


def test_a_fold_adds_a_minute_that_is_over_once_to_all_that_is_longer(pool: Scripts) -> None:
    run(pool, "s 40 7 a", "s 2 9 b")
    minute = minute_of(pool)
    assert pool.fold("a", "b", read_ms=minute * MINUTE_MS).rest == [0, 0], "it is not over"
    assert pool.fold("a", "b", read_ms=later(pool, 1)).rest == [1, 0]
    after = pool.figures()
    assert pool.fold("a", "b", read_ms=later(pool, 1)).rest == [0, 0]
    assert pool.figures() == after
    for name, runs in (("a", 1), ("b", 1)):
        for field in ("", f"m{minute}", f"t{minute // 10}", f"d{minute // 1440}"):
            assert tally(pool, f"{field} {name}").runs == runs
    for field in (f"m{minute}", f"t{minute // 10}", f"d{minute // 1440}"):
        assert (tally(pool, field).runs, tally(pool, field).submitted) == (2, 2)
    assert after["open"] == str(minute)


def test_what_comes_after_the_fold_of_its_minute_counts_in_the_next_one(pool: Scripts) -> None:
    run(pool, "s 1 1 a")
    minute = minute_of(pool)
    pool.fold("a", read_ms=later(pool, 1))
    run(pool, "s 1 1 a")
    assert tally(pool, f"m{minute + 1} a").runs == 1
    assert tally(pool, f"m{minute} a").runs == 1
    pool.fold("a", read_ms=(minute + 2) * MINUTE_MS)
    assert tally(pool, " a").runs == 2


def test_minutes_are_added_one_a_call_the_oldest_first(pool: Scripts) -> None:
    run(pool, "s 1 1 a")
    age(pool, 20)
    old = minute_of(pool)
    run(pool, "s 1 1 a")
    assert pool.figures()["open"].split()[1:] == [str(old), str(minute_of(pool))]
    read_ms = later(pool, 1)
    assert pool.fold("a", read_ms=read_ms).rest == [1, 1]
    assert pool.fold("a", read_ms=read_ms).rest == [1, 0]
    assert tally(pool, " a").runs == 2


@pytest.mark.parametrize(
    ("kind", "minutes"), [("m", 8 * 60 + 1), ("t", 3 * 1440 + 10), ("d", 367 * 1440)]
)
def test_what_is_kept_long_enough_is_dropped(pool: Scripts, kind: str, minutes: int) -> None:
    run(pool, "s 1 1 a")
    age(pool, minutes)
    pool.fold("a", read_ms=later(pool, 1))
    fields = [one for one in pool.figures() if one[0] == kind and one != f"{kind} kept"]
    assert fields == []
    assert pool.figures()[f"{kind} kept"] == ""
    assert tally(pool, " a").runs == 1, "the total since ever stays"


def test_more_names_than_a_pool_may_have_share_one(pool: Scripts) -> None:
    for start in range(0, 200, 50):
        run(pool, *(f"s 1 2 name{n}" for n in range(start, start + 50)))
    named = [one[1:] for one in pool.figures() if one.startswith(" ")]
    assert len(named) <= 89
    shared = [one for one in pool.figures() if one.endswith(f" {OTHERS}") and one[0] == "m"]
    counted = Tally.sum(tally(pool, one) for one in shared)
    assert counted.runs == 200 - (len(named) - 1)
    assert counted.ran.sum_ms == 2 * counted.runs
    run(pool, "s 1 2 name0", "s 1 2 name199")
    assert Tally.sum(tally(pool, one) for one in shared).runs == counted.runs + 1


def test_resubmitted_and_delayed_tasks_count_as_submitted(pool: Scripts) -> None:
    pool.submit(task("a"), task("b", when="+60000"))
    pool.finish_now("a")
    pool.resubmit(("a", "", b"again"))
    assert pool.figures()[f"m{minute_of(pool)}+"] == "3"


def test_figures_that_nobody_can_read_stop_nothing(pool: Scripts) -> None:
    run(pool, "s 1 1 a")
    minute = minute_of(pool)
    pool.call("HSET", pool.keys.history, f"m{minute} a", "what is this")
    run(pool, "s 1 1 a", "s one two")
    assert tally(pool, f"m{minute} a").runs == 1

"""What becomes of limited tasks that are cancelled, resubmitted, retried, expired, mapped: in every
case nothing is leaked, and the doctor finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from listing import listed

import skedulr
from skedulr import ConfigError, Limit, LinearRetry, Skedulr, message, testing
from skedulr.doctor import Doctor
from skedulr.keys import PoolKeys
from skedulr.store import Ending, Lane, Store
from skedulr.testing import DrivenApp

KEYS = PoolKeys("skedulr", "default")
#: What limits hold of tasks. Tokens that were spent, and turns, are no task's.
HELD = ("slots", "parked", "queues", "releases")


@pytest.fixture
def driven() -> Iterator[DrivenApp]:
    with testing.app(testing.Clock(1_700_000_000), served=Skedulr()) as driven:
        yield driven


def healthy(driven: DrivenApp) -> bool:
    """The doctor finds nothing; says what else."""
    found = Doctor(driven.wire, "skedulr", moment_s=0).examine("default")
    assert not found
    return True


def left(driven: DrivenApp) -> list[str]:
    """What limits still hold, once all tasks have ended; what was spent of rates stays."""
    assert healthy(driven)
    return [name for name in HELD if driven.wire.call("EXISTS", KEYS.prefix + name)]


# -- what is done to a parked one


def cancel(driven: DrivenApp, handle: Any) -> None:
    assert handle.cancel()
    assert handle.state == "cancelled"


def purge(driven: DrivenApp, handle: Any) -> None:
    driven.purge("default", state="queued", name=handle.info()["name"])


def cancel_and_resubmit(driven: DrivenApp, handle: Any) -> None:
    assert handle.cancel()
    handle.resubmit()
    driven.drain()
    assert handle.info()["limit"] == {"name": "t", "kind": "concurrency", "key": "ann"}
    assert handle.cancel()


def let_run(driven: DrivenApp, handle: Any) -> None:
    driven.set_limit("t", concurrency=5)
    driven.drain()
    assert handle.state == "succeeded"
    driven.reset_limit("t")


@pytest.mark.parametrize("deed", [cancel, purge, cancel_and_resubmit, let_run])
def test_a_parked_task_leaves_nothing_whatever_is_done_to_it(
    driven: DrivenApp, deed: Callable[[DrivenApp, Any], None]
) -> None:
    """Another process runs one of its key."""
    t = driven.task(name="t", limit=Limit(concurrency=1, key="{0}"))(_nothing)
    other = Other(driven)
    running = t.submit("ann")
    other.take(running.uid)
    parked = t.submit("ann")
    driven.drain()
    assert parked.info()["limit"] == {"name": "t", "kind": "concurrency", "key": "ann"}
    assert healthy(driven)
    deed(driven, parked)
    assert healthy(driven)
    other.end()
    driven.drain()
    assert running.state == "succeeded"
    assert not left(driven)


def _nothing(key: str) -> None: ...


class Other:
    """A process beside those of the kit: it takes a task, and ends it when it is told to."""

    def __init__(self, driven: DrivenApp) -> None:
        self._store = Store(KEYS)
        self._lane, self._ends = (Lane(driven.wire, "node9.0.1") for _ in range(2))

    def take(self, uid: str) -> None:
        claims = self._store.claim(self._lane, 1, 1, 3_600_000)
        assert claims.rows[::4] == [uid.encode()]
        self._held = uid.encode(), claims.token

    def end(self) -> None:
        entry = message.entry(message.SUCCEEDED, "w", 1, 1, None)
        self._store.finish(self._ends, [Ending(*self._held, "s", entry)])


def _queued(driven: DrivenApp) -> list[dict[str, Any]]:
    return [one for one in listed(driven.client, "queued") if one["name"] == "t"]


# -- what a running one comes to


@pytest.mark.parametrize("how", ["succeeds", "fails", "is retried", "is cancelled", "times out"])
def test_a_running_task_gives_its_slot_back_however_it_ends(driven: DrivenApp, how: str) -> None:
    runs: list[str] = []

    @driven.task(name="t", limit=Limit(concurrency=1), max_retries=1, retry=LinearRetry(60))
    def t(me: str) -> None:
        runs.append(me)
        if me != "first" or runs.count("first") > 1:
            return
        if how == "fails":
            raise skedulr.Reject("no")
        if how == "is retried":
            raise RuntimeError("again")
        if how == "times out":
            raise skedulr.TaskTimeout("over")
        if how == "is cancelled":
            first.cancel()

    first, second = t.submit("first"), t.submit("second")
    driven.drain()
    assert second.state == "succeeded"
    driven.advance(120)
    assert first.state in ("succeeded", "dead", "cancelled")
    assert not left(driven)
    if first.state != "succeeded":
        first.resubmit()
        driven.drain()
        assert not left(driven)


def test_a_parked_task_expires_when_its_turn_comes_and_leaves_nothing(
    driven: DrivenApp,
) -> None:
    """As any queued task, it is told once it would have started; until then it can be cancelled.

    Nobody looks at what waits meanwhile: that is what makes parking cost nothing."""
    runs = []

    @driven.task(name="t", limit=Limit(rate=1, per=100), expires=150)
    def t(me: int) -> None:
        runs.append(me)

    handles = [t.submit(at) for at in range(4)]
    driven.drain()
    driven.advance(90)
    assert [one.state for one in handles] == ["succeeded", "queued", "queued", "queued"]
    driven.advance(20)
    assert handles[1].state == "succeeded"
    driven.advance(100)
    assert handles[2].state == "expired"
    with pytest.raises(skedulr.TaskFailed, match="expired"):
        handles[2].result(timeout=0)
    driven.advance(100)
    assert runs == [0, 1]
    assert handles[3].state == "expired"
    assert not left(driven)


# -- maps


def test_the_step_of_a_map_takes_no_slot_and_its_items_one_each(driven: DrivenApp) -> None:
    """Suspended or not: what a map step does is not the task's work. With a limit of one it would
    wait for itself, and of a rate it would take tokens for nothing."""
    held = []

    @driven.task(name="numbers")
    def numbers() -> list[int]:
        return [1, 2, 3]

    @driven.task(name="t", limit=[Limit(concurrency=1), Limit(rate=100, burst=3)])
    def t(number: int) -> int:
        slots = driven.wire.call("HGETALL", KEYS.slots)
        held.append([text for id, text in zip(slots[::2], slots[1::2], strict=True)
                     if id[:1] not in b"#@"])
        return 2 * number

    with driven.workflow("w") as w:
        step = w.map(t, w.add(numbers.bind()))
    driven.drain()
    driven.advance(1)
    assert step.handle.result(0) == [2, 4, 6]
    assert [len(one) for one in held] == [1, 1, 1]
    assert not left(driven)


def test_a_maps_limits_have_each_items_own_key(driven: DrivenApp) -> None:
    ran = []

    @driven.task(name="customers")
    def customers() -> list[dict[str, str]]:
        return [{"id": who} for who in ("ann", "ann", "bob", "eve")]

    @driven.task(name="t", limit=[
        Limit(rate=1, per=60, key="{region}-{customer[id]}"), Limit(concurrency=50, name="all"),
    ])
    def t(region: str, customer: dict[str, str]) -> None:
        ran.append(customer["id"])

    with driven.workflow("w") as w:
        step = w.map(t.bind("eu", skedulr.previous), w.add(customers.bind()))
    driven.drain()
    assert sorted(ran) == ["ann", "bob", "eve"]
    (waiting,) = _queued(driven)
    assert waiting["limit"] == {"name": "t", "kind": "rate", "key": "eu-ann"}
    driven.cancel(waiting["id"])
    driven.get(waiting["id"]).resubmit()
    driven.drain()
    assert driven.get(waiting["id"]).info()["limit"]["key"] == "eu-ann"
    driven.advance(61)
    assert sorted(ran) == ["ann", "ann", "bob", "eve"]
    driven.advance(61)
    assert step.handle.state == "succeeded"
    assert not left(driven)


def test_an_item_that_does_not_fill_a_key_is_limited_under_the_key_as_written(
    driven: DrivenApp,
) -> None:
    @driven.task(name="mixed")
    def mixed() -> list[Any]:
        return [{"id": "ann"}, {}, 3]

    @driven.task(name="t", limit=Limit(rate=1, per=60, key="{0[id]}"))
    def t(customer: Any) -> None: ...

    with driven.workflow("w") as w:
        step = w.map(t, w.add(mixed.bind()))
    driven.drain()
    (waiting,) = _queued(driven)
    assert waiting["limit"]["key"] == "{0[id]}"
    driven.advance(130)
    assert step.handle.state == "succeeded"


def test_a_limit_by_what_another_step_returns_is_refused_where_it_is_written(
    driven: DrivenApp,
) -> None:
    @driven.task(name="find")
    def find() -> str: ...

    @driven.task(name="t", limit=Limit(concurrency=1, key="{customer}"))
    def t(customer: str) -> None: ...

    said = "'customer', which is the result of another step"
    with pytest.raises(ConfigError, match=said), driven.workflow("w") as w:
        w.add(t.bind(w.add(find.bind())))
    with driven.workflow("w") as w:
        w.add(t.bind("ann"), depends_on=w.add(find.bind()))
    driven.drain()
    assert not left(driven)

"""By name: what children publish, what producers make of it, and tasks that were put elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skedulr
from skedulr import ExponentialBackoff, Skedulr, message, names, testing
from skedulr.errors import UnknownTask
from skedulr.keys import PoolKeys, SpaceKeys
from skedulr.limiting import placing_of
from skedulr.names import Directory, Published
from skedulr.pools.mover import Mover
from skedulr.pools.poison import judge
from skedulr.pools.publisher import FORGET_AFTER_S, Publisher
from skedulr.queries import PoolQueries
from skedulr.store import KEPT, LOST, Deferral, Ending, Lane, Relocation, Store, Submission
from skedulr.testing.fake import FakeWire
from skedulr.testing.standing import RedisClock
from skedulr.wire import NotAnswered

SPACE = SpaceKeys("skedulr")


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock(1_700_000_000)


@pytest.fixture
def wire(clock: testing.Clock) -> FakeWire:
    return FakeWire(clock)


# What is published


def worker_app() -> Skedulr:
    app = Skedulr()

    @app.task(
        name="report", pool="slow", priority=5, key="r{0}", timeout=9, tags=["t"],
        unique="until_done", on_duplicate="return", expires=60, headers={"h": 1},
        retry=ExponentialBackoff(base=1, cap=5),
    )
    def report(number: int) -> None: ...

    @app.task(name="plain")
    def plain() -> None: ...

    return app


class Late:
    """A driver that runs nothing by itself."""

    def after(self, delay_s: float, callback: Callable[[], object], **how: Any) -> None:
        callback()

    def every(self, period_s: float, callback: Callable[[], object], **how: Any) -> None: ...


@pytest.fixture
def publisher(wire: FakeWire, clock: testing.Clock) -> Publisher:
    driver: Any = Late()
    return Publisher(
        app=worker_app(), space=SPACE, wire=wire, clock=RedisClock(clock), driver=driver
    )


def entries(wire: FakeWire) -> dict[str, Published | None]:
    flat = wire.call("HGETALL", SPACE.names)
    return {
        name.decode(): names.unpack(entry)
        for name, entry in zip(flat[::2], flat[1::2], strict=True)
    }


def test_a_child_publishes_pool_and_defaults_that_producers_need(
    wire: FakeWire, publisher: Publisher
) -> None:
    publisher.start()
    assert entries(wire) == {
        "report": Published("slow", {
            "priority": 5, "key": "r{0}", "tags": ["t"], "unique": "until_done",
            "on_duplicate": "return", "expires": 60.0, "headers": {"h": 1},
        }, 1_700_000_000_000),
        "plain": Published("default", {}, 1_700_000_000_000),
    }


def test_names_that_nobody_publishes_any_more_are_forgotten_at_the_next_boot(
    wire: FakeWire, clock: testing.Clock, publisher: Publisher
) -> None:
    old = names.pack(Published("gone", {}, clock.ms))
    wire.call("HSET", SPACE.names, "old", old, "rotten", b"\xc1")
    clock.forward(FORGET_AFTER_S)
    publisher.start()
    assert set(entries(wire)) == {"old", "report", "plain"}
    clock.forward(0.001)
    publisher.start()
    assert set(entries(wire)) == {"report", "plain"}


def test_an_entry_of_a_later_release_is_read_as_far_as_it_is_understood() -> None:
    entry = skedulr.payload.encode(["slow", {"priority": 1, "colour": "red"}, 5, "more"])
    assert names.unpack(entry) == Published("slow", {"priority": 1}, 5)


# The directory


def test_an_answer_is_asked_for_once_in_30_seconds() -> None:
    asked, now = [], [0.0]
    entry = names.pack(Published("slow", {}, 1))

    def look(name: str) -> bytes:
        asked.append(name)
        return entry

    directory = Directory(look, lambda: now[0])
    for now[0] in (0, 10, 29.9):
        assert directory.find("report") == Published("slow", {}, 1)
    assert asked == ["report"]
    now[0] = 30
    directory.find("report")
    assert asked == ["report"] * 2


def test_that_nobody_knows_a_name_is_believed_for_two_seconds() -> None:
    asked, now = [], [0.0]
    directory = Directory(lambda name: asked.append(name), lambda: now[0])
    for now[0] in (0, 1.9, 2):
        assert directory.find("x") is None
    assert asked == ["x", "x"]


def test_an_old_answer_counts_while_redis_is_away() -> None:
    now, away = [0.0], [False]

    def look(name: str) -> bytes:
        if away[0]:
            raise NotAnswered("away", sent=False)
        return names.pack(Published("slow", {}, 1))

    directory = Directory(look, lambda: now[0])
    directory.find("known")
    now[0], away[0] = 3600, True
    assert directory.find("known") == Published("slow", {}, 1)
    with pytest.raises(NotAnswered):
        directory.find("never heard of")


def test_the_directory_does_not_grow_with_the_names_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names, "MOST_NAMES", 3)
    directory = Directory(lambda name: None)
    for number in range(10):
        directory.find(str(number))
    assert len(directory._known) == 3


# Producers


@pytest.fixture
def producer() -> Iterator[testing.DrivenApp]:
    """An app without the code, on a server to which a child has published."""
    with testing.app(testing.Clock(1_700_000_000), served=Skedulr()) as driven:
        driver: Any = Late()
        Publisher(
            app=worker_app(), space=SPACE, wire=driven.wire, clock=RedisClock(driven.clock),
            driver=driver,
        ).start()
        yield driven


def test_a_submit_by_name_goes_to_the_right_pool_with_the_right_defaults(
    producer: testing.DrivenApp,
) -> None:
    handle = producer.submit("report", 7)
    info = handle.info()
    assert (handle.pool, info["priority"], info["key"], info["tags"]) == ("slow", 5, "r7", ["t"])
    # unique="until_done", on_duplicate="return"
    assert producer.submit("report", 7) == handle
    assert producer.submit("report", 8) != handle


def test_what_the_call_says_is_stronger(producer: testing.DrivenApp) -> None:
    handle = producer.remote("report", pool="fast").using(priority=-1, tags=["mine"]).submit(1)
    info = handle.info()
    assert (handle.pool, info["priority"], info["tags"]) == ("fast", -1, ["mine"])


def test_a_bulk_by_name_asks_once_a_name(
    producer: testing.DrivenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    look = producer.client._directory._look
    monkeypatch.setattr(
        producer.client._directory, "_look", lambda name: asked.append(name) or look(name)
    )
    report, plain = producer.remote("report"), producer.remote("plain")
    handles = producer.submit_many(
        call for i in range(50) for call in (report.bind(i), plain.bind())
    )
    assert [handle.pool for handle in handles] == ["slow", "default"] * 50
    assert asked == ["report", "plain"]


def test_a_name_that_nobody_published_goes_to_default_and_says_so(
    producer: testing.DrivenApp,
) -> None:
    handle = producer.submit("later", 1)
    assert handle.pool == "default"
    body = producer.wire.call("HGET", PoolKeys("skedulr", "default").tasks, handle.uid)
    assert message.read_journal(body).extras == {"unplaced": True}


def test_a_pool_that_the_call_names_is_no_guess(producer: testing.DrivenApp) -> None:
    handle = producer.remote("later", pool="default").submit(1)
    body = producer.wire.call("HGET", PoolKeys("skedulr", "default").tasks, handle.uid)
    assert "unplaced" not in message.read_journal(body).extras


def test_asked_to_check_an_unknown_name_is_refused(producer: testing.DrivenApp) -> None:
    with pytest.raises(UnknownTask, match="did you mean 'report'"):
        producer.remote("reprot", check=True)
    assert producer.remote("report", check=True).submit(1).pool == "slow"


# Moving


class Move:
    """A task of pool ``default`` that belongs to ``slow``, and the owners that come by."""

    def __init__(self, wire: FakeWire) -> None:
        self.wire = wire
        self.here, self.there = (Store(PoolKeys("skedulr", pool)) for pool in ("default", "slow"))
        self.envelope = message.envelope(message.name_part("report"), (1,), {}, {}, 1000)
        self.here.submit(wire, [Submission("a", self.envelope, "")])
        self.claim("one")

    def claim(self, owner: str) -> None:
        """Another owner takes the task; its moves go through a lane of its own."""
        claims = self.here.claim(Lane(self.wire, owner), 1, 1, 60_000)
        assert claims.rows
        self.owner, self.token = owner, claims.token
        self.cancelled = bool(claims.cancelled)
        self.mover = Mover(
            store=self.here, lane=Lane(self.wire, owner), space=SPACE
        )

    def die(self) -> None:
        self.here.release_owner(
            self.wire, self.owner,
            judge(culprit=b"", owner=self.owner, host="h", how="killed", suspecting=False),
        )

    def go(self, options: str = "") -> str | Ending:
        [(_, verdict)] = self.mover.move([
            Relocation(b"a", self.token, "slow", self.envelope, options, self.cancelled)
        ])
        return verdict

    def states(self) -> tuple[str | None, str | None]:
        return tuple(  # type: ignore[return-value]
            PoolQueries(PoolKeys("skedulr", pool)).state(self.wire, "a")
            for pool in ("default", "slow")
        )

    def run_there(self) -> bool:
        """A worker of the right pool takes it and ends it; False where it has nothing to take."""
        lane = Lane(self.wire, "slow-worker")
        claims = self.there.claim(lane, 1, 1, 60_000)
        if not claims.rows:
            return False
        entry = message.entry(message.SUCCEEDED, "w", 1, 1, None)
        self.there.finish(
            Lane(self.wire, "slow-worker"), [Ending(b"a", claims.token, "s", entry)]
        )
        return True


@pytest.fixture
def move(wire: FakeWire) -> Move:
    return Move(wire)


def test_a_moved_task_is_there_and_its_record_here_says_so(move: Move) -> None:
    assert move.go("7 - -") == KEPT
    assert move.states() == (None, "queued")
    facts = PoolQueries(PoolKeys("skedulr", "default")).look(move.wire, ["a"])[0]
    assert facts.moved_to == "slow/a"
    assert move.wire.call("HKEYS", SPACE.pools) == [b"slow"]


def test_a_moved_task_waits_for_its_limit_where_it_belongs_and_only_there(move: Move) -> None:
    limits = placing_of([skedulr.Limit(concurrency=1)], "report", str)
    first = Submission("first", move.envelope, f"0 - - {limits}")
    move.there.submit(move.wire, [first])
    busy = Lane(move.wire, "busy-worker")
    claims = move.there.claim(busy, 1, 1, 60_000)
    assert move.go(f"0 - - {limits}") == KEPT
    assert move.states() == (None, "queued")
    idle = Lane(move.wire, "idle-worker")
    assert not move.there.claim(idle, 1, 1, 60_000).rows
    here, there = move.here.keys, move.there.keys
    assert move.wire.call("ZRANGE", there.parked, 0, -1) == [b"a"]
    assert not move.wire.call("EXISTS", here.limits, here.slots, here.parked, here.queues)
    entry = message.entry(message.SUCCEEDED, "w", 1, 1, None)
    move.there.finish(busy, [Ending(b"first", claims.token, "s", entry)])
    assert move.run_there()
    assert not move.wire.call("EXISTS", there.slots, there.parked, there.queues)


def test_a_limited_task_that_is_put_back_for_its_name_frees_its_slot(wire: FakeWire) -> None:
    """Nobody here knows its name, nor where it belongs: it is deferred, and the next one runs."""
    store, owner = Store(PoolKeys("skedulr", "default")), Lane(wire, "one")
    limits = placing_of([skedulr.Limit(concurrency=1)], "ghost", str)
    envelope = message.envelope(message.name_part("ghost"), (), {}, {}, 1000)
    store.submit(wire, [Submission(uid, envelope, f"0 - - {limits}") for uid in ("a", "b")])
    claims = store.claim(owner, 5, 5, 60_000)
    assert claims.rows[::4] == [b"a"]
    store.defer(owner, [Deferral(b"a", claims.token, 60_000)])
    assert store.claim(Lane(wire, "two"), 5, 5, 60_000).rows[::4] == [b"b"]


def test_a_death_between_the_two_steps_moves_it_once(move: Move) -> None:
    assert move.mover._store_there(_relocation(move)) is None
    move.die()
    assert move.states() == ("queued", "queued")
    move.claim("two")
    assert move.go() == KEPT
    assert move.states() == (None, "queued")
    assert move.run_there()
    assert not move.run_there()


def test_it_may_have_ended_there_before_the_second_step(move: Move) -> None:
    move.mover._store_there(_relocation(move))
    assert move.run_there()
    move.die()
    move.claim("two")
    assert move.go() == KEPT
    assert move.states() == (None, "succeeded")
    assert not move.run_there()


def test_a_claim_that_was_lost_meanwhile_ends_nothing_here(move: Move) -> None:
    move.here.release(move.wire, move.owner, [(b"a", move.token)])
    assert move.go() == LOST
    assert move.states() == ("queued", "queued")
    move.claim("two")
    assert move.go() == KEPT
    assert move.states() == (None, "queued")


def test_a_cancel_between_the_two_steps_ends_it_in_both_pools(move: Move) -> None:
    move.mover._store_there(_relocation(move))
    assert move.here.cancel(move.wire, "a", b"\xc0", SPACE.control) == "running"
    ending = move.go()
    assert isinstance(ending, Ending)
    assert ending.kind == "c"
    assert move.states()[1] == "cancelled"
    assert not move.run_there()


def test_a_cancel_is_not_forgotten_by_a_death_between_the_two_steps(move: Move) -> None:
    move.mover._store_there(_relocation(move))
    move.here.cancel(move.wire, "a", b"\xc0", SPACE.control)
    move.die()
    move.claim("two")
    assert move.cancelled
    ending = move.go()
    assert isinstance(ending, Ending)
    assert (ending.kind, move.states()[1]) == ("c", "cancelled")


def test_a_task_cancelled_before_the_move_is_never_stored_there(move: Move) -> None:
    move.cancelled = True
    ending = move.go()
    assert isinstance(ending, Ending)
    assert move.states() == ("running", None)


def test_another_task_of_that_id_there_is_left_alone(move: Move) -> None:
    move.there.submit(move.wire, [Submission("a", b"\xc0", "")])
    ending = move.go()
    assert isinstance(ending, Ending)
    assert ending.kind == "d"
    assert b"another task has the id slow/a" in ending.entry


def test_a_unique_key_that_is_taken_there_ends_it(move: Move) -> None:
    move.there.submit(move.wire, [Submission("b", move.envelope, "0 - d:x:0:key")])
    ending = move.go("0 - d:x:0:key")
    assert isinstance(ending, Ending)
    assert ending.kind == "c"


def _relocation(move: Move) -> Relocation:
    return Relocation(b"a", move.token, "slow", move.envelope, "", False)


# All of it, on a real server

WORK = """
import skedulr

@skedulr.task(name="report", pool="slow", priority=5)
def report(number):
    return [skedulr.current_task().id, skedulr.current_task().attempt, number]
"""


def test_tasks_submitted_before_any_child_booted_are_moved_and_found(tmp_path: Path) -> None:
    (tmp_path / "report_tasks.py").write_text(WORK)
    with testing.server(served=Skedulr()) as app:
        early = [app.submit("report", number) for number in range(3)]
        assert [handle.pool for handle in early] == ["default"] * 3
        stays = app.remote("report", pool="default").submit(3)
        app.work("report_tasks", pools="default=2,slow=2", directory=tmp_path)
        for number, handle in enumerate(early):
            # The handle of the old place goes on in the new one.
            assert handle.result(timeout=10) == [f"slow/{handle.uid}", 1, number]
            assert (handle.state, handle.info()["pool"]) == ("succeeded", "slow")
            assert handle.cancel() is False
        # It was asked for there.
        assert stays.result(timeout=10)[0] == stays.id
        assert app.wait(early, timeout=5)
        deadline = time.monotonic() + 10
        while app.client.published("report") is None:
            assert time.monotonic() < deadline
        assert app.submit("report", 4).pool == "slow"

"""Group commit against a store that answers, stalls and fails as the test says."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import snippets
from redis.exceptions import ResponseError

from skedulr import SkedulrError, StorageUnavailable
from skedulr.committer import Committer, Parcel
from skedulr.keys import PoolKeys
from skedulr.store import BATCH, Submission
from skedulr.wire import NotAnswered, Refused


class FakeWire:
    """Counts its connects; fails to connect while ``problem`` is set."""

    def __init__(self) -> None:
        self.connected = False
        self.connects = 0
        self.timeout_s = 5.0
        self.problem: Exception | None = None
        #: Of another thread's hub.
        self.foreign = False

    @property
    def usable_here(self) -> bool:
        return self.connected and not self.foreign

    def connect(self) -> None:
        if self.problem is not None:
            raise self.problem
        self.connected = True
        self.connects += 1

    def close(self) -> None:
        self.connected = False


class FakeStore:
    """Stores what it is given, once ``gate`` is open; each call may be made to fail."""

    keys = PoolKeys("n", "p")

    def __init__(self, wire: FakeWire) -> None:
        self.wire = wire
        self.calls: list[list[str]] = []
        self.threads: list[threading.Thread] = []
        self.bounds_s: list[float] = []
        self.faults: list[BaseException] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def submit(
        self, wire: Any, batch: Sequence[Submission], capacity: int, replaced: bytes
    ) -> tuple[str, list[str]]:
        self.calls.append([one.uid for one in batch])
        self.threads.append(threading.current_thread())
        self.bounds_s.append(wire.timeout_s)
        self.entered.set()
        self.gate.wait(20)
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, NotAnswered):
                wire.close()
            raise fault
        letters = {"dup": "d", "taken": "u"}
        kinds = [one.uid.partition("-")[0] for one in batch]
        return (
            "".join(letters.get(kind, "s") for kind in kinds),
            [f"holder-of-{one.uid}" for one in batch if one.uid.startswith("taken")],
        )


class Bench:
    """A committer with its fakes."""

    def __init__(self, timeout_s: float = 5.0) -> None:
        self.wire = FakeWire()
        self.store = FakeStore(self.wire)
        self.announced = 0
        self.committer = Committer(
            store=self.store,  # type: ignore[arg-type]
            wire=self.wire,  # type: ignore[arg-type]
            timeout_s=timeout_s, announce=self._announce,
        )

    def _announce(self, wire: Any) -> None:
        self.announced += 1

    def submit(self, *uids: str) -> Parcel:
        return self.committer.submit([one(uid) for uid in uids])

    def post(self, *uids: str) -> Parcel:
        return self.committer.post([one(uid) for uid in uids])

    def warm(self) -> None:
        """Connected, and the last call was of one caller alone."""
        self.submit("warm")
        self.store.calls.clear()
        self.store.threads.clear()
        self.store.entered.clear()


def one(uid: str, size: int = 10) -> Submission:
    return Submission(uid, b"x" * size, "")


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.store.gate.set()
    made.committer.stop()


def in_threads(*work: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    return threads


def lost(sent: bool) -> NotAnswered:
    return NotAnswered("the line went dead", sent=sent)


# --- sharing --------------------------------------------------------------------------------------


def test_the_first_submit_connects_and_announces_in_the_committer_s_thread(bench: Bench) -> None:
    assert bench.submit("a").verdicts == "s"
    assert (bench.wire.connects, bench.announced) == (1, 1)
    assert bench.store.threads[0] is not threading.current_thread()


def test_a_caller_that_is_alone_carries_its_own(bench: Bench) -> None:
    bench.warm()
    for uid in ("a", "b", "c"):
        assert bench.submit(uid).verdicts == "s"
    assert bench.store.calls == [["a"], ["b"], ["c"]]
    assert set(bench.store.threads) == {threading.current_thread()}


def test_what_gathers_meanwhile_goes_in_one_call_of_the_committer(bench: Bench) -> None:
    bench.warm()
    bench.store.gate.clear()
    threads = in_threads(lambda: bench.submit("first"))
    assert bench.store.entered.wait(5)
    parcels = [bench.post(f"m{n}") for n in range(20)]
    bench.store.gate.set()
    for parcel in parcels:
        assert parcel.wait() == "s"
    assert bench.store.calls == [["first"], [f"m{n}" for n in range(20)]]
    assert bench.store.threads[1] not in threads
    threads[0].join()


def test_after_a_shared_call_callers_hand_in_until_one_is_alone_again(bench: Bench) -> None:
    bench.warm()
    bench.store.gate.clear()
    threads = in_threads(lambda: bench.submit("first"))
    assert bench.store.entered.wait(5)
    bench.post("a")
    last = bench.post("b")
    bench.store.gate.set()
    last.wait()
    threads[0].join()
    bench.submit("c")
    bench.submit("d")
    mine = [thread is threading.current_thread() for thread in bench.store.threads]
    assert mine == [False, False, False, True]


def test_a_call_takes_at_most_the_batch_and_keeps_parcels_whole(bench: Bench) -> None:
    bench.warm()
    bench.store.gate.clear()
    threads = in_threads(lambda: bench.submit("first"))
    assert bench.store.entered.wait(5)
    parcels = [bench.post(*(f"{letter}{n}" for n in range(300))) for letter in "abc"]
    parcels.append(bench.post("d"))
    bench.store.gate.set()
    assert [len(parcel.wait()) for parcel in parcels] == [300, 300, 300, 1]
    assert [len(call) for call in bench.store.calls] == [1, 300, 300, 301]
    assert max(map(len, bench.store.calls)) <= BATCH
    threads[0].join()


def test_each_caller_gets_its_own_verdicts_and_holders(bench: Bench) -> None:
    bench.warm()
    bench.store.gate.clear()
    threads = in_threads(lambda: bench.submit("first"))
    assert bench.store.entered.wait(5)
    parcels = [
        bench.post("a", "taken-1"), bench.post("dup-1"), bench.post("taken-2", "b", "taken-3"),
    ]
    bench.store.gate.set()
    assert [parcel.wait() for parcel in parcels] == ["su", "d", "usu"]
    assert [parcel.holders for parcel in parcels] == [
        {1: "holder-of-taken-1"}, {}, {0: "holder-of-taken-2", 2: "holder-of-taken-3"},
    ]
    threads[0].join()


def test_a_connection_of_another_thread_s_hub_is_not_used_by_the_caller(bench: Bench) -> None:
    bench.warm()
    bench.wire.foreign = True
    bench.submit("a")
    assert bench.store.threads[0] is not threading.current_thread()


def test_a_large_submit_is_not_carried_by_its_caller(bench: Bench) -> None:
    bench.warm()
    bench.committer.submit([one("big", 1_000_000)])
    assert bench.store.threads[0] is not threading.current_thread()


# --- a caller that is interrupted -----------------------------------------------------------------


def test_a_caller_that_is_interrupted_while_it_carries_frees_the_wire(bench: Bench) -> None:
    bench.warm()
    bench.store.faults = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        bench.submit("a")
    assert bench.submit("b").verdicts == "s"


def test_those_who_wait_behind_an_interrupted_caller_are_served(bench: Bench) -> None:
    bench.warm()
    bench.store.gate.clear()
    bench.store.faults = [KeyboardInterrupt()]
    gone: list[BaseException] = []

    def carry() -> None:
        try:
            bench.submit("a")
        except KeyboardInterrupt as error:
            gone.append(error)

    threads = in_threads(carry)
    assert bench.store.entered.wait(5)
    parcels = [bench.post(f"b{n}") for n in range(9)]
    bench.store.gate.set()
    assert [parcel.wait() for parcel in parcels] == ["s"] * 9
    threads[0].join()
    assert len(gone) == 1


def test_what_an_interrupted_caller_left_is_not_sent_any_more() -> None:
    bench = Bench()
    bench.wire.problem = lost(sent=False)
    abandoned = bench.post("a")
    abandoned.abandoned = True  # as wait() leaves it when its greenlet is killed
    kept = bench.post("b")
    bench.wire.problem = None
    assert kept.wait() == "s"
    assert bench.store.calls == [["b"]]
    bench.committer.stop()


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [True, False], ids=["carried", "handed in"])
def test_a_lost_reply_is_repeated_with_the_same_submission(bench: Bench, warm: bool) -> None:
    if warm:
        bench.warm()
    bench.store.faults = [lost(sent=True)]
    assert bench.submit("a").verdicts == "s"
    assert bench.store.calls == [["a"], ["a"]]
    assert bench.announced == bench.wire.connects == 2


def test_a_refusal_is_ridden_out(bench: Bench) -> None:
    bench.store.faults = [Refused("LOADING"), Refused("LOADING")]
    assert bench.submit("a").verdicts == "s"
    assert (len(bench.store.calls), bench.wire.connects) == (3, 1)


@pytest.mark.parametrize(("fault", "maybe"), [
    (lost(sent=True), True), (lost(sent=False), False), (Refused("OOM no room"), False),
])
@pytest.mark.parametrize("warm", [True, False], ids=["carried", "handed in"])
def test_when_the_time_is_over_the_caller_is_told_what_is_known(
    fault: Exception, maybe: bool, warm: bool
) -> None:
    bench = Bench(timeout_s=0.1)
    if warm:
        bench.warm()
    bench.store.faults = [fault] * 50
    with pytest.raises(StorageUnavailable) as caught:
        bench.submit("a")
    assert caught.value.maybe_submitted is maybe
    assert str(fault) in str(caught.value)
    known = "may have been stored" if maybe else "certainly nothing was stored"
    assert known in str(caught.value)
    assert caught.value.__cause__ is fault
    bench.committer.stop()


def test_one_try_that_was_sent_makes_it_a_maybe_for_good() -> None:
    bench = Bench(timeout_s=0.1)
    bench.store.faults = [lost(sent=True), *[lost(sent=False)] * 50]
    with pytest.raises(StorageUnavailable) as caught:
        bench.submit("a")
    assert caught.value.maybe_submitted is True
    bench.committer.stop()


def test_a_server_that_can_not_be_reached_stores_nothing_for_certain() -> None:
    bench = Bench(timeout_s=0.1)
    bench.wire.problem = NotAnswered("refused", sent=False)
    with pytest.raises(StorageUnavailable, match="refused") as caught:
        bench.submit("a")
    assert caught.value.maybe_submitted is False
    assert bench.store.calls == []
    bench.committer.stop()


def test_an_announcement_that_was_lost_is_no_maybe() -> None:
    bench = Bench(timeout_s=0.1)

    def announce(wire: Any) -> None:
        raise lost(sent=True)

    bench.committer._announce = announce
    with pytest.raises(StorageUnavailable) as caught:
        bench.submit("a")
    assert caught.value.maybe_submitted is False
    assert bench.store.calls == [] and not bench.wire.connected
    bench.committer.stop()


def test_a_committer_that_does_not_come_back_holds_nobody_beyond_its_time() -> None:
    bench = Bench(timeout_s=0.1)
    bench.store.gate.clear()
    parcels = [bench.post("a")]
    assert bench.store.entered.wait(5)
    parcels.append(bench.post("b"))
    for parcel, maybe in zip(parcels, (True, False), strict=True):
        with pytest.raises(StorageUnavailable, match="no answer in time") as caught:
            parcel.wait()
        assert caught.value.maybe_submitted is maybe
    bench.store.gate.set()
    # Its caller was told that nothing was stored, so it must not be sent now.
    assert bench.submit("c").verdicts == "s"
    assert ["b"] not in bench.store.calls
    bench.committer.stop()


def test_who_comes_late_to_the_first_try_goes_along_and_does_not_cut_the_others() -> None:
    """It was this process that was busy: that says nothing of Redis."""
    bench = Bench(timeout_s=30)
    bench.wire.timeout_s = 30
    bench.store.gate.clear()
    first = bench.post("first")
    assert bench.store.entered.wait(5)
    short, long = bench.post("short"), bench.post("long")
    short.deadline = time.monotonic() - 1
    bench.store.gate.set()
    assert (first.wait(), long.wait(), short.wait()) == ("s", "s", "s")
    assert bench.store.calls == [["first"], ["short", "long"]]
    assert bench.store.bounds_s[1] == 30
    bench.committer.stop()


def test_those_whose_time_is_over_after_a_try_do_not_end_the_others() -> None:
    bench = Bench(timeout_s=30)
    bench.store.gate.clear()
    first = bench.post("first")
    assert bench.store.entered.wait(5)
    short, long = bench.post("short"), bench.post("long")
    first.deadline = short.deadline = time.monotonic() - 1
    bench.store.faults = [Refused("by the first"), Refused("by both")]
    bench.store.gate.set()
    assert long.wait() == "s"
    with pytest.raises(StorageUnavailable, match="by both") as caught:
        short.wait()
    assert caught.value.maybe_submitted is False
    assert bench.store.calls == [["first"], ["short", "long"], ["long"]]
    bench.committer.stop()


def test_what_is_handed_in_has_its_time_from_when_its_caller_waits() -> None:
    """In a patched process nobody else may have run until then, so nothing was tried."""
    bench = Bench(timeout_s=0.2)
    bench.store.gate.clear()
    bench.post("first")
    assert bench.store.entered.wait(5)
    posted = bench.post("a")
    posted.deadline = began = time.monotonic()
    with pytest.raises(StorageUnavailable, match="no answer in time"):
        posted.wait()
    assert posted.deadline >= began + 0.2
    bench.store.gate.set()
    bench.committer.stop()


def test_a_try_is_bounded_by_the_nearest_end_but_never_cut_to_nothing() -> None:
    bench = Bench(timeout_s=30)
    bench.wire.timeout_s = 30
    bench.store.gate.clear()
    bench.post("first")
    assert bench.store.entered.wait(5)
    for left_s in (0.01, 20):
        bench.post(f"left-{left_s}").deadline = time.monotonic() + left_s
    last = bench.post("last")
    bench.store.gate.set()
    last.wait()
    assert bench.store.bounds_s[0] == 30
    assert bench.store.bounds_s[1] == 0.5
    assert bench.wire.timeout_s == 30
    bench.committer.stop()


@pytest.mark.parametrize("warm", [True, False], ids=["carried", "handed in"])
def test_what_redis_does_not_permit_is_no_outage(bench: Bench, warm: bool) -> None:
    if warm:
        bench.warm()
    bench.store.faults = [ResponseError("NOPERM this user has no permissions")]
    with pytest.raises(SkedulrError, match="NOPERM") as caught:
        bench.submit("a")
    assert not isinstance(caught.value, StorageUnavailable)
    assert isinstance(caught.value.__cause__, ResponseError)
    assert bench.submit("b").verdicts == "s"


def test_a_fault_of_ours_reaches_every_caller_and_the_next_are_served(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.faults = [ZeroDivisionError("ours")]
    with pytest.raises(SkedulrError, match="ours"):
        bench.submit("a")
    assert "a batch of submits failed" in caplog.text
    assert bench.submit("b").verdicts == "s"


# --- starting and stopping ------------------------------------------------------------------------


def test_making_one_starts_and_connects_nothing(bench: Bench) -> None:
    assert bench.committer._thread is None and bench.wire.connects == 0


def test_stopping_ends_the_thread_once_all_is_answered(bench: Bench) -> None:
    bench.store.gate.clear()
    parcel = bench.post("a")
    bench.committer.stop()
    bench.committer.stop()
    thread = bench.committer._thread
    assert thread is not None
    bench.store.gate.set()
    assert parcel.wait() == "s"
    thread.join(5)
    assert not thread.is_alive() and not bench.wire.connected


def test_stopping_one_that_was_never_used_is_safe(bench: Bench) -> None:
    bench.committer.stop()
    bench.committer.stop()


KILL = """
import gevent
import test_committer
from skedulr import StorageUnavailable

bench = test_committer.Bench()
store, outcomes, senders = bench.store, {}, []
inner = store.submit

def submit(*arguments):
    senders.append(gevent.getcurrent())
    return inner(*arguments)

store.submit = submit
store.gate.clear()

def call(uid):
    try:
        outcomes[uid] = bench.submit(uid).verdicts
    except StorageUnavailable as error:
        outcomes[uid] = [error.maybe_submitted, "killed" in str(error)]

first = gevent.spawn(call, "a")
assert store.entered.wait(5)
rest = [gevent.spawn(call, f"b{n}") for n in range(3)]
gevent.idle()
gevent.kill(senders[0])
store.gate.set()
gevent.joinall([first, *rest], timeout=20)
later = gevent.spawn(call, "later")
later.join(20)
report([outcomes, senders[0].dead])
"""


def test_a_killed_committer_fails_its_callers_and_a_new_one_serves_the_rest() -> None:
    here = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(snippets.TESTS)])}
    outcomes, dead = snippets.run(KILL, patched=True, environ=here)
    assert dead
    assert outcomes == {"a": [True, True], "b0": "s", "b1": "s", "b2": "s", "later": "s"}


SUCCESSOR = KILL.partition("first = gevent.spawn")[0].replace("    return inner(*arguments)", """\
    under_way.append(len(under_way))
    try:
        return inner(*arguments)
    finally:
        seen.append(len(under_way))
        under_way.pop()""").replace("bench =", "seen, under_way = [], []\nbench =") + """
first = gevent.spawn(call, "a")
assert store.entered.wait(5)
second = gevent.spawn(call, "b")
gevent.idle()
store.entered.clear()
gevent.kill(senders[0])
assert store.entered.wait(5)
third = gevent.spawn(call, "c")
gevent.idle()
store.gate.set()
gevent.joinall([first, second, third], timeout=20)
report([outcomes, max(seen)])
"""


def test_the_wire_of_a_new_committer_stays_its_own_when_the_killed_one_is_gone() -> None:
    here = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(snippets.TESTS)])}
    outcomes, together = snippets.run(SUCCESSOR, patched=True, environ=here)
    assert outcomes == {"a": [True, True], "b": "s", "c": "s"}
    assert together == 1


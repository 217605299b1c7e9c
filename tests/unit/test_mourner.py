"""Hooks hear of every task that dies, also where no run of it could tell: each way, by the scripts
that masters, sweeps and doctors call."""

from __future__ import annotations

from typing import Any

import pytest

import skedulr
from skedulr import message
from skedulr.codecs import SigningCodec
from skedulr.context import Context
from skedulr.doctor import Doctor
from skedulr.errors import TaskFailed
from skedulr.hub.driver import Driver
from skedulr.keys import PoolKeys
from skedulr.pools import poison
from skedulr.pools.mourner import Mourner
from skedulr.pools.recorder import Recorder
from skedulr.pools.sweeper import Keep, Sweeper
from skedulr.store import Ending, Lane, Relocation, Store, Submission
from skedulr.testing.fake import FakeWire
from skedulr.testing.standing import Clock

LEASE_S = 15


class Child:
    """What a child tells its hooks with, on a fake server whose clock the test moves."""

    def __init__(self, *, hooks: bool = True, codec: Any = None) -> None:
        self.clock = Clock()
        self.wire = FakeWire(self.clock)
        self.store = Store(PoolKeys("skedulr", "default"))
        self.app = skedulr.Skedulr()
        self.told: list[tuple[Context, BaseException]] = []
        if hooks:
            self.app.on("dead")(lambda context, error: self.told.append((context, error)))
        self.mourner = Mourner(store=self.store, wire=self.wire, app=self.app, codec=codec)

        @self.app.task(name="work", max_retries=7)
        def work(number: int) -> None: ...

    def submit(self, uid: str, codec: Any = None, **extras: Any) -> None:
        body = message.envelope(message.name_part("work"), (1,), {"to": 2}, extras, 1000)
        if codec is not None:
            body = message.seal_call(body, codec)
        self.store.submit(self.wire, [Submission(uid, body, "")])

    def claim(self, owner: str) -> tuple[Lane, bytes]:
        lane = Lane(self.wire, owner)
        return lane, self.store.claim(lane, 1, 1, LEASE_S * 1000).token

    def crash(self, uid: str) -> None:
        """Each process that runs it dies of it, as its master finds."""
        for n in range(poison.CRASH_LIMIT):
            self.claim(f"{uid}{n}")
            self.store.release_owner(self.wire, f"{uid}{n}", poison.judge(
                culprit=uid.encode(), owner=f"{uid}{n}", host="h", how="killed by SIGSEGV",
                suspecting=True, name="work",
            ))

    def sweeper(self, woken: list[bool]) -> Sweeper:
        return Sweeper(
            store=self.store, wire=self.wire, driver=Driver(), lease_s=LEASE_S,
            keep=Keep(86_400, 1000, 1000), judgement=poison.judge_host(),
            on_untold=lambda: woken.append(True),
        )

    def ids(self) -> list[str]:
        return [context.id for context, _ in self.told]


@pytest.fixture()
def child() -> Child:
    return Child()


def test_a_task_that_died_with_its_process_is_told_once_with_what_is_known_of_it(
    child: Child,
) -> None:
    child.submit("a", headers={"tenant": "x"})
    child.crash("a")
    assert child.mourner.run_once() == 1
    assert child.mourner.run_once() == 0
    [(context, error)] = child.told
    assert (context.id, context.name, context.attempt, context.max_retries) == (
        "default/a", "work", 1, 7
    )
    assert (context.args, context.kwargs, context.headers) == ([1], {"to": 2}, {"tenant": "x"})
    assert isinstance(error, TaskFailed)
    assert (error.state, error.type) == ("dead", message.CRASHED_TYPE)
    assert "killed by SIGSEGV" in error.message


def test_one_whose_hosts_vanished_is_told_by_the_child_whose_sweep_found_it(child: Child) -> None:
    woken: list[bool] = []
    sweeper = child.sweeper(woken)
    child.submit("a")
    for n in range(poison.CRASH_LIMIT + 1):
        child.claim(f"host{n}")
        assert woken == []
        # Every sweep that is due; else they take it for a time without Redis.
        for _ in range(LEASE_S):
            child.clock.forward(4)
            sweeper.recover()
    assert woken
    assert child.mourner.run_once() == 1
    assert child.ids() == ["default/a"]


def test_a_sweep_finds_what_a_master_noted_and_nobody_has_told_of(child: Child) -> None:
    child.submit("a")
    child.crash("a")
    woken: list[bool] = []
    child.sweeper(woken).recover()
    assert woken == [True]


def test_one_that_a_master_ends_because_it_hung_is_told_once_it_has_ended(child: Child) -> None:
    child.submit("a")
    lane, token = child.claim("n1")
    child.store.note_death(child.wire, b"a")
    assert child.mourner.run_once() == 0, "it has not ended"
    child.store.finish(lane, [Ending(b"a", token, "d", message.entry(
        message.DEAD, "n1", 4, 0, ["skedulr.errors.TaskTimeout", "it hung", ""]
    ))])
    assert child.mourner.run_once() == 0, "it comes again in a minute"
    child.clock.forward(61)
    assert child.mourner.run_once() == 1
    [(context, error)] = child.told
    assert context.attempt == 4 and "it hung" in str(error)


def test_one_that_lived_on_after_all_is_told_nowhere(child: Child) -> None:
    child.submit("a")
    lane, token = child.claim("n1")
    child.store.note_death(child.wire, b"a")
    child.store.finish(lane, [Ending(b"a", token, "s", message.entry(
        message.SUCCEEDED, "n1", 1, 0, None
    ))])
    child.mourner.run_once()
    assert child.told == [] and not child.wire.call("EXISTS", child.store.keys.deaths)


def test_one_that_a_doctor_buries_is_told(child: Child) -> None:
    child.submit("a")
    child.wire.call("HSET", child.store.keys.tasks, "a", b"rubbish")
    doctor = Doctor(child.wire, "skedulr", moment_s=0)
    doctor.mend(doctor.examine("default"))
    assert child.mourner.run_once() == 1
    assert child.ids() == ["default/a"]


def test_one_that_can_not_go_to_its_own_pool_is_told(child: Child) -> None:
    child.submit("a")
    lane, token = child.claim("n1")
    recorder = Recorder(store=child.store, lane=lane, on_gone=lambda: None)
    body = child.wire.call("HGET", child.store.keys.tasks, "a")
    ending = Ending(b"a", token, "d", message.entry(
        message.DEAD, "n1", 0, 0, ["DuplicateTask", "another task has the id", ""]
    ))
    recorder.relocate = lambda batch: [(one, ending) for one in batch]
    recorder.move(Relocation(b"a", token, "slow", message.envelope_of(body), "", False))
    recorder.start()
    assert recorder.flush(10)
    recorder.stop()
    assert child.mourner.run_once() == 1
    [(context, error)] = child.told
    assert context.id == "default/a" and "another task has the id" in str(error)


def test_one_that_was_resubmitted_meanwhile_is_told_all_the_same(child: Child) -> None:
    child.submit("a")
    child.crash("a")
    again = message.entry(message.RESUBMITTED, "", 0, 0, "")
    child.store.resubmit(child.wire, [("a", "", again)])
    assert child.mourner.run_once() == 1
    assert child.ids() == ["default/a"]


def test_what_a_child_took_and_died_over_is_told_by_another_one(child: Child) -> None:
    child.submit("a")
    child.crash("a")
    child.store.mourn(child.wire, [])
    assert child.mourner.run_once() == 0
    child.clock.forward(61)
    assert child.mourner.run_once() == 1


def test_a_hook_that_raises_hears_of_it_once_and_keeps_nobody_from_the_next(child: Child) -> None:
    @child.app.on("dead")
    def broken(context: Context, error: BaseException) -> None:
        raise ValueError(context.id)

    for uid in ("a", "b"):
        child.submit(uid)
        child.crash(uid)
    assert child.mourner.run_once() == 2
    assert child.mourner.run_once() == 0
    assert sorted(child.ids()) == ["default/a", "default/b"]


def test_where_an_app_has_no_such_hooks_nothing_is_kept_for_them() -> None:
    child = Child(hooks=False)
    child.submit("a")
    child.crash("a")
    child.mourner.run_once()
    assert not child.wire.call("EXISTS", child.store.keys.deaths)


def test_arguments_that_a_codec_sealed_are_those_that_it_opens() -> None:
    codec = SigningCodec([b"k" * 32])
    for opener, args in ((codec, [1]), (None, [])):
        child = Child(codec=opener)
        child.submit("a", codec)
        child.crash("a")
        child.mourner.run_once()
        assert child.told[0][0].args == args

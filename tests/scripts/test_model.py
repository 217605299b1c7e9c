"""All scripts at once against a plain Python model, in any order that hypothesis comes up with.

After every step everything Redis holds is what the model says. By hand, for longer:
``SKEDULR_MODEL_EXAMPLES=2000 python -m pytest tests/scripts/test_model.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from model import DEAD, DONE, LIVE, SCHEDULED, Entry, Model, ModelGone
from script_driver import LEASE, FakeRunner, RealRunner, Scripts, task
from servers import Server

from skedulr.wire import Gone

UIDS = [f"t{i}" for i in range(7)]
GAP = 10_000
FAR = 10_000_000

uids = st.sampled_from(UIDS)
uniques = st.one_of(
    st.just("-"),
    st.builds("{}:{}:{}:{}".format, st.sampled_from("dsw"), st.sampled_from("xrp"),
              st.just(FAR), st.sampled_from(["k1", "k2"])),
)
options = st.builds(
    task, uids, st.sampled_from([0, 0, -3, 9]),
    st.sampled_from(["-", "-", "+0", f"+{FAR}", "@1000"]), uniques,
    st.sampled_from([None, None, None, b"env-other"]),
)
batches = st.lists(options, min_size=1, max_size=4)
capacities = st.sampled_from([0, 0, 0, 3])
channels = st.sampled_from(["ch1", "ch2"])
limits = st.sampled_from([2, 2, 1])
delays = st.sampled_from([0, 0, FAR, 2 * FAR])

#: What may come next, by weight.
STEPS = [
    step for step, weight in {
        "submit": 8, "resubmit": 4, "cancel": 3, "purge": 1, "watch": 2, "unwatch": 1,
        "claim": 24, "repeat_a_claim": 3, "finish": 6, "retry": 3, "defer": 2,
        "repeat_the_last_call_of_the_finish_lane": 2, "renew": 3, "progress": 2, "release": 2,
        "an_owner_dies": 8, "leases_run_out": 4, "recover": 6, "the_grace_ends": 3,
        "tasks_come_due": 5, "promote": 2, "a_window_ends": 1, "trim": 2,
        "a_fetcher_takes_the_wake_token": 6, "pause_or_resume": 1,
    }.items() for _ in range(weight)
]


class Machine(RuleBasedStateMachine):
    """Owners o0, o1, ... of which a released one never comes back, and seven ids."""

    def __init__(self, make_runner: Callable[[], Any]) -> None:
        super().__init__()
        self.pool, self.model = Scripts(make_runner()), Model()
        self.owners: list[str] = []
        self.calls: dict[str, tuple[str, tuple[Any, ...]]] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.tokens: dict[str, list[tuple[str, str]]] = {}

    @initialize()
    def begin(self) -> None:
        for _ in range(2):
            self.new_owner()

    def new_owner(self) -> None:
        name = f"o{len(self.owners)}"
        self.owners.append(name)
        self.tokens[name] = []

    def number(self, owner: str, lane: str) -> int:
        self.numbers[owner, lane] = self.numbers.get((owner, lane), 0) + 1
        return self.numbers[owner, lane]

    def owner(self, data: st.DataObject, *, busy: bool = False) -> str:
        """Mostly one that lives, and, where asked for, that holds something."""
        running = {one.owner() for one in self.model.tasks.values()}
        chosen = [
            name for name in self.owners
            if not (name in self.model.owners and self.model.owners[name].gone)
            and (not busy or name in running)
        ]
        if not chosen or data.draw(st.integers(0, 9), label="anyone") == 0:
            chosen = self.owners
        return data.draw(st.sampled_from(chosen), label="owner")

    def pairs(self, data: st.DataObject, owner: str) -> list[tuple[str, str]]:
        """Some (uid, token) that this owner was ever given: mostly the newest token of a uid."""
        known = dict(self.tokens[owner])
        chosen = data.draw(
            st.lists(st.sampled_from(sorted(known)), unique=True, min_size=1, max_size=3)
            if known else st.just([]), label="uids",
        )
        stale = [pair for pair in self.tokens[owner] if pair[0] in chosen]
        if stale and data.draw(st.integers(0, 4), label="stale") == 0:
            known |= dict(reversed(stale))
        return [(uid, known[uid]) for uid in chosen]

    def compare_numbered(self, owner: str, ask: Callable[[], Any],
                         expect: Callable[[int], Any], compare: Callable[[Any, Any], None]) -> None:
        """A numbered call; of an owner that was released both sides refuse."""
        try:
            reply = ask()
        except Gone:
            with suppress(ModelGone):
                expect(0)
                raise AssertionError("the model does not know that the owner is gone") from None
            return
        compare(reply, expect(reply.now))

    # One rule with weights: hypothesis leaves out some rules of an example altogether, and without
    # submits and claims there is nothing to look at.
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """One script, chosen by weight, or something that happens to the server's state."""
        getattr(self, data.draw(st.sampled_from(STEPS), label="step"))(data)

    # -- producers --------------------------------------------------------------------------------

    def submit(self, data: st.DataObject) -> None:
        batch = data.draw(batches, label="batch")
        capacity = data.draw(capacities, label="capacity")
        reply = self.pool.submit(*batch, capacity=capacity, entry=b"replaced")
        assert reply.rest == self.model.submit(reply.now, batch, capacity, b"replaced")

    def resubmit(self, data: st.DataObject) -> None:
        batch = data.draw(batches, label="batch")
        chosen = [*{one.uid: (one.uid, one.options, b"again") for one in batch}.values()]
        capacity = data.draw(capacities, label="capacity")
        reply = self.pool.resubmit(*chosen, capacity=capacity)
        assert reply.rest == self.model.resubmit(reply.now, chosen, capacity)

    def cancel(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.model.tasks) or UIDS), label="uid")
        reply = self.pool.cancel(uid)
        assert reply.rest == [self.model.cancel(reply.now, uid, b"cancelled")]

    def purge(self, data: st.DataObject) -> None:
        which = data.draw(st.sampled_from(["unstarted", "ended"]), label="which")
        chosen = data.draw(st.lists(uids, unique=True, max_size=2), label="uids")
        assert self.pool.purge(which, *chosen).rest == [self.model.purge(which, chosen)]

    def watch(self, data: st.DataObject) -> None:
        uid, channel = data.draw(uids, label="uid"), data.draw(channels, label="channel")
        assert self.pool.watch(uid, channel) == self.model.watch(uid, channel)

    def unwatch(self, data: st.DataObject) -> None:
        uid, channel = data.draw(uids, label="uid"), data.draw(channels, label="channel")
        self.pool.unwatch(uid, channel)
        self.model.unwatch(uid, channel)

    # -- children ---------------------------------------------------------------------------------

    def claim(self, data: st.DataObject) -> None:
        if not self.model.state().keys() & {"ready", "suspects"}:
            self.submit(data)
        owner = self.owner(data)
        want = data.draw(st.sampled_from([1, 2, 3, 0]), label="want")
        starting = data.draw(st.sampled_from([1, 2, 3, 0]), label="starting")
        self.do_claim(owner, self.number(owner, "claim"), want, starting)

    def repeat_a_claim(self, data: st.DataObject) -> None:
        owner = self.owner(data)
        if (owner, "claim") in self.numbers:
            self.do_claim(owner, self.numbers[owner, "claim"], 2, 1)

    def do_claim(self, owner: str, number: int, want: int, starting: int) -> None:
        def compare(reply: Any, expected: Any) -> None:
            next_due, cancelled, tasks = expected
            assert [tuple(one) for one in reply.tasks] == tasks
            assert (reply.next_due, reply.cancelled) == (next_due, cancelled)
            self.tokens[owner] += [
                (uid, reply.token) for uid in reply.uids
                if (uid, reply.token) not in self.tokens[owner]
            ]

        self.compare_numbered(
            owner, lambda: self.pool.claim(owner, want, starting, LEASE, number),
            lambda now: self.model.claim(now, owner, number, want, starting, LEASE), compare,
        )

    def finish(self, data: st.DataObject) -> None:
        owner = self.owner(data, busy=True)
        pairs = self.pairs(data, owner)
        kinds = data.draw(st.lists(st.sampled_from("ssdce"), min_size=len(pairs),
                                   max_size=len(pairs)), label="kinds")
        ended = [(*pair, kind, b"end-" + kind.encode())
                 for pair, kind in zip(pairs, kinds, strict=True)]
        started = self.pairs(data, owner) if data.draw(st.booleans(), label="started") else []
        self.lane_call(owner, "finish", (ended, started))

    def retry(self, data: st.DataObject) -> None:
        owner, delay = self.owner(data, busy=True), data.draw(delays, label="delay")
        self.lane_call(owner, "retry", ([(*pair, delay) for pair in self.pairs(data, owner)],))

    def defer(self, data: st.DataObject) -> None:
        owner, delay = self.owner(data, busy=True), data.draw(delays, label="delay")
        self.lane_call(owner, "defer", ([(*pair, delay) for pair in self.pairs(data, owner)],))

    def repeat_the_last_call_of_the_finish_lane(self, data: st.DataObject) -> None:
        owner = self.owner(data)
        if owner in self.calls:
            name, args = self.calls[owner]
            self.do_lane_call(owner, name, args, self.numbers[owner, "finish"])

    def lane_call(self, owner: str, name: str, args: tuple[Any, ...]) -> None:
        self.calls[owner] = (name, args)
        self.do_lane_call(owner, name, args, self.number(owner, "finish"))

    def do_lane_call(self, owner: str, name: str, args: tuple[Any, ...], number: int) -> None:
        batch = args[0]
        if name == "finish":
            ask = lambda: self.pool.finish(  # noqa: E731
                *batch, owner=owner, started=args[1], number=number)
            expect = lambda now: self.model.finish(now, owner, number, *args)  # noqa: E731
        else:
            text = b"oops" if name == "retry" else None
            sent = [(*one, text) for one in batch] if text else batch
            ask = lambda: getattr(self.pool, name)(  # noqa: E731
                *sent, owner=owner, number=number)
            expect = lambda now: self.model.put_off(  # noqa: E731
                now, owner, number, batch, text)

        def compare(reply: Any, verdicts: str) -> None:
            assert reply.verdicts == verdicts

        self.compare_numbered(owner, ask, expect, compare)

    def renew(self, data: st.DataObject) -> None:
        owner = self.owner(data, busy=True)
        pairs = self.pairs(data, owner)
        reply = self.pool.renew(*pairs, owner=owner, lease=2 * LEASE)
        lost, cancelled = self.model.renew(reply.now, owner, pairs, 2 * LEASE)
        assert reply.rest == [lost, cancelled]

    def progress(self, data: st.DataObject) -> None:
        reports = [(*pair, b"50") for pair in self.pairs(data, self.owner(data, busy=True))]
        assert self.pool.progress(*reports).verdicts == self.model.progress(reports)

    def release(self, data: st.DataObject) -> None:
        owner = self.owner(data, busy=True)
        pairs = self.pairs(data, owner)
        assert self.pool.release(*pairs, owner=owner).rest == [
            self.model.release(owner, pairs), 0
        ]

    # -- deaths -----------------------------------------------------------------------------------

    def an_owner_dies(self, data: st.DataObject) -> None:
        owner = self.owner(data, busy=True)
        suspect_started = data.draw(st.booleans(), label="suspect_started")
        held = sorted({uid for uid, _ in self.tokens[owner]})
        culprit = data.draw(st.sampled_from(["", *held[:3]]), label="culprit")
        limit = data.draw(limits, label="limit")
        loss = data.draw(st.booleans(), label="loss")
        reply = self.pool.judge_owner(owner, culprit, limit, suspect_started, loss)
        expected = self.model.release_owner(
            reply.now, owner, culprit, limit, suspect_started, loss
        )
        self.compare_deaths(reply.rest, expected)
        if len(self.owners) < 9:
            self.new_owner()

    def leases_run_out(self, data: st.DataObject) -> None:
        running = sorted(one.uid for one in self.model.tasks.values() if one.state == "running")
        if running:
            for uid in data.draw(st.lists(st.sampled_from(running), unique=True), label="uids"):
                self.pool.let_leases_expire(uid)
                self.model.tasks[uid].expiry = int(
                    self.pool.call("ZSCORE", self.pool.keys.leases, uid))

    def recover(self, data: st.DataObject) -> None:
        """A sweep, the last of which was that long ago (or is in the future: a clock set back)."""
        since = data.draw(st.sampled_from([0, 0, 0, GAP - 5_000, GAP + 1, -5_000]), label="since")
        if since:
            self.set_meta("swept", self.pool.now() - since)
        limit = data.draw(limits, label="limit")
        reply = self.pool.judge_hosts(crashes=limit, gap=GAP)
        expected = self.model.recover(reply.now, LEASE, GAP, limit)
        untold, undelivered = reply.rest.pop(-2), reply.rest.pop()
        assert (untold, undelivered) == (bool(self.model.deaths), False)
        self.compare_deaths(reply.rest, expected)

    def the_grace_ends(self, _: st.DataObject) -> None:
        if "recover_after" in self.model.meta:
            self.set_meta("recover_after", 1)

    def set_meta(self, name: str, value: int) -> None:
        self.pool.call("HSET", self.pool.keys.meta, name, value)
        self.model.meta[name] = value

    def compare_deaths(self, rest: list[Any], expected: tuple[list[str], ...]) -> None:
        back, more, charged, dead = rest
        assert more == 0
        assert tuple(map(sorted, (back, charged, dead))) == tuple(map(sorted, expected))

    # -- time, and what sweeps --------------------------------------------------------------------

    def tasks_come_due(self, data: st.DataObject) -> None:
        delayed = sorted(one.uid for one in self.model.tasks.values() if one.state == SCHEDULED)
        for uid in delayed[:data.draw(st.integers(1, 3), label="how many")]:
            self.pool.sleep_until_due(uid, ago=data.draw(st.integers(1, 9), label="ago"))
            self.model.tasks[uid].score = int(
                self.pool.call("ZSCORE", self.pool.keys.delayed, uid))

    def promote(self, data: st.DataObject) -> None:
        limit = data.draw(st.sampled_from([1, 2, 500]), label="limit")
        reply = self.pool.promote(limit)
        assert reply.rest == self.model.promote(reply.now, limit)

    def trim(self, data: st.DataObject) -> None:
        """A sweep over records, one of which has grown old, and locks, a window of which ended."""
        ended = sorted(one.uid for one in self.model.tasks.values() if one.state in (DONE, DEAD))
        if ended:
            self.age(self.model.tasks[data.draw(st.sampled_from(ended), label="old")])
        if self.model.windows and data.draw(st.booleans(), label="a window ends"):
            self.end_window(data.draw(st.sampled_from(sorted(self.model.windows)), label="digest"))
        reply = self.pool.trim(age=3_600_000)
        assert reply.rest == [self.model.trim(reply.now, 3_600_000)]

    def age(self, one: Entry) -> None:
        one.score = self.pool.now() - 7_200_000
        self.pool.call("ZADD", getattr(self.pool.keys, one.state), one.score, one.uid)

    def a_window_ends(self, data: st.DataObject) -> None:
        if self.model.windows:
            self.end_window(data.draw(st.sampled_from(sorted(self.model.windows)), label="digest"))

    def end_window(self, digest: str) -> None:
        end = self.pool.now() - 1
        self.pool.call("ZADD", self.pool.keys.windows, end, digest)
        self.model.windows[digest] = end
        holder, expiry = self.model.unique.get(digest, ("", 0))
        if expiry:
            self.pool.call("HSET", self.pool.keys.unique, digest, f"{holder} {end}")
            self.model.unique[digest] = (holder, end)

    def a_fetcher_takes_the_wake_token(self, _: st.DataObject) -> None:
        assert self.pool.woken() == self.model.woken
        self.model.woken = False

    def pause_or_resume(self, _: st.DataObject) -> None:
        if "paused" in self.model.meta:
            self.pool.call("HDEL", self.pool.keys.meta, "paused")
            del self.model.meta["paused"]
        else:
            self.pool.pause()
            self.model.meta["paused"] = 1

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def redis_holds_what_the_model_says(self) -> None:
        assert self.pool.state() == self.model.state()

    @invariant()
    def every_task_is_in_exactly_one_place(self) -> None:
        state = self.pool.state()
        places = ("ready", "delayed", "suspects", "leases", "done", "dead")
        for one in self.model.tasks.values():
            assert [name for name in places if one.uid in state.get(name, {})] == [
                "leases" if one.state == "running" else one.state
            ]
            assert (one.uid in state.get("tasks", {})) == (one.state in LIVE)


def run(make_runner: Callable[[], Any], examples: int) -> None:
    run_state_machine_as_test(
        lambda: Machine(make_runner),
        settings=settings(
            max_examples=int(os.environ.get("SKEDULR_MODEL_EXAMPLES", examples)),
            stateful_step_count=40, deadline=None, print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


# Long, because hypothesis takes up to five minutes to shrink what it found.
@pytest.mark.timeout(900)
def test_all_scripts_do_what_the_model_says_on_fakeredis() -> None:
    run(FakeRunner, 25)


@pytest.mark.server
@pytest.mark.timeout(900)
def test_all_scripts_do_what_the_model_says_on_a_real_server(server: Server) -> None:
    wire = RealRunner(server)

    def emptied() -> RealRunner:
        server.client.flushall()
        return wire

    run(emptied, 25)
    wire.close()

"""Limits under all scripts, in any order that hypothesis comes up with: nobody runs above a limit,
nothing that might run is stuck below one, no slot and no parked task is leaked, and order holds.

By hand, for longer: ``SKEDULR_MODEL_EXAMPLES=2000 python -m pytest <this file>``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
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
from script_driver import FakeRunner, RealRunner, Scripts, limited, task
from servers import Server

from skedulr.limiting import Limit

UIDS = [f"t{i}" for i in range(12)]
OWNERS = ["n1", "n2", "n3"]
FAR = 10_000_000
#: Sets of limits, as tasks of three kinds and keys of two customers have them.
A1, A2 = (Limit(concurrency=2, key=key, name="a") for key in ("c1", "c2"))
B = Limit(concurrency=3, name="b")
FAIR1, FAIR2 = (Limit(fair=True, key=key) for key in ("c1", "c2"))
#: Tokens that come within a test or never.
FAST, SLOW = Limit(rate=1000, name="f", burst=2), Limit(rate=1, per=1e6, name="s", burst=2)
SETS = [
    (), (A1,), (A2,), (B,), (A1, B), (A2, B), (A1, FAIR1), (A2, FAIR2), (SLOW,), (SLOW, A1),
    (FAST,),
]
LIMITS = {"a": 2, "b": 3}


class Limited(RuleBasedStateMachine):
    """The scripts of a pool, and what was submitted."""

    runner: Any

    def __init__(self) -> None:
        super().__init__()
        self.runner.client.flushall()
        self.pool = Scripts(self.runner)
        self.sets: dict[str, tuple[Limit, ...]] = {}
        self.most = dict(LIMITS)
        self.tokens_spent = 0
        self.claimed: dict[str, tuple[str, str]] = {}
        self.count = 0
        self.incarnations = dict.fromkeys(OWNERS, 0)

    def owner(self, name: str) -> str:
        return f"{name}.{self.incarnations[name]}"

    # -- steps

    @initialize()
    def begin(self) -> None:
        self.pool.sweeps_have_run()

    @rule(n=st.integers(1, 6), which=st.sampled_from(SETS), priority=st.sampled_from([0, 0, 0, 5]),
          when=st.sampled_from(["-", "-", "-", f"+{FAR}"]))
    def submit(self, n: int, which: tuple[Limit, ...], priority: int, when: str) -> None:
        new = []
        for _ in range(n):
            self.count += 1
            uid = f"t{self.count}"
            self.sets[uid] = which
            new.append(task(uid, priority, when, limits=limited(*which)))
        self.pool.submit(*new)

    @rule(name=st.sampled_from(OWNERS), want=st.integers(0, 5), ahead=st.integers(0, 3))
    def claim(self, name: str, want: int, ahead: int) -> None:
        owner = self.owner(name)
        parked, suspects = self._parked_places(), self._suspects()
        taken = self.pool.claim(owner, want=want + ahead, starting=want)
        for one in taken.tasks:
            self.claimed[one.uid] = (owner, taken.token)
            self.tokens_spent += SLOW in self.sets[one.uid]
            if one.uid in suspects:
                continue  # they go first, in groups of their own, whatever waits behind a limit
            theirs = [at for uid, at in parked.items() if self.sets[uid] == self.sets[one.uid]]
            assert not [at for at in theirs if at < one.place and self._still_parked(at)]
        running = self._running()
        for key, count in running.items():
            if any(key in _keys(self.sets[one.uid]) for one in taken.tasks):
                assert count <= self.most[key[0]], (key, count)
        assert self.tokens_spent <= 2, "a token comes once a day"

    @rule(pick=st.integers(0, 99), kind=st.sampled_from("sdc"))
    def finish(self, pick: int, kind: str) -> None:
        uid = self._pick(pick)
        if uid is not None:
            owner, token = self.claimed.pop(uid)
            self.pool.finish((uid, token, kind, b"end"), owner=owner)

    @rule(pick=st.integers(0, 99), delay=st.sampled_from([0, FAR]), how=st.sampled_from("rd"))
    def retry(self, pick: int, delay: int, how: str) -> None:
        uid = self._pick(pick)
        if uid is not None:
            owner, token = self.claimed.pop(uid)
            if how == "r":
                self.pool.retry((uid, token, delay, b"failed"), owner=owner)
            else:
                self.pool.defer((uid, token, delay), owner=owner)

    @rule(pick=st.integers(0, 99))
    def give_back(self, pick: int) -> None:
        uid = self._pick(pick)
        if uid is not None:
            owner, token = self.claimed.pop(uid)
            self.pool.release((uid, token), owner=owner)

    @rule(name=st.sampled_from(OWNERS), suspecting=st.booleans())
    def an_owner_dies(self, name: str, suspecting: bool) -> None:
        owner = self.owner(name)
        theirs = [uid for uid, (holder, _) in self.claimed.items() if holder == owner]
        culprit = theirs[0] if theirs and not suspecting else ""
        self.pool.judge_owner(owner, culprit, limit=2, suspect_started=suspecting)
        self.incarnations[name] += 1
        for uid in theirs:
            del self.claimed[uid]

    @rule()
    def leases_run_out(self) -> None:
        self.pool.let_leases_expire()
        self.pool.sweeps_have_run()
        self.pool.judge_hosts(crashes=2)
        self.claimed.clear()

    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        live = [uid for uid in self.sets if uid not in self.claimed]
        if live:
            self.pool.cancel(live[pick % len(live)])

    @rule(pick=st.integers(0, 99), count=st.integers(1, 3))
    def purge(self, pick: int, count: int) -> None:
        live = [uid for uid in self.sets if uid not in self.claimed]
        chosen = live[pick % len(live):][:count] if live else []
        self.pool.purge("unstarted", *chosen)

    @rule(pick=st.integers(0, 99))
    def resubmit(self, pick: int) -> None:
        ended = [uid.decode() for uid in self.pool.call("HKEYS", self.pool.keys.records)]
        if ended:
            uid = sorted(ended)[pick % len(ended)]
            which = limited(*self.sets[uid])
            self.pool.resubmit((uid, f"0 - - {which}".strip() if which else "", b"again"))

    @rule()
    def delayed_tasks_come_due(self) -> None:
        self.pool.sleep_until_due(*_texts(self.pool.call("ZRANGE", self.pool.keys.delayed, 0, -1)))
        self.pool.promote()

    @rule(name=st.sampled_from("ab"), most=st.sampled_from([1, 2, 4, 50, None]))
    def set_limit(self, name: str, most: int | None) -> None:
        known = self.pool.set_limit(
            None if most is None else Limit(concurrency=most), name
        ).rest[0]
        if known:
            self.most[name] = LIMITS[name] if most is None else most

    # -- what holds at any time

    @invariant()
    def everything_is_in_one_place(self) -> None:
        state = self.pool.state()
        places = Counter(
            uid for name in ("ready", "delayed", "suspects", "parked", "claims")
            for uid in state.get(name, {})
        )
        assert set(places) == set(state.get("tasks", {}))
        assert not places or max(places.values()) == 1
        self._queues_are_whole(state)
        self._slots_are_those_of_the_claims(state)
        self._nothing_is_stuck(state)

    def _queues_are_whole(self, state: dict[str, Any]) -> None:
        members = state.get("queues", {})
        queued = {
            parts[2]: (parts[0], int(parts[1]))
            for one in members if not one.startswith("!") and (parts := one.split(" "))
        }
        assert {uid: at for uid, (_, at) in queued.items()} == state.get("parked", {})
        firsts: dict[str, int] = {}
        for name, at in queued.values():
            firsts[name] = min(at, firsts.get(name, at))
        waits = {one.split(" ")[2]: one for one in members if one.startswith("!")}
        assert {name: int(one.split(" ")[1]) for name, one in waits.items()} == firsts
        known = {key[1:]: one for key, one in state.get("slots", {}).items() if key[0] == "@"}
        assert known == waits

    def _slots_are_those_of_the_claims(self, state: dict[str, Any]) -> None:
        slots = state.get("slots", {})
        held = {uid: text.split(" ") for uid, text in slots.items() if uid[0] not in "#@"}
        assert set(held) == {
            uid for uid in state.get("claims", {})
            if any(one.concurrency for one in self.sets[uid])
        }
        counts = Counter(key for keys in held.values() for key in keys)
        assert {key[1:]: int(n) for key, n in slots.items() if key[0] == "#"} == counts

    def _nothing_is_stuck(self, state: dict[str, Any]) -> None:
        """Where sets wait for a key that has room, one of its tasks is on its way."""
        in_flight = Counter(
            key for name in ("ready", "suspects") for uid in state.get(name, {})
            for key in _keys(self.sets[uid])
        )
        running = Counter(
            key for uid in state.get("claims", {}) for key in _keys(self.sets[uid])
        )
        ids = {one.split(" ")[0][1:] for one in state.get("queues", {}) if one[0] == "!"}
        names = {
            part.split("|")[0]: key
            for which in SETS for one in which if one.kind
            for part, key in ((limited(one).split(" ")[0].split("/")[1], (one.name, one.key)),)
        }
        for id in ids:
            key = names[id]
            if key[0] in self.most:
                free = self.most[key[0]] - running[key]
                assert free <= in_flight[key] or in_flight[key] > 0, (key, free)
            elif not in_flight[key]:
                # The next token is looked for.
                assert id in state.get("releases", {}), key
        releases = state.get("releases", {})
        assert int(state.get("meta", {}).get("release_at", 0)) == min(releases.values(), default=0)

    def teardown(self) -> None:
        """Run out, all of it ends and nothing is left behind."""
        self.pool.set_limit(Limit(concurrency=50), "a")
        self.pool.set_limit(Limit(concurrency=50), "b")
        self.pool.set_limit(Limit(rate=1e6, burst=1000), "s")
        self.delayed_tasks_come_due()
        for _ in range(200):
            for uid in list(self.claimed):
                owner, token = self.claimed.pop(uid)
                self.pool.finish((uid, token, "s", b"end"), owner=owner)
            for name in OWNERS:
                taken = self.pool.claim(self.owner(name), want=50)
                self.claimed.update({one: (self.owner(name), taken.token) for one in taken.uids})
            if not self.pool.call("EXISTS", self.pool.keys.tasks):
                break
        state = self.pool.state()
        assert "tasks" not in state, state
        left = {"parked", "queues", "slots", "ready", "suspects", "info"} & set(state)
        assert not left, {name: state[name] for name in left}

    # -- looking

    def _pick(self, pick: int) -> str | None:
        live = sorted(self.claimed)
        return live[pick % len(live)] if live else None

    def _running(self) -> Counter[tuple[str | None, str | None]]:
        claims = _texts(self.pool.call("HKEYS", self.pool.keys.claims))
        return Counter(key for uid in claims for key in _keys(self.sets[uid])
                       if key[0] in self.most)

    def _parked_places(self) -> dict[str, int]:
        pairs = self.runner.client.zrange(self.pool.keys.parked, 0, -1, withscores=True)
        return {uid.decode(): int(at) for uid, at in pairs}

    def _suspects(self) -> set[str]:
        return set(_texts(self.pool.call("ZRANGE", self.pool.keys.suspects, 0, -1)))

    def _still_parked(self, at: int) -> bool:
        return at in self._parked_places().values()


def _keys(which: tuple[Limit, ...]) -> list[tuple[str | None, str | None]]:
    return [(one.name, one.key) for one in which if one.kind]


def _texts(raw: list[bytes]) -> list[str]:
    return [one.decode() for one in raw]


def _run(runner: Any, examples: int, steps: int) -> None:
    machine = type("Machine", (Limited,), {"runner": runner})
    run_state_machine_as_test(machine, settings=settings(
        max_examples=int(os.environ.get("SKEDULR_MODEL_EXAMPLES", examples)),
        stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck),
        print_blob=True,
    ))


def test_limits_hold_and_leak_nothing_in_any_order(_running: Callable[[str], Server]) -> None:
    from servers import selected

    server = _running(selected()[0])
    server.flush()
    runner = RealRunner(server)
    try:
        _run(runner, 80, 30)
    finally:
        runner.close()


@pytest.mark.parametrize("steps", [20])
def test_the_same_on_fakeredis(steps: int) -> None:
    _run(FakeRunner(), 5, steps)

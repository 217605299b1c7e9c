"""The conformance suite: what ``skedulr.storage`` promises, as tests that every storage passes.

    import pytest
    from skedulr.testing.conformance import Bench, StorageContract

    class TestMine(StorageContract):
        @pytest.fixture
        def bench(self):
            return Bench(storage=MyStorage(PoolKeys("test", "default")), pass_ms=clock.forward)

A fresh, empty storage for each test. ``pass_ms(ms)`` moves the storage's own clock on, or waits.
What a flag says the storage can not do is not asked for. Needs pytest, and nothing of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from .. import message
from ..storage import (
    ALREADY,
    BATCH,
    CANCEL_MEANWHILE,
    DUPLICATE,
    END_CANCELLED,
    END_DEAD,
    END_SUCCEEDED,
    FULL,
    KEPT,
    LOST,
    PRIORITY,
    STORED,
    TAKEN,
    UNKNOWN,
    Claims,
    Deferral,
    Ending,
    Failure,
    Judgement,
    Lane,
    Storage,
    Submission,
)
from ..wire import Gone, Runner

#: How long claims last here, ms: real servers are waited for, on machines that have other things to
#: do as well.
LEASE_MS = 150
#: No gap between two sweeps is so long, ms.
NO_GAP_MS = 10**9
CHANNEL = "conformance"

DONE = message.entry(message.SUCCEEDED, "w", 1, 0, 42)
DEAD = message.entry(message.DEAD, "w", 1, 0, ["Error", "no", ""])
FAILED = message.entry(message.FAILED, "w", 1, 0, ["Error", "no", "", 1.0])
CANCELLED = message.entry(message.CANCELLED, "", 0, 0, "no")
BACK = message.entry(message.FAILED, "", 0, 0, ["Crashed", "no", ""])
RESUBMITTED = message.entry(message.RESUBMITTED, "", 0, 0)


#: Of a storage that is not on Redis.
NO_WIRE = cast(Runner, None)


@dataclass
class Bench:
    """A storage with everything that tests need around it. ``wire`` is what its methods take."""

    storage: Storage
    pass_ms: Callable[[int], object]
    wire: Runner = NO_WIRE
    _lanes: dict[tuple[str, str], Lane] = field(default_factory=dict)

    def lane(self, owner: str, kind: str = "finish") -> Lane:
        """An owner's lane for claims, or for finishes."""
        known = self._lanes.get((owner, kind))
        if known is None:
            known = self._lanes[owner, kind] = Lane(self.wire, owner)
        return known

    def submit(self, *uids: str, options: str = "", capacity: int = 0) -> str:
        """The verdicts."""
        batch = [Submission(uid, envelope(uid), options) for uid in uids]
        return self.storage.submit(self.wire, batch, capacity, CANCELLED)[0]

    def claim(
        self, want: int = BATCH, owner: str = "o1", starting: int | None = None,
        lease_ms: int = 10 * LEASE_MS, sleep_s: float = 0.0,
    ) -> Held:
        """Claim, all of them started at once."""
        claims = self.storage.claim(
            self.lane(owner, "claim"), want, want if starting is None else starting, lease_ms, 0,
            sleep_s,
        )
        return Held.of(claims)

    def finish(
        self, uids: Iterable[str], token: bytes, kind: str = END_SUCCEEDED, entry: bytes = DONE,
        owner: str = "o1",
    ) -> str:
        """End runs; the verdicts."""
        return self.storage.finish(
            self.lane(owner), [Ending(uid.encode(), token, kind, entry) for uid in uids]
        )

    def cancel(self, uid: str) -> str:
        """What it was."""
        return self.storage.cancel(self.wire, uid, CANCELLED, CHANNEL)

    def recover(self, limit: int = BATCH) -> list[str]:
        """One sweep; the uids given back."""
        judgement = Judgement(b"", 3, BACK, DEAD)
        found = self.storage.recover(self.wire, LEASE_MS, NO_GAP_MS, judgement, limit)
        return sorted(uid.decode() for uid in found.uids)

    def ready_to_recover(self) -> None:
        """The first sweep ever gives owners one lease to renew."""
        self.recover()
        self.pass_ms(LEASE_MS + 10)

    def record(self, uid: str) -> message.Journal | None:
        """The journal of a task that has ended, or None."""
        found = self.storage.watch(self.wire, uid, CHANNEL)
        return message.read_journal(found) if isinstance(found, bytes) else None


@dataclass
class Held:
    """What a claim brought."""

    uids: list[str]
    token: bytes
    claims: Claims
    headers: dict[str, list[str]]

    @classmethod
    def of(cls, claims: Claims) -> Held:
        """Read it."""
        uids = [uid.decode() for uid in claims.rows[::4]]
        headers = [header.decode().split() for header in claims.rows[3::4]]
        return cls(uids, claims.token, claims, dict(zip(uids, headers, strict=True)))

    def attempts(self, uid: str) -> int:
        """How many were counted before this one."""
        header = self.headers[uid]
        return int(header[1]) if header else 0

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """(uid, token) of each."""
        return [(uid.encode(), self.token) for uid in self.uids]


def envelope(uid: str) -> bytes:
    """One call, told from others by its argument."""
    return message.envelope(message.name_part("conform"), (uid,), {}, None, 1000)


def _options(priority: int = 0, when: str = "-", unique: str = "-") -> str:
    return f"{priority} {when} {unique}"


class StorageContract:
    """Inherit, and give a fixture ``bench``."""

    # Submitting

    def test_what_is_submitted_is_claimed_in_its_order(self, bench: Bench) -> None:
        assert bench.submit("a", "b") + bench.submit("c") == STORED * 3
        assert bench.claim().uids == ["a", "b", "c"]

    def test_a_claim_gives_the_journal_of_each_task(self, bench: Bench) -> None:
        bench.submit("a")
        held = bench.claim()
        journal = message.read_journal(held.claims.rows[2])
        assert (journal.name, journal.args, journal.entries) == ("conform", ["a"], [])
        assert 0 <= held.claims.now_ms - journal.submitted_ms < 60_000

    def test_a_submit_that_is_repeated_stores_nothing_more(self, bench: Bench) -> None:
        assert bench.submit("a", "b") == STORED * 2
        assert bench.submit("b", "a", "c") == ALREADY * 2 + STORED
        assert bench.claim().uids == ["a", "b", "c"]
        assert bench.submit("a") == ALREADY

    def test_a_repeat_finds_a_task_that_has_ended_meanwhile(self, bench: Bench) -> None:
        bench.submit("a")
        held = bench.claim()
        bench.finish(["a"], held.token)
        assert bench.submit("a") == ALREADY
        assert bench.claim().uids == []

    def test_an_id_is_used_once(self, bench: Bench) -> None:
        bench.submit("a")
        other = [Submission("a", envelope("other"), "")]
        assert bench.storage.submit(bench.wire, other)[0] == DUPLICATE

    def test_a_full_pool_takes_no_more(self, bench: Bench) -> None:
        assert bench.submit("a", "b", "c", capacity=2) == STORED * 2 + FULL
        bench.claim(1)
        assert bench.submit("c", "d", capacity=2) == STORED + FULL

    def test_a_unique_key_is_held_until_its_task_is_done(self, bench: Bench) -> None:
        unique = _options(unique="d:x:0:key")
        assert bench.submit("a", options=unique) == STORED
        verdicts, holders = bench.storage.submit(
            bench.wire, [Submission("b", envelope("b"), unique)]
        )
        assert (verdicts, holders) == (TAKEN, ["a"])
        held = bench.claim()
        assert bench.submit("c", options=unique) == TAKEN
        bench.finish(["a"], held.token)
        assert bench.submit("d", options=unique) == STORED
        assert bench.claim().uids == ["d"]

    def test_a_task_takes_the_place_of_one_that_has_not_started(self, bench: Bench) -> None:
        unique = _options(unique="d:p:0:key")
        bench.submit("a", options=unique)
        assert bench.submit("b", options=unique) == STORED
        journal = bench.record("a")
        assert journal is not None and journal.end_state == "cancelled"
        assert bench.claim().uids == ["b"]
        assert bench.submit("c", options=unique) == TAKEN

    def test_a_delayed_task_is_not_ready_before_its_time(self, bench: Bench) -> None:
        bench.submit("a", options=_options(when="+80"))
        held = bench.claim()
        assert held.uids == []
        assert held.claims.next_due_ms is not None
        assert 0 < held.claims.next_due_ms - held.claims.now_ms <= 80
        bench.pass_ms(90)
        assert bench.claim().uids == ["a"]

    def test_what_is_due_is_ready_behind_what_was_ready_before(self, bench: Bench) -> None:
        bench.submit("late", options=_options(when="+30"))
        bench.submit("a")
        bench.pass_ms(40)
        assert bench.storage.promote(bench.wire)[1:] == (1, None)
        bench.submit("b")
        assert bench.claim().uids == ["a", "late", "b"]

    def test_the_highest_priority_comes_first_or_none_is_taken(self, bench: Bench) -> None:
        bench.submit("a")
        verdict = bench.submit("high", options=_options(priority=5))
        if bench.storage.flags.priority:
            bench.submit("low", options=_options(priority=-5))
            bench.submit("b")
            assert verdict == STORED
            assert bench.claim().uids == ["high", "a", "b", "low"]
        else:
            assert verdict == PRIORITY
            assert bench.claim().uids == ["a"]
            assert bench.cancel("high") == "unknown"

    # Claiming

    def test_nobody_gets_what_another_has_claimed(self, bench: Bench) -> None:
        bench.submit(*(f"t{i}" for i in range(10)))
        first, second = bench.claim(4, "o1"), bench.claim(10, "o2")
        assert first.uids == [f"t{i}" for i in range(4)]
        assert second.uids == [f"t{i}" for i in range(4, 10)]
        assert bench.claim(10, "o1").uids == []

    def test_a_claim_that_is_repeated_gives_the_same_tasks_again(self, bench: Bench) -> None:
        bench.submit("a", "b", "c")
        first = bench.claim(2)
        bench.lane("o1", "claim").number -= 1
        again = bench.claim(2)
        assert (again.uids, again.token) == (first.uids, first.token)
        assert bench.claim(2).uids == ["c"]

    def test_each_claim_has_a_token_of_its_own(self, bench: Bench) -> None:
        bench.submit("a", "b")
        tokens = {bench.claim(1, "o1").token, bench.claim(1, "o2").token}
        assert len(tokens) == 2
        assert all(b":" in token for token in tokens)

    def test_a_claim_for_none_takes_none(self, bench: Bench) -> None:
        bench.submit("a")
        assert bench.claim(0).uids == []
        assert bench.claim().uids == ["a"]

    def test_a_whole_batch_is_claimed_and_finished_at_once(self, bench: Bench) -> None:
        uids = [f"t{i:03}" for i in range(BATCH)]
        assert bench.submit(*uids) == STORED * BATCH
        held = bench.claim()
        assert held.uids == uids
        assert bench.finish(uids, held.token) == KEPT * BATCH

    def test_nothing_is_claimed_while_the_pool_is_paused(self, bench: Bench) -> None:
        bench.submit("a")
        assert bench.storage.pause(bench.wire, True)
        assert not bench.storage.pause(bench.wire, True)
        assert bench.claim().uids == []
        assert bench.storage.pause(bench.wire, False)
        assert bench.claim().uids == ["a"]

    def test_a_claim_that_sleeps_takes_what_was_submitted(self, bench: Bench) -> None:
        bench.submit("a")
        assert bench.claim(sleep_s=5.0).uids == ["a"]
        assert bench.claim(sleep_s=0.05).uids == []

    def test_a_claim_tells_that_there_is_more(self, bench: Bench) -> None:
        bench.submit("a", "b")
        claims = bench.claim(1).claims
        assert claims.next_due_ms is not None
        assert claims.next_due_ms <= claims.now_ms
        assert bench.claim(1).claims.next_due_ms is None

    def test_a_claim_of_nothing_ends_the_lane_for_one_that_comes_late(self, bench: Bench) -> None:
        late = Lane(bench.wire, "o1")
        late.number = bench.lane("o1", "claim").number
        assert bench.claim(0).uids == []
        bench.submit("a")
        assert bench.storage.claim(late, 1, 1, 10 * LEASE_MS).rows == []
        assert bench.claim().uids == ["a"]

    # Ending

    def test_a_run_that_ended_is_recorded_once(self, bench: Bench) -> None:
        bench.submit("a")
        held = bench.claim()
        assert bench.finish(["a"], held.token) == KEPT
        assert bench.finish(["a"], held.token) == LOST
        journal = bench.record("a")
        assert journal is not None
        assert (journal.end_state, journal.entries[-1].value) == ("succeeded", 42)
        assert bench.claim().uids == []

    def test_a_finish_that_is_repeated_gets_the_same_answer(self, bench: Bench) -> None:
        bench.submit("a", "b")
        held = bench.claim()
        assert bench.finish(["a"], held.token) == KEPT
        bench.lane("o1").number -= 1
        assert bench.finish(["a"], held.token) == KEPT
        assert bench.finish(["b"], held.token, END_DEAD, DEAD) == KEPT
        journal = bench.record("b")
        assert journal is not None and journal.end_state == "dead"

    def test_a_token_that_is_not_the_claims_changes_nothing(self, bench: Bench) -> None:
        bench.submit("a")
        held = bench.claim()
        assert bench.finish(["a"], held.token + b"0") == LOST
        assert bench.finish(["b"], held.token) == LOST
        lane = bench.lane("o1")
        failure = Failure(b"a", held.token + b"0", 0, FAILED)
        assert bench.storage.retry(lane, [failure]) == LOST
        assert bench.storage.progress(bench.wire, [(b"a", held.token + b"0", b"x")]) == LOST
        assert bench.storage.release(bench.wire, "o1", [(b"a", held.token + b"0")]) == []
        assert bench.storage.progress(bench.wire, [(b"a", held.token, b"x")]) == KEPT
        assert bench.finish(["a"], held.token) == KEPT

    def test_a_failed_attempt_is_counted_and_comes_again_when_it_is_due(
        self, bench: Bench
    ) -> None:
        bench.submit("a")
        held = bench.claim()
        failure = Failure(b"a", held.token, LEASE_MS, FAILED)
        assert bench.storage.retry(bench.lane("o1"), [failure]) == KEPT
        assert bench.finish(["a"], held.token) == LOST
        assert bench.claim().uids == []
        bench.pass_ms(LEASE_MS + 10)
        again = bench.claim()
        assert (again.uids, again.attempts("a")) == (["a"], 1)
        journal = message.read_journal(again.claims.rows[2])
        assert [one.kind for one in journal.entries] == [message.FAILED]

    def test_a_task_that_is_put_off_counts_no_attempt(self, bench: Bench) -> None:
        bench.submit("a")
        held = bench.claim()
        deferral = Deferral(b"a", held.token, LEASE_MS)
        assert bench.storage.defer(bench.lane("o1"), [deferral]) == KEPT
        assert bench.claim().uids == []
        bench.pass_ms(LEASE_MS + 10)
        again = bench.claim()
        assert (again.uids, again.attempts("a")) == (["a"], 0)

    def test_a_task_that_went_to_another_pool_ends_here(self, bench: Bench) -> None:
        bench.submit("a")
        held = bench.claim()
        entry = message.moved("w", "other/a")
        batch = [(b"a", held.token, entry)]
        assert bench.storage.moved(bench.lane("o1"), batch) == KEPT
        assert bench.finish(["a"], held.token) == LOST
        assert bench.claim().uids == []

    # Keeping and giving back

    def test_what_is_renewed_is_not_recovered(self, bench: Bench) -> None:
        bench.ready_to_recover()
        bench.submit("a", "b")
        held = bench.claim(lease_ms=LEASE_MS)
        for _ in range(4):
            bench.pass_ms(LEASE_MS // 3)
            _, lost, _ = bench.storage.renew(bench.wire, "o1", held.pairs(), LEASE_MS)
            assert lost == []
        assert bench.recover() == []
        assert bench.finish(["a", "b"], held.token) == KEPT * 2

    def test_what_nobody_renews_comes_back_uncounted(self, bench: Bench) -> None:
        bench.ready_to_recover()
        bench.submit("a", "b")
        held = bench.claim(lease_ms=LEASE_MS, starting=0)
        bench.pass_ms(LEASE_MS + 10)
        assert bench.recover() == ["a", "b"]
        assert bench.recover() == []
        assert bench.finish(["a"], held.token) == LOST
        _, lost, _ = bench.storage.renew(bench.wire, "o1", held.pairs(), LEASE_MS)
        assert sorted(lost) == [b"a", b"b"]
        again = bench.claim(owner="o2")
        assert sorted(again.uids) == ["a", "b"]
        assert again.attempts("a") == 0

    def test_a_sweep_takes_no_more_than_it_is_to(self, bench: Bench) -> None:
        bench.ready_to_recover()
        bench.submit("a", "b", "c")
        bench.claim(lease_ms=LEASE_MS, starting=0)
        bench.pass_ms(LEASE_MS + 10)
        found: list[str] = []
        for _ in range(5):
            some = bench.recover(limit=2)
            assert len(some) <= 2
            found += some
        assert sorted(found) == ["a", "b", "c"]

    def test_a_claim_that_is_over_and_not_recovered_is_renewed_too(self, bench: Bench) -> None:
        bench.ready_to_recover()
        bench.submit("a")
        held = bench.claim(lease_ms=LEASE_MS)
        bench.pass_ms(LEASE_MS + 10)
        assert bench.storage.renew(bench.wire, "o1", held.pairs(), LEASE_MS)[1] == []
        assert bench.recover() == []
        assert bench.finish(["a"], held.token) == KEPT

    def test_after_a_gap_owners_get_time_to_renew(self, bench: Bench) -> None:
        bench.ready_to_recover()
        bench.submit("a")
        bench.claim(lease_ms=LEASE_MS)
        bench.pass_ms(3 * LEASE_MS)
        judgement = Judgement(b"", 3, BACK, DEAD)
        gap_ms = LEASE_MS
        found = bench.storage.recover(bench.wire, LEASE_MS, gap_ms, judgement)
        assert found.uids == []
        bench.pass_ms(LEASE_MS + 10)
        assert bench.recover() == ["a"]

    def test_what_is_released_is_ready_at_once(self, bench: Bench) -> None:
        bench.submit("a", "b", "c")
        held = bench.claim(2)
        assert bench.storage.release(bench.wire, "o1", held.pairs()[:1]) == [b"a"]
        assert bench.finish(["a"], held.token) == LOST
        assert bench.finish(["b"], held.token) == KEPT
        expected = ["a", "c"] if bench.storage.flags.keeps_place else ["c", "a"]
        again = bench.claim(owner="o2")
        assert (again.uids, again.attempts("a")) == (expected, 0)

    def test_a_dead_owners_claims_come_back_and_it_is_gone(self, bench: Bench) -> None:
        bench.submit("a", "b", "c")
        held = bench.claim(2)
        assert sorted(bench.storage.held_by(bench.wire, "o1")) == sorted(held.pairs())
        found = bench.storage.release_owner(bench.wire, "o1")
        assert (sorted(found.uids), found.more) == ([b"a", b"b"], False)
        assert bench.storage.held_by(bench.wire, "o1") == []
        try:
            bench.claim()
        except Gone:
            pass
        else:
            raise AssertionError("a released owner claimed")
        assert sorted(bench.claim(owner="o2").uids) == ["a", "b", "c"]

    def test_the_task_that_had_the_cpu_is_charged_and_dies_at_the_limit(
        self, bench: Bench
    ) -> None:
        bench.submit("bad", "good")
        for turn in range(3):
            owner = f"o{turn}"
            assert sorted(bench.claim(owner=owner).uids) == ["bad", "good"]
            judgement = Judgement(b"bad", 3, BACK, DEAD)
            found = bench.storage.release_owner(bench.wire, owner, judgement)
            if turn < 2:
                assert (sorted(found.uids), found.charged) == ([b"bad", b"good"], [b"bad"])
            else:
                assert (found.uids, found.dead) == ([b"good"], [b"bad"])
        journal = bench.record("bad")
        assert journal is not None and journal.end_state == "dead"
        assert bench.claim(owner="o9").uids == ["good"]
        # No process was there to tell of it: it is kept for whoever does.
        score, [(uid, record, _)] = bench.storage.mourn(bench.wire, [])
        assert uid == b"bad" and message.read_journal(record).end_state == "dead"
        assert bench.storage.mourn(bench.wire, [(uid, score)])[1] == []

    def test_where_nobody_is_named_what_ran_is_claimed_alone(self, bench: Bench) -> None:
        bench.submit("a", "b")
        bench.claim()
        judgement = Judgement(b"", 3, BACK, DEAD)
        bench.storage.release_owner(bench.wire, "o1", judgement)
        bench.submit("c")
        first, second = bench.claim(owner="o2"), bench.claim(owner="o2")
        assert (first.uids, second.uids) == (["a"], ["c"])
        assert bench.finish(["a"], first.token, owner="o2") == KEPT
        third = bench.claim(owner="o2")
        assert third.uids == ["b"]
        _, lost, _ = bench.storage.renew(bench.wire, "o2", third.pairs(), LEASE_MS)
        assert lost == []
        found = bench.storage.release_owner(bench.wire, "o2", judgement)
        assert found.charged == [b"b"]

    def test_a_suspect_is_recovered_as_any(self, bench: Bench) -> None:
        bench.ready_to_recover()
        bench.submit("a")
        bench.claim()
        bench.storage.release_owner(bench.wire, "o1", Judgement(b"", 3, BACK, DEAD))
        held = bench.claim(owner="o2", lease_ms=LEASE_MS)
        assert held.uids == ["a"]
        for _ in range(3):
            bench.pass_ms(LEASE_MS // 2)
            bench.storage.renew(bench.wire, "o2", held.pairs(), LEASE_MS)
        assert bench.recover() == []
        bench.pass_ms(LEASE_MS + 10)
        assert bench.recover() == ["a"]

    def test_what_is_known_of_a_claim_can_be_asked(self, bench: Bench) -> None:
        bench.submit("a", "b")
        held = bench.claim(1)
        standing = bench.storage.standing(bench.wire, b"a")
        assert standing is not None
        assert (standing.token, standing.attempts) == (held.token, 0)
        assert standing.started_ms > 0
        assert message.read_journal(standing.body).args == ["a"]
        assert bench.storage.standing(bench.wire, b"b") is None
        assert bench.storage.last_number(bench.wire, "o1", "claim") == 1
        bench.finish(["a"], held.token)
        assert bench.storage.last_number(bench.wire, "o1", "finish") == 1

    def test_a_task_claimed_ahead_has_not_started_until_that_is_said(self, bench: Bench) -> None:
        bench.submit("a", "b")
        held = bench.claim(2, starting=0)
        before = bench.storage.standing(bench.wire, b"b")
        bench.storage.finish(
            bench.lane("o1"), [Ending(b"a", held.token, END_SUCCEEDED, DONE)],
            [(b"b", held.token)],
        )
        after = bench.storage.standing(bench.wire, b"b")
        assert before is not None and before.started_ms == 0
        assert after is not None and after.started_ms > 0

    # Cancelling and the like

    def test_a_queued_task_that_is_cancelled_never_runs(self, bench: Bench) -> None:
        bench.submit("a", "b", "c")
        assert bench.cancel("b") == "queued"
        assert bench.cancel("b") == "ended"
        journal = bench.record("b")
        assert journal is not None and journal.end_state == "cancelled"
        assert bench.claim().uids == ["a", "c"]

    def test_the_room_of_a_cancelled_task_is_free_at_once(self, bench: Bench) -> None:
        bench.submit("a", "b")
        bench.cancel("a")
        assert bench.submit("c", "d", capacity=2) == STORED + FULL
        bench.cancel("b")
        bench.cancel("c")
        assert bench.submit("e", "f", "g", capacity=2) == STORED * 2 + FULL
        assert bench.claim().uids == ["e", "f"]

    def test_a_delayed_task_that_is_cancelled_never_runs(self, bench: Bench) -> None:
        bench.submit("a", options=_options(when="+20"))
        assert bench.cancel("a") == "scheduled"
        bench.pass_ms(30)
        assert bench.claim().uids == []

    def test_a_running_tasks_owner_hears_of_the_cancel(self, bench: Bench) -> None:
        bench.submit("a", "b")
        held = bench.claim()
        assert bench.cancel("a") == "running"
        _, lost, cancelled = bench.storage.renew(bench.wire, "o1", held.pairs(), LEASE_MS)
        assert (lost, cancelled) == ([], [b"a"])
        lane = bench.lane("o1")
        failures = [Failure(uid, held.token, 0, FAILED) for uid in (b"a", b"b")]
        assert bench.storage.retry(lane, failures) == CANCEL_MEANWHILE + KEPT
        assert bench.finish(["a"], held.token, END_CANCELLED, CANCELLED) == KEPT
        journal = bench.record("a")
        assert journal is not None and journal.end_state == "cancelled"

    def test_an_unknown_task_can_not_be_cancelled(self, bench: Bench) -> None:
        assert bench.cancel("a") == "unknown"

    def test_a_cancelled_task_that_is_put_back_runs_once(self, bench: Bench) -> None:
        bench.submit("a", "b")
        for _ in range(3):
            assert bench.cancel("a") == "queued"
            batch = [("a", "", RESUBMITTED)]
            assert bench.storage.resubmit(bench.wire, batch) == STORED
        held = bench.claim()
        assert held.uids == ["b", "a"]
        assert bench.claim().uids == []
        assert bench.finish(["a", "b"], held.token) == KEPT * 2

    def test_a_finished_task_that_is_put_back_starts_afresh(self, bench: Bench) -> None:
        bench.submit("a")
        held = bench.claim()
        bench.storage.retry(bench.lane("o1"), [Failure(b"a", held.token, 0, FAILED)])
        held = bench.claim()
        assert held.attempts("a") == 1
        bench.finish(["a"], held.token, END_DEAD, DEAD)
        batch = [("a", "", RESUBMITTED), ("b", "", RESUBMITTED)]
        assert bench.storage.resubmit(bench.wire, batch) == STORED + UNKNOWN
        assert bench.storage.resubmit(bench.wire, batch[:1]) == ALREADY
        again = bench.claim()
        assert (again.uids, again.attempts("a")) == (["a"], 0)
        journal = message.read_journal(again.claims.rows[2])
        assert [one.kind for one in journal.entries] == [
            message.FAILED, message.DEAD, message.RESUBMITTED
        ]

    def test_what_is_purged_is_unknown(self, bench: Bench) -> None:
        bench.submit("run", "wait", "over")
        bench.submit("later", options=_options(when="+60000"))
        held = bench.claim(1)
        bench.cancel("over")
        uids = ["run", "wait", "over", "later", "none"]
        assert bench.storage.purge(bench.wire, uids, ended=False) == 2
        assert bench.storage.purge(bench.wire, uids, ended=True) == 1
        assert [bench.cancel(uid) for uid in uids] == ["running"] + ["unknown"] * 4
        assert bench.claim().uids == []
        assert bench.finish(["run"], held.token) == KEPT

    def test_a_purged_id_may_be_used_again(self, bench: Bench) -> None:
        bench.submit("a", "b")
        bench.storage.purge(bench.wire, ["a"], ended=False)
        assert bench.submit("a") == STORED
        assert bench.claim().uids == ["b", "a"]
        assert bench.claim().uids == []

    def test_records_younger_than_a_minute_stay(self, bench: Bench) -> None:
        bench.submit("a", "b")
        held = bench.claim()
        bench.finish(["a"], held.token)
        bench.finish(["b"], held.token, END_DEAD, DEAD)
        records = bench.storage.records(bench.wire)
        assert (records.done, records.dead) == (1, 1)
        assert records.mean_bytes > 0
        assert bench.storage.trim(bench.wire, 0, 0, 0).forgotten == 0
        assert bench.record("a") is not None

    def test_who_watches_a_task_that_has_not_ended_is_told_so(self, bench: Bench) -> None:
        bench.submit("a")
        assert bench.storage.watch(bench.wire, "a", CHANNEL) is True
        bench.storage.unwatch(bench.wire, "a", CHANNEL)
        assert bench.storage.watch(bench.wire, "b", CHANNEL) is False

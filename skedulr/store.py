"""The Storage contract on Redis: one method per script, for one pool.

A method takes the connection (or numbered lane) it is to use, fills in the keys that the script's
header names, and gives back plain values. It repeats nothing itself: ``Lane`` repeats a numbered
call until it is answered, everything else is the caller's to decide.

What each method promises: it is one atomic step; ``claim``, ``finish`` and ``retry`` may be
repeated by number; ``submit`` by id; the others may run twice without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .keys import PoolKeys, SpaceKeys
from .redis_scripts import Script, script
from .storage import (
    ALREADY,
    BATCH,
    CANCEL_MEANWHILE,
    DUPLICATE,
    END_CANCELLED,
    END_DEAD,
    END_EXPIRED,
    END_SKIPPED,
    END_SUCCEEDED,
    ENDED,
    FULL,
    KEPT,
    LOST,
    MISSING,
    PENDING,
    PRIORITY,
    STORED,
    TAKEN,
    TAKEN_MS,
    UNKNOWN,
    Claims,
    Deferral,
    Ending,
    Failure,
    Flags,
    Judgement,
    Lane,
    Records,
    Relocation,
    Returned,
    Standing,
    Submission,
    Suspension,
    Trimmed,
)
from .wire import Runner, Wire

#: Whoever knows the store finds the values of the contract here as well.
__all__ = [
    "ALREADY", "BATCH", "CANCEL_MEANWHILE", "DUPLICATE", "ENDED", "END_CANCELLED", "END_DEAD",
    "END_EXPIRED", "END_SKIPPED", "END_SUCCEEDED", "FULL", "KEPT", "LOST", "MISSING",
    "PENDING", "PRIORITY",
    "STORED", "TAKEN", "TAKEN_MS", "UNKNOWN", "Claims", "Deferral", "Ending", "Failure", "Flags",
    "Judgement", "Lane", "Records", "Relocation", "Returned", "Standing", "Store",
    "Submission", "Suspension", "Trimmed",
]

#: A dead task whose hooks are being told comes again after this long if that process died.
MOURNED_MS = 60_000
#: Of so many records the size is taken for all; and what Redis needs beside each one's text.
SAMPLE, RECORD_OVERHEAD = 20, 180

_scripts: dict[str, Script] = {}


def _script(name: str) -> Script:
    found = _scripts.get(name)
    if found is None:
        found = _scripts[name] = script(name)
    return found


class Store:
    """The tasks of one pool. How its ready work is kept (``transport``, "zset" or "streams") is
    known to the scripts; a producer need not say it, only ``flags`` is wrong then."""

    def __init__(self, keys: PoolKeys, transport: str = "zset") -> None:
        self.keys, self.transport = keys, transport
        self.flags = Flags() if transport == "zset" else Flags(False, False, False)
        #: Called when tasks ended that others wait for: a deliverer should look.
        self.on_told: Callable[[], None] = _nobody

    def _run(self, wire: Runner, name: str, args: list[Any], owner: str | None = None) -> Any:
        called = _script(name)
        return wire.run(called, self.keys.of(called.keys, owner), args)

    def _numbered(self, lane: Lane, name: str, args: list[Any]) -> Any:
        called = _script(name)
        return lane.run(called, self.keys.of(called.keys, lane.owner), args)

    def settle(self, wire: Runner, lease_ms: int) -> str | None:
        """Have this pool's ready work kept this way from now on; the other way's name where it
        holds work that is kept so, and nothing was changed. As a master does at its start."""
        wanted = "" if self.transport == "zset" else self.transport
        _, letter, kept = self._run(wire, "set_transport", [wanted, lease_ms])
        return (kept.decode() or "zset") if letter == b"h" else None

    def submit(
        self, wire: Runner, batch: Sequence[Submission], capacity: int = 0,
        replaced: bytes = b"", maker: str = "",
    ) -> tuple[str, list[str]]:
        """Store up to BATCH tasks: a verdict letter each, and of each TAKEN who holds its key.

        ``replaced`` is the journal entry of tasks whose place is taken by one of these. ``maker``
        is the map step that they are made for: once it is not to be tied to them any more, nothing
        is stored, and there are no verdicts.
        """
        args: list[Any] = [f"{capacity} {maker}" if maker else capacity]
        for one in batch:
            args += one[:3]
        args.append(replaced)
        _, verdicts, *holders = self._run(wire, "submit", args)
        return verdicts.decode(), [uid.decode() for uid in holders[0]] if holders else []

    def resubmit(
        self, wire: Runner, batch: Iterable[tuple[str, str, bytes]], capacity: int = 0,
        ended_by_ms: int = 0,
    ) -> str:
        """Put finished tasks back; each is uid, options (as of a Submission), journal entry.

        A verdict letter each: STORED, ALREADY (it is not finished), FULL, TAKEN, or "n" unknown.
        """
        args: list[Any] = [capacity, ended_by_ms]
        for one in batch:
            args += one
        verdicts: bytes = self._run(wire, "resubmit", args)[1]
        return verdicts.decode()

    def purge(self, wire: Runner, uids: Sequence[bytes | str], *, ended: bool) -> int:
        """Remove up to BATCH tasks for good, those that have ended or those that have not
        started; how many were."""
        removed: int = self._run(wire, "purge", ["ended" if ended else "unstarted", *uids])[1]
        return removed

    def progress(self, wire: Runner, batch: Iterable[tuple[bytes, bytes, bytes]]) -> str:
        """Keep what running tasks report: uid, token, what; a verdict letter each."""
        args: list[Any] = []
        for one in batch:
            args += one
        verdicts: bytes = self._run(wire, "progress", args)[1]
        return verdicts.decode()

    def defer(self, lane: Lane, batch: Iterable[Deferral]) -> str:
        """Put claimed tasks off, no attempt counted; a verdict letter each."""
        args: list[Any] = [lane.number + 1]
        for one in batch:
            args += one
        verdicts: bytes = self._numbered(lane, "defer", args)[1]
        return verdicts.decode()

    def suspend(self, lane: Lane, batch: Iterable[Suspension]) -> str:
        """Have claimed tasks wait for others; a verdict letter each."""
        args: list[Any] = [lane.number + 1]
        for one in batch:
            args += one
        verdicts: bytes = self._numbered(lane, "suspend", args)[1]
        if KEPT in verdicts.decode():
            self.on_told()
        return verdicts.decode()

    def moved(self, lane: Lane, batch: Iterable[tuple[bytes, bytes, bytes]]) -> str:
        """End claimed tasks that were stored in other pools: uid, token, entry; a letter each."""
        args: list[Any] = [lane.number + 1]
        for one in batch:
            args += one
        verdicts: bytes = self._numbered(lane, "moved", args)[1]
        return verdicts.decode()

    def claim(
        self, lane: Lane, want: int, starting: int, lease_ms: int, aging_ms: int = 0,
        sleep_s: float = 0.0,
    ) -> Claims:
        """Take up to ``want`` tasks, the first ``starting`` of which are started at once.

        What has waited ``aging_ms`` goes first, whatever its priority; 0: by priority alone. With
        ``sleep_s`` it blocks before on the token that whoever makes work ready leaves; the server
        goes on to the script by itself, which saves a sleeper the way there and back.
        """
        number, called = lane.number + 1, _script("claim")
        keys = self.keys.of(called.keys, lane.owner)
        args = [lane.owner, number, want, starting, lease_ms, aging_ms]
        if sleep_s:
            wait = ("BLPOP", self.keys.wake, f"{sleep_s:.3f}")
            reply = lane.run_after(wait, sleep_s, called, keys, args)
        else:
            reply = lane.run(called, keys, args)
        return Claims(
            reply[0], None if reply[1] < 0 else reply[1], reply[2], reply[3:],
            f"{lane.owner}:{number}".encode(),
        )

    def finish(
        self, lane: Lane, endings: Sequence[Ending], started: Iterable[tuple[bytes, bytes]] = ()
    ) -> str:
        """End up to BATCH runs and note which tasks were started since; a verdict letter each."""
        args: list[Any] = [lane.number + 1, len(endings)]
        for one in endings:
            args += one
        for pair in started:
            args += pair
        reply = self._numbered(lane, "finish", args)
        if len(reply) > 2:
            self.on_told()
        verdicts: bytes = reply[1]
        return verdicts.decode()

    def retry(self, lane: Lane, failures: Sequence[Failure]) -> str:
        """Count failed attempts and plan the next ones; a verdict letter each."""
        args: list[Any] = [lane.number + 1]
        for uid, token, delay_ms, entry, sample in failures:
            args += uid, token, f"{delay_ms} {sample}" if sample else delay_ms, entry
        verdicts: bytes = self._numbered(lane, "retry", args)[1]
        return verdicts.decode()

    def renew(
        self, wire: Runner, owner: str, held: Iterable[tuple[bytes, bytes]], lease_ms: int
    ) -> tuple[int, list[bytes], list[bytes]]:
        """Move leases on for (uid, token) pairs; (Redis ms, lost uids, cancelled uids)."""
        args: list[Any] = [lease_ms]
        for pair in held:
            args += pair
        now_ms, lost, cancelled = self._run(wire, "renew", args, owner)
        return now_ms, lost, cancelled

    def promote(self, wire: Runner, limit: int = BATCH) -> tuple[int, int, int | None]:
        """Move due tasks to ready; (Redis ms, how many, the next due time or None)."""
        now_ms, moved, next_due_ms = self._run(wire, "promote", [limit])
        return now_ms, moved, None if next_due_ms < 0 else next_due_ms

    def recover(
        self, wire: Runner, lease_ms: int, gap_ms: int, judgement: Judgement, limit: int = BATCH
    ) -> Returned:
        """Give back what expired leases hold, up to ``limit``."""
        reply = self._run(wire, "recover", [
            limit, lease_ms, gap_ms, judgement.limit, judgement.back, judgement.death,
        ])
        return Returned.read(reply)

    def release_owner(
        self, wire: Runner, owner: str, judgement: Judgement | None = None
    ) -> Returned:
        """Give back up to BATCH claims of a dead owner and mark it gone. Without a judgement
        nobody is charged."""
        args: list[Any] = ["owner", owner]
        if judgement is not None:
            args += [
                judgement.culprit, judgement.limit, judgement.back, judgement.death,
                "1" if judgement.suspecting else "", judgement.name,
                "1" if judgement.loss else "",
            ]
        return Returned.read(self._run(wire, "release", args, owner))

    def release(self, wire: Runner, owner: str, held: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Give back named claims that still hold; the uids that were."""
        args: list[Any] = ["ids"]
        for pair in held:
            args += pair
        uids: list[bytes] = self._run(wire, "release", args, owner)[1]
        return uids

    def mourn(
        self, wire: Runner, told: Sequence[tuple[bytes, bytes]], limit: int = 20
    ) -> tuple[bytes, list[tuple[bytes, bytes, bytes]]]:
        """Take up to ``limit`` tasks that died without a run of theirs that could say so, to tell
        hooks of them, and let go of those that were ``told``; see mourn.lua."""
        args: list[Any] = [limit, MOURNED_MS]
        for pair in told:
            args += pair
        _, score, *flat = self._run(wire, "mourn", args)
        return score, list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))

    def note_death(self, wire: Runner, uid: bytes) -> None:
        """A claimed task is about to be ended as dead by another than its owner."""
        wire.call("ZADD", self.keys.deaths, 0, uid)

    def standing(self, wire: Runner, uid: bytes) -> Standing | None:
        """A claimed task: token, start, journal, attempts before this one; None if unclaimed."""
        keys = self.keys
        claim: bytes | None = wire.call("HGET", keys.claims, uid)
        if claim is None:
            return None
        token, _, rest = claim.partition(b" ")
        header = (wire.call("HGET", keys.info, uid) or b"").split(b" ")
        return Standing(
            token, int(rest.split(b" ")[1]) if rest.count(b" ") else 0,
            wire.call("HGET", keys.tasks, uid) or b"", int(header[1]) if len(header) > 3 else 0,
        )

    def held_by(self, wire: Runner, owner: str) -> list[tuple[bytes, bytes]]:
        """(uid, token) of everything an owner holds."""
        owned = self.keys.of(("owned",), owner)[0]
        held: list[tuple[bytes, bytes]] = []
        cursor: Any = b"0"
        while True:
            cursor, uids = wire.call("SSCAN", owned, cursor, "COUNT", BATCH)
            texts = wire.call("HMGET", self.keys.claims, *uids) if uids else []
            held += [
                (uid, text.partition(b" ")[0])
                for uid, text in zip(uids, texts, strict=True) if text
            ]
            if cursor in (b"0", "0", 0):
                return held

    def last_number(self, wire: Runner, owner: str, kind: str) -> int:
        """The last number of an owner's lane, "claim" or "finish"; 0 for none."""
        last = wire.call("HGET", self.keys.of(("own",), owner)[0], kind)
        return int(last.partition(b" ")[0]) if last else 0

    def cancel(self, wire: Runner, uid: str, entry: bytes, channel: str) -> str:
        """Cancel a task; what it was: queued, scheduled, waiting, running, ended or
        unknown."""
        message = f"cancel {self.keys.pool}/{uid}"
        reply = self._run(wire, "cancel", [uid, entry, channel, message])
        if len(reply) > 2:
            wire.call("PUBLISH", channel, f"outbox {self.keys.pool}/")
        was: bytes = reply[1]
        return was.decode()

    def pause(self, wire: Runner, paused: bool) -> bool:
        """Claim nothing any more, or go on; whether that was a change."""
        changed = bool(self._run(wire, "pause", ["1" if paused else "0"])[1])
        # Children that have claimed ahead give it back.
        control = SpaceKeys(self.keys.namespace).control
        wire.call("PUBLISH", control, f"{'pause' if paused else 'resume'} {self.keys.pool}/")
        return changed

    def set_limit(self, wire: Runner, id: str, definition: str) -> bool:
        """Have a limit of this pool be ``definition``, or "-" as declared, and let out what has
        room now; False where the pool knows no such limit."""
        known, after = 1, b""
        while True:
            _, known, after = self._run(wire, "set_limit", [id, definition, after])
            if not after:
                return bool(known)

    def watch(self, wire: Runner, uid: str, channel: str) -> bytes | bool:
        """The record of an ended task; True: ``channel`` will hear of it; False: unknown id."""
        reply = self._run(wire, "watch", [uid, channel])
        return reply if isinstance(reply, bytes) else bool(reply)

    def unwatch(self, wire: Runner, uid: str, channel: str) -> None:
        """Take back a ``watch``."""
        self._run(wire, "unwatch", [uid, channel])

    def records(self, wire: Wire) -> Records:
        """How many records the pool keeps, and about how many bytes one takes, from a sample."""
        keys = self.keys
        done, dead, sample = wire.calls([
            ("ZCARD", keys.done), ("ZCARD", keys.dead), ("HRANDFIELD", keys.records, SAMPLE),
        ])
        lengths = wire.calls([("HSTRLEN", keys.records, uid) for uid in sample]) if sample else []
        mean = sum(lengths) / len(lengths) + RECORD_OVERHEAD if lengths else 0.0
        return Records(done, dead, mean)

    def trim(
        self, wire: Runner, age_ms: int, most_done: int, most_dead: int, limit: int = BATCH,
        passed: tuple[int, int] = (0, 0), loose: Sequence[bytes] = (),
    ) -> Trimmed:
        """Forget the oldest records beyond age and count, but those of parents.

        ``passed``: how many of the oldest ended, and dead, ones stay because children need them;
        ``loose``: parents that none needs.
        """
        _, forgotten, *tied = self._run(
            wire, "trim", [limit, age_ms, most_done, most_dead, *passed, *loose]
        )
        return Trimmed(forgotten, *(tied or ([], [])))

    def fold(self, wire: Wire, pages: int = 20) -> int:
        """Add the minutes that are over to all that is longer, at most ``pages`` of them; how
        many were."""
        time, fields = wire.calls([("TIME",), ("HKEYS", self.keys.stats)])
        names = [field[1:] for field in fields if field.startswith(b" ")]
        read_ms = int(time[0]) * 1000 + int(time[1]) // 1000
        total = 0
        for _ in range(pages):
            _, added, more = self._run(wire, "fold", [read_ms, *names])
            total += added
            if not more:
                break
        return total

    # Tasks that wait for others

    def attach(self, wire: Runner, edges: Sequence[tuple[str, str, str]]) -> str:
        """Tie children to parents of this pool, up to BATCH: parent, "<child>,<index>,<round>",
        MISSING or ''; a letter each: PENDING, ENDED or UNKNOWN."""
        args = [part for edge in edges for part in edge]
        letters: bytes = self._run(wire, "attach", args)[1]
        return letters.decode()

    def take(
        self, wire: Runner, delivered: Sequence[tuple[bytes, bytes]], *, ahead_ms: int = 0,
        limit: int = 100,
    ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Remove what was delivered from the outbox and take more of it: the score they are
        taken under, (item, what is held of it) pairs; see take.lua."""
        args: list[Any] = [limit, ahead_ms, TAKEN_MS]
        for pair in delivered:
            args += pair
        _, score, *flat = self._run(wire, "take", args)
        return score, list(zip(flat[::2], flat[1::2], strict=True))

    def resolve(
        self, wire: Runner, exhausted: bytes, entries: Sequence[bytes],
        edges: Iterable[tuple[str, str, int]],
    ) -> int:
        """Tell children of this pool what became of parents; how many things that told on.

        An edge: child, "<index>,<round>", 0 or the number of the entry (from 1) that says why not.
        """
        args: list[Any] = [exhausted, len(entries), *entries]
        for edge in edges:
            args += edge
        told: int = self._run(wire, "resolve", args)[3]
        return told

    def reopen(self, wire: Runner, tasks: Iterable[tuple[str, int, str, bytes]]) -> int:
        """Have skipped tasks wait again: uid, length of the record, text, entry; how many do."""
        args: list[Any] = []
        for one in tasks:
            args += one
        count: int = self._run(wire, "reopen", args)[1]
        return count

    def begin(self, wire: Runner, what: str, uid: str, entry: bytes = b"") -> str:
        """"begin", "stop" or "drop" a workflow: 'b' done, 'e' it had begun, 'n' it can not."""
        letter: bytes = self._run(wire, "begin", [what, uid, entry])[1]
        return letter.decode()

    def waits(self, wire: Runner, uid: str) -> bool:
        """Whether a task waits for others; a workflow, whether it has not begun and still can."""
        return bool(wire.call("HEXISTS", self.keys.waiting, uid))


def _nobody() -> None:
    """Until someone listens."""

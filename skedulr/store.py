"""The Storage contract on Redis: one method per script, for one pool.

A method takes the connection (or numbered lane) it is to use, fills in the keys that the script's
header names, and gives back plain values. It repeats nothing itself: ``Lane`` repeats a numbered
call until it is answered, everything else is the caller's to decide.

What each method promises: it is one atomic step; ``claim``, ``finish`` and ``retry`` may be
repeated by number; ``submit`` by id; the others may run twice without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .keys import PoolKeys
from .redis_scripts import Script, script
from .wire import Runner, WireError

#: The most ids one call of a script takes.
BATCH = 500

STORED, ALREADY, DUPLICATE, FULL = "s", "a", "d", "f"
KEPT, LOST, CANCEL_MEANWHILE = "k", "l", "c"

#: Kinds of an end, as scripts know them.
END_SUCCEEDED, END_DEAD, END_CANCELLED, END_EXPIRED = "s", "d", "c", "e"

_scripts: dict[str, Script] = {}


def _script(name: str) -> Script:
    found = _scripts.get(name)
    if found is None:
        found = _scripts[name] = script(name)
    return found


class Submission(NamedTuple):
    """One task to store: uid, envelope, and '' or ``"<priority> <when> <unique>"``."""

    uid: str
    envelope: bytes
    options: str


class Ending(NamedTuple):
    """A run that ended: its claim's token, how (a kind letter), and its journal entry."""

    uid: bytes
    token: bytes
    kind: str
    entry: bytes


class Failure(NamedTuple):
    """A failed attempt that is to be tried again ``delay_ms`` from now."""

    uid: bytes
    token: bytes
    delay_ms: int
    entry: bytes


@dataclass(slots=True)
class Claims:
    """What one claim took. ``rows`` is flat: uid, place, body, header, uid, ..."""

    now_ms: int
    next_due_ms: int | None
    cancelled: list[bytes]
    rows: list[bytes]
    token: bytes


class Lane:
    """Calls of one kind from one owner, numbered, one in flight.

    ``ride_out(error, tries)`` is asked after each failure: it waits and returns to have the call
    repeated under its number, or raises to give up (then the owner must not use the lane again,
    unless the next call is the same).
    """

    def __init__(
        self, wire: Runner, owner: str, ride_out: Callable[[WireError, int], None]
    ) -> None:
        self.wire, self.owner, self._ride_out = wire, owner, ride_out
        self.number = 0

    def run(self, called: Script, keys: list[str], args: list[Any]) -> Any:
        """Run a script whose first argument after ``args[:k]`` is ``self.number + 1`` already."""
        tries = 0
        while True:
            try:
                reply = self.wire.run(called, keys, args)
            except WireError as error:
                tries += 1
                self._ride_out(error, tries)
            else:
                self.number += 1
                return reply


class Store:
    """The tasks of one pool."""

    def __init__(self, keys: PoolKeys) -> None:
        self.keys = keys

    def _run(self, wire: Runner, name: str, args: list[Any], owner: str | None = None) -> Any:
        called = _script(name)
        return wire.run(called, self.keys.of(called.keys, owner), args)

    def _numbered(self, lane: Lane, name: str, args: list[Any]) -> Any:
        called = _script(name)
        return lane.run(called, self.keys.of(called.keys, lane.owner), args)

    def submit(
        self, wire: Runner, batch: Sequence[Submission], capacity: int = 0
    ) -> tuple[int, str]:
        """Store up to BATCH tasks; (Redis ms, a verdict letter a task)."""
        args: list[Any] = [capacity]
        for one in batch:
            args += one
        now_ms, verdicts = self._run(wire, "submit", args)
        return now_ms, verdicts.decode()

    def claim(self, lane: Lane, want: int, starting: int, lease_ms: int) -> Claims:
        """Take up to ``want`` tasks, the first ``starting`` of which are started at once."""
        number = lane.number + 1
        reply = self._numbered(lane, "claim", [lane.owner, number, want, starting, lease_ms])
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
        verdicts: bytes = self._numbered(lane, "finish", args)[1]
        return verdicts.decode()

    def retry(self, lane: Lane, failures: Sequence[Failure]) -> str:
        """Count failed attempts and plan the next ones; a verdict letter each."""
        args: list[Any] = [lane.number + 1]
        for one in failures:
            args += one
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
        self, wire: Runner, lease_ms: int, gap_ms: int, limit: int = BATCH
    ) -> tuple[list[bytes], bool]:
        """Give back what expired leases hold; (uids, whether more may be left)."""
        _, uids, more = self._run(wire, "recover", [limit, lease_ms, gap_ms])
        return uids, bool(more)

    def release_owner(self, wire: Runner, owner: str) -> tuple[list[bytes], bool]:
        """Give back up to BATCH claims of a dead owner and mark it gone; (uids, more left)."""
        _, uids, more = self._run(wire, "release", ["owner", owner], owner)
        return uids, bool(more)

    def release(self, wire: Runner, owner: str, held: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        """Give back named claims that still hold; the uids that were."""
        args: list[Any] = ["ids"]
        for pair in held:
            args += pair
        uids: list[bytes] = self._run(wire, "release", args, owner)[1]
        return uids

    def cancel(self, wire: Runner, uid: str, entry: bytes, channel: str) -> str:
        """Cancel a task; what it was: queued, scheduled, running, ended or unknown."""
        message = f"cancel {self.keys.pool}/{uid}"
        was: bytes = self._run(wire, "cancel", [uid, entry, channel, message])[1]
        return was.decode()

    def watch(self, wire: Runner, uid: str, channel: str) -> bytes | bool:
        """The record of an ended task; True: ``channel`` will hear of it; False: unknown id."""
        reply = self._run(wire, "watch", [uid, channel])
        return reply if isinstance(reply, bytes) else bool(reply)

    def unwatch(self, wire: Runner, uid: str, channel: str) -> None:
        """Take back a ``watch``."""
        self._run(wire, "unwatch", [uid, channel])

    def trim(
        self, wire: Runner, age_ms: int, most_done: int, most_dead: int, limit: int = BATCH
    ) -> int:
        """Forget the oldest records beyond age and count; how many were."""
        forgotten: int = self._run(wire, "trim", [limit, age_ms, most_done, most_dead])[1]
        return forgotten

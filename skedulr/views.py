"""A task in the form that the HTTP interface, the command line and ``Handle.info`` share.

Pure: from what Redis holds of a task to a dict. Times are epoch seconds, None where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from . import message
from .dependencies import read_waits
from .errors import PayloadError


@dataclass(slots=True)
class Facts:
    """What Redis holds of one task, all read in one step."""

    uid: str
    record: bytes | None
    body: bytes | None
    header: bytes | None
    claim: bytes | None
    progress: bytes | None
    due_ms: float | None
    place: float | None
    #: The limit key it is parked for, and None where it is not parked.
    waits_for: str | None = None

    @property
    def state(self) -> str | None:
        """The task's state; None where it is nowhere, or went to another pool."""
        if self.record is not None:
            if self.moved_to is not None:
                return None
            try:
                return message.read_journal(self.record).end_state or "dead"
            except PayloadError:
                return "dead"
        if self.body is None:
            return None
        if self.claim is not None:
            return "running"
        if self.due_ms is not None:
            return "scheduled"
        return "queued" if self.place is not None else "waiting"

    @property
    def moved_to(self) -> str | None:
        """The id under which it goes on in the pool its name belongs to; mostly None."""
        return None if self.record is None else message.moved_to(self.record)

    def claimed(self) -> tuple[str, int, int]:
        """Token, place and start (ms, 0 if not yet) of the claim, or blanks."""
        parts = (self.claim or b"").decode().split(" ")
        return (parts[0], int(parts[1]), int(parts[2])) if len(parts) >= 3 else ("", 0, 0)

    def counters(self) -> tuple[int, int, int, int]:
        """Priority, attempts, crashes and due ms, from the header or from the place."""
        parts = (self.header or b"").decode().split(" ")
        if len(parts) >= 5:
            crashes = parts[2].partition("+")[0]
            return int(parts[0]), int(parts[1]), int(crashes), int(parts[3])
        place = self.place or self.claimed()[1]
        return (100 - int(place // 2**44) if place else 0), 0, 0, 0


def task_view(pool: str, facts: Facts, state: str) -> dict[str, Any]:
    """The form that the HTTP interface calls "task". ``sealed`` is there where a codec sealed it:
    what it carries is shown unverified where it can be read, and else not. ``limit`` is there
    where it is parked: what it waits for."""
    named = {"id": f"{pool}/{facts.uid}", "uid": facts.uid, "pool": pool}
    try:
        journal = message.read_journal(facts.record or facts.body or b"")
    except PayloadError as error:
        return {**named, "name": None, "state": state, "unreadable": str(error)}
    ended = journal.entries[-1] if facts.record is not None and journal.entries else None
    priority, attempts, crashes, due_ms = facts.counters()
    if ended is not None:
        priority = int(str(journal.extras.get("placing", "0")).partition(" ")[0])
    token, _, started_ms = facts.claimed()
    percent, note = msgpack.unpackb(facts.progress) if facts.progress else (None, None)
    more: dict[str, Any] = {"sealed": True} if journal.sealed else {}
    if facts.waits_for is not None:
        more["limit"] = _limit(journal, facts.waits_for)
    return {
        **named, **more, "name": journal.name, "state": state, "priority": priority,
        "attempt": _attempt(state, attempts, ended),
        "max_retries": journal.extras.get("max_retries"),
        "crashes": _crashes(journal.entries) if ended else crashes,
        "progress": percent, "note": note,
        "submitted_at": _epoch(journal.submitted_ms), "due_at": _epoch(facts.due_ms or due_ms),
        "started_at": _epoch(ended.started_ms if ended else started_ms),
        "finished_at": _epoch(ended.at_ms if ended else None),
        "result": _result(ended),
        "error": _error(journal.entries, ended),
        "key": journal.extras.get("key"), "tags": journal.extras.get("tags") or [],
        "worker": (ended.worker if ended else token.rpartition(":")[0]) or None,
        "workflow": journal.extras.get("workflow"), "depends_on": _parents(journal),
        "args": shown_args(journal), "kwargs": shown_kwargs(journal),
    }


def _limit(journal: message.Journal, waits_for: str) -> dict[str, Any]:
    """The limit that a parked task waits for: name, kind and formatted key (None: it has none, or
    it is redacted)."""
    for limit_key, name, key in journal.extras.get("limits") or ():
        if limit_key == waits_for:
            kind = "concurrency" if waits_for.startswith("c") else "rate"
            return {"name": name, "kind": kind, "key": key}
    return {"name": None, "kind": None, "key": None}


def _result(ended: message.Entry | None) -> Any:
    """Of a success; a sealed one unverified as far as it can be read."""
    if ended is None or ended.kind != message.SUCCEEDED:
        return None
    return message.shown_result(ended.value)


def _parents(journal: message.Journal) -> list[str]:
    """The ids of the tasks that it waits for, or waited for."""
    waits = read_waits(journal.extras)
    return [] if waits is None else list(waits.inputs[:MOST_PARENTS])


#: More are not shown.
MOST_PARENTS = 500
#: Stands for a redacted argument.
HIDDEN = "***"


def shown_args(journal: message.Journal) -> list[Any]:
    """The positional arguments, those redacted hidden."""
    hidden = journal.extras.get("redact") or ()
    return [HIDDEN if at in hidden else arg for at, arg in enumerate(journal.args)]


def shown_kwargs(journal: message.Journal) -> dict[str, Any]:
    """The keyword arguments, those redacted hidden."""
    hidden = journal.extras.get("redact") or ()
    return {name: HIDDEN if name in hidden else arg for name, arg in journal.kwargs.items()}


def attempts_view(facts: Facts) -> list[dict[str, Any]]:
    """Every attempt that ended, oldest first: state, number, worker, times, error."""
    kinds = {**message.END_STATES, message.FAILED: "failed", message.CRASHED: "crashed",
             message.RESUBMITTED: "resubmitted", message.SPREAD: "waiting"}
    return [
        {
            "state": kinds.get(entry.kind, "unknown"), "attempt": entry.attempt,
            "worker": entry.worker or None, "started_at": _epoch(entry.started_ms),
            "finished_at": _epoch(entry.at_ms), "error": _error_of(entry),
        }
        for entry in message.read_journal(facts.record or facts.body or b"").entries
    ]


def _attempt(state: str, attempts: int, ended: message.Entry | None) -> int:
    if ended is not None:
        return ended.attempt
    return attempts + 1 if state == "running" else attempts


def _crashes(entries: list[message.Entry]) -> int:
    """Since the last fresh start: those charged and given back, and the one that killed it."""
    crashes = 0
    for entry in entries:
        if entry.kind == message.RESUBMITTED:
            crashes = 0
        elif (
            entry.kind in (message.CRASHED, message.DEAD) and entry.value
            and entry.value[0] == message.CRASHED_TYPE
        ):
            crashes += 1
    return crashes


def _error(entries: list[message.Entry], ended: message.Entry | None) -> dict[str, str] | None:
    """Of the end, or of the last attempt that failed; None after a success."""
    if ended is not None:
        return _error_of(ended)
    for entry in reversed(entries):
        if entry.kind == message.RESUBMITTED:
            return None
        error = _error_of(entry)
        if error is not None:
            return error
    return None


def _error_of(entry: message.Entry) -> dict[str, str] | None:
    if entry.kind in (message.SUCCEEDED, message.RESUBMITTED, message.SPREAD):
        return None
    if isinstance(entry.value, list) and len(entry.value) >= 3:
        type_, text, trace = entry.value[:3]
        return {"type": type_, "message": text, "traceback": trace}
    state = message.END_STATES.get(entry.kind, "failed")
    return {"type": state, "message": str(entry.value or ""), "traceback": ""}


def _epoch(ms: float | None) -> float | None:
    return ms / 1000 if ms else None

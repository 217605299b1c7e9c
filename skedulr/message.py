"""What is stored of a task: the envelope it was submitted in, and the journal behind it.

An envelope is the msgpack array ``[version, name, [args, kwargs], extras]``; ``extras`` is None or
a map of the run-side options that were given for this call alone. Redis appends to it, without ever
decoding it: first the time of the submit, then, for each attempt that ended, an entry and its time.
All of it together is the journal; a finished task's journal is its record.

An entry is ``[kind, worker, attempt, started_ms, value]``; the value is the result of a success,
``[type, message, traceback]`` of a failure, a reason elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from . import payload
from .errors import NewerRelease, PayloadError, PayloadTooLarge

VERSION = 1
#: The length of a time behind an envelope or entry: a msgpack uint64, Redis milliseconds.
STAMP = 9

SUCCEEDED, FAILED, DEAD, CANCELLED, EXPIRED, SKIPPED, CRASHED, RESUBMITTED, MOVED = range(1, 10)

#: The state that a record's last entry stands for.
END_STATES = {
    SUCCEEDED: "succeeded", DEAD: "dead", CANCELLED: "cancelled", EXPIRED: "expired",
    SKIPPED: "skipped",
}

#: What the value of a MOVED entry begins with; the task's id in its new pool follows.
_MOVED_TO = "moved to"
#: The same as it stands in a record.
_MOVED_MARK = b"\x92\xa8moved to"

#: The error type of a task that died because its process did.
CRASHED_TYPE = "Crashed"

_pack = msgpack.Packer(autoreset=True).pack
_NOTHING: bytes = _pack(None)
_NO_ARGS: bytes = _pack([])
_NO_KWARGS: bytes = _pack({})


def name_part(name: str) -> bytes:
    """The part of an envelope that all calls of a task share: the array's head and the name."""
    head: bytes = b"\x94" + _pack(VERSION) + _pack(name)
    return head


def envelope(
    head: bytes, args: tuple[Any, ...], kwargs: Mapping[str, Any],
    extras: Mapping[str, Any] | None, limit: int, extras_limit: int = 0,
) -> bytes:
    """An envelope from a task's ``name_part`` and one call's arguments and extras.

    Raises PayloadError (naming the path to the value), PayloadTooLarge over ``limit`` bytes, of
    extras over ``extras_limit`` where that is given.
    """
    packed_args = payload.encode(args, limit, "args") if args else _NO_ARGS
    packed_kwargs = payload.encode(kwargs, limit, "kwargs") if kwargs else _NO_KWARGS
    if len(packed_args) + len(packed_kwargs) > limit:
        raise PayloadTooLarge(
            f"the arguments take {len(packed_args) + len(packed_kwargs):,} bytes; "
            f"the limit is {limit:,}"
        )
    packed_extras = payload.encode(extras, extras_limit or limit, "options") if extras else _NOTHING
    return head + b"\x92" + packed_args + packed_kwargs + packed_extras


def entry(
    kind: int, worker: str, attempt: int, started_ms: int, value: Any = None
) -> bytes:
    """A journal entry whose value is made of plain msgpack types."""
    packed: bytes = _pack([kind, worker, attempt, started_ms, value])
    return packed


def success_head(worker: str) -> bytes:
    """What every success entry of one worker begins with; see ``success``."""
    head: bytes = b"\x95" + _pack(SUCCEEDED) + _pack(worker)
    return head


def success(head: bytes, attempt: int, started_ms: int, result: bytes) -> bytes:
    """A success entry around an already encoded result."""
    packed: bytes = head + _pack(attempt) + _pack(started_ms) + result
    return packed


def moved(worker: str, new_id: str) -> bytes:
    """The entry of a task that was stored in the pool its name belongs to, as ``new_id``."""
    return entry(MOVED, worker, 0, 0, [_MOVED_TO, new_id])


def moved_to(record: bytes) -> str | None:
    """The id under which the task of a record goes on in another pool; mostly None."""
    if _MOVED_MARK not in record:
        return None
    try:
        last = read_journal(record).entries[-1]
    except (PayloadError, IndexError):
        return None
    return str(last.value[1]) if last.kind == MOVED else None


def envelope_of(body: bytes) -> bytes:
    """The envelope at the beginning of a body or record. Raises PayloadError."""
    reader = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=0)
    reader.feed(body)
    try:
        reader.skip()
    except Exception as error:
        raise PayloadError(f"not an envelope of Skedulr: {error}") from None
    return body[:reader.tell()]


@dataclass(slots=True)
class Entry:
    """How one attempt ended; times are Redis milliseconds."""

    kind: int
    worker: str
    attempt: int
    started_ms: int
    value: Any
    at_ms: int


@dataclass(slots=True)
class Journal:
    """Everything stored of a task, decoded. ``unreadable`` says why what follows could not be."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    extras: dict[str, Any]
    submitted_ms: int
    entries: list[Entry] = field(default_factory=list)

    @property
    def end_state(self) -> str | None:
        """The end state that the last entry stands for, or None."""
        return END_STATES.get(self.entries[-1].kind) if self.entries else None


def read_call(body: bytes) -> tuple[str, list[Any], dict[str, Any], dict[str, Any]]:
    """Name, args, kwargs and extras of a task's body, whatever has happened to it so far.

    Raises PayloadError for what this version can not read.
    """
    try:
        # Nearly always nothing lies between the envelope and one time: read in one go.
        whole = payload.decode(body[:-STAMP])
    except PayloadError:
        whole = payload.decode_stream(body)[0]
    return _parts(whole)


def read_journal(body: bytes) -> Journal:
    """The whole journal of a task. Raises PayloadError for what this version can not read."""
    values = payload.decode_stream(body)
    name, args, kwargs, extras = _parts(values[0] if values else None)
    try:
        # What a later release writes behind the five fields is not for this one.
        entries = [
            Entry(*[*values[i][:5], values[i + 1]]) for i in range(2, len(values) - 1, 2)
        ]
    except TypeError as error:
        raise PayloadError(f"not a journal of Skedulr: {error}") from None
    return Journal(name, args, kwargs, extras, values[1] if len(values) > 1 else 0, entries)


def submitted_ms(body: bytes) -> int:
    """When a body without ended attempts was stored."""
    return int.from_bytes(body[-8:], "big")


def _parts(whole: Any) -> tuple[str, list[Any], dict[str, Any], dict[str, Any]]:
    try:
        version, name, (args, kwargs), extras = whole
    except (TypeError, ValueError):
        raise PayloadError("not an envelope of Skedulr") from None
    if version != VERSION:
        raise NewerRelease(f"the envelope has version {version!r}; this release reads {VERSION}")
    return name, args, kwargs, extras or {}

"""What is stored of a task: the envelope it was submitted in, and the journal behind it.

An envelope is the msgpack array ``[version, name, [args, kwargs], extras]``; ``extras`` is None or
a map of the run-side options that were given for this call alone. Redis appends to it, without ever
decoding it: first the time of the submit, then, for each attempt that ended, an entry and its time.
All of it together is the journal; a finished task's journal is its record.

With a codec (see codecs.py) the version is 2 and the arguments are one sealed value, bound to name
and extras, which stay readable; a result is a sealed value bound to the name.

An entry is ``[kind, worker, attempt, started_ms, value]``; the value is the result of a success,
``[type, message, traceback]`` of a failure, a reason elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from . import payload
from .codecs import Codec, readable
from .errors import PayloadError, PayloadTooLarge
from .payload import NewerRelease

VERSION, SEALED_VERSION = 1, 2
#: The length of a time behind an envelope or entry: a msgpack uint64, Redis milliseconds.
STAMP = 9

SUCCEEDED, FAILED, DEAD, CANCELLED, EXPIRED, SKIPPED, CRASHED, RESUBMITTED, MOVED = range(1, 10)
#: No attempt: a task that is run by Skedulr itself waits for others that it found out about. The
#: value says how many it made (see spreading.py), or is None.
SPREAD = 10

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
#: The same, where nothing shows that the task was at fault.
LOST_TYPE = "ProcessLost"

#: Stands for a result that can not be shown.
HIDDEN = "(encrypted)"

_pack = msgpack.Packer(autoreset=True).pack
_NOTHING: bytes = _pack(None)
_NO_ARGS: bytes = _pack([])
_NO_KWARGS: bytes = _pack({})


def name_part(name: str) -> bytes:
    """The part of an envelope that all calls of a task share: the array's head and the name."""
    head: bytes = b"\x94" + _pack(VERSION) + _pack(name)
    return head


def is_named(body: bytes, name: str) -> bool:
    """Whether a body or record is of a task of that name; whatever its version."""
    return body.startswith(name_part(name)[2:], 2)


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


def seal_call(envelope: bytes, codec: Codec) -> bytes:
    """An envelope whose arguments only ``codec`` gives out again. Raises PayloadError."""
    version, name, call, extras = payload.decode(envelope)
    if version != VERSION:
        raise PayloadError(f"the envelope has version {version!r} and is sealed already")
    sealed = codec.seal(_about_call(name, extras), payload.encode(call, len(envelope)))
    packed: bytes = b"\x94" + _pack(SEALED_VERSION) + _pack(name)
    return packed + payload.encode_sealed(sealed) + payload.encode(extras, len(envelope))


def open_call(envelope: bytes, codec: Codec | None) -> bytes:
    """The envelope as it was before ``seal_call``; itself where there is no codec. Raises
    PayloadError for one that the codec did not seal, or that a codec sealed where there is none."""
    name, args, kwargs, extras = _parts(payload.decode(envelope), codec, run=True)
    if codec is None:
        return envelope
    return name_part(name) + payload.encode([args, kwargs], len(envelope)) + payload.encode(
        extras or None, len(envelope)
    )


def seal_result(name: str, result: bytes, codec: Codec) -> bytes:
    """An encoded result of a task of that name, sealed."""
    return payload.encode_sealed(codec.seal(_about_result(name), result))


def open_result(name: str, value: Any, codec: Codec | None) -> Any:
    """A result as it came from a record. Raises PayloadError as ``open_call``."""
    if isinstance(value, payload.Sealed):
        if codec is None:
            raise PayloadError("the result is sealed by a codec, and this app has none")
        return payload.decode(codec.open(_about_result(name), value.data))
    if codec is not None:
        raise PayloadError("the result is not sealed, as everything is in this app")
    return value


def shown_result(value: Any) -> Any:
    """A result for showing, unverified; the text HIDDEN for an encrypted one."""
    if not isinstance(value, payload.Sealed):
        return value
    shown = readable(value.data)
    return HIDDEN if shown is None else payload.decode(shown)


def _about_call(name: str, extras: Any) -> bytes:
    return b"call\0" + payload.canonical([name, extras or None])


def _about_result(name: str) -> bytes:
    return b"result\0" + name.encode()


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
    """Everything stored of a task, decoded. ``sealed``: its arguments are not among that, unless
    they were merely signed; then they are here unverified, for showing."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    extras: dict[str, Any]
    submitted_ms: int
    entries: list[Entry] = field(default_factory=list)
    sealed: bool = False

    @property
    def end_state(self) -> str | None:
        """The end state that the last entry stands for, or None."""
        return END_STATES.get(self.entries[-1].kind) if self.entries else None


def read_call(
    body: bytes, codec: Codec | None = None
) -> tuple[str, list[Any], dict[str, Any], dict[str, Any]]:
    """Name, args, kwargs and extras of a task's body, whatever has happened to it, to run it.

    Raises PayloadError for what this version can not read, for what ``codec`` did not seal, and
    for what a codec sealed where there is none.
    """
    try:
        # Nearly always nothing lies between the envelope and one time: read in one go.
        whole = payload.decode(body[:-STAMP])
    except PayloadError:
        whole = payload.decode_stream(body)[0]
    return _parts(whole, codec, run=True)


def read_journal(body: bytes) -> Journal:
    """The whole journal of a task. Raises PayloadError for what this version can not read."""
    values = payload.decode_stream(body)
    whole: Any = values[0] if values else ()
    name, args, kwargs, extras = _parts(whole, None, run=False)
    try:
        # What a later release writes behind the five fields is not for this one.
        entries = [
            Entry(*[*values[i][:5], values[i + 1]]) for i in range(2, len(values) - 1, 2)
        ]
    except TypeError as error:
        raise PayloadError(f"not a journal of Skedulr: {error}") from None
    return Journal(
        name, args, kwargs, extras, values[1] if len(values) > 1 else 0, entries,
        whole[0] == SEALED_VERSION,
    )


def submitted_ms(body: bytes) -> int:
    """When a body without ended attempts was stored."""
    return int.from_bytes(body[-8:], "big")


def _parts(
    whole: Any, codec: Codec | None, *, run: bool
) -> tuple[str, list[Any], dict[str, Any], dict[str, Any]]:
    if codec is None and type(whole) is list and len(whole) == 4 and whole[0] == VERSION:
        version, name, call, extras = whole
        # Nearly always, and then there is nothing more to ask for.
        if type(call) is list and len(call) == 2:
            return name, call[0], call[1], extras or {}
    version = whole[0] if isinstance(whole, list) and whole else None
    if type(version) is int and version > SEALED_VERSION:
        # Before anything else of it is looked at: its form is not known here.
        raise NewerRelease(
            f"the envelope has version {version}; this release reads {VERSION} and "
            f"{SEALED_VERSION}"
        )
    try:
        version, name, call, extras = whole
        if version == SEALED_VERSION:
            call = _opened(name, call, extras, codec, run=run)
        elif version == VERSION and run and codec is not None:
            raise PayloadError("it is not sealed, as everything is in this app")
        args, kwargs = call
    except (TypeError, ValueError):
        raise PayloadError("not an envelope of Skedulr") from None
    if version not in (VERSION, SEALED_VERSION):
        raise PayloadError(f"the envelope has version {version!r}, which there never was")
    return name, args, kwargs, extras or {}


def _opened(name: str, call: Any, extras: Any, codec: Codec | None, *, run: bool) -> Any:
    """The arguments behind a seal: to be run only as the codec gives them, to be shown as far as
    they can be read."""
    if not isinstance(call, payload.Sealed):
        raise PayloadError("not an envelope of Skedulr")
    if not run:
        shown = readable(call.data)
        return ([], {}) if shown is None else payload.decode(shown)
    if codec is None:
        raise PayloadError("it is sealed by a codec, and this app has none")
    return payload.decode(codec.open(_about_call(name, extras), call.data))

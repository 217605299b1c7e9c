"""Arguments and results as bytes: what goes in comes back equal, or is refused in the caller.

- ``encode`` and ``decode``: one value to msgpack and back. ``decode_stream``: several in a row.
- ``canonical``: the same bytes for equal values, whatever order a dict was filled in.
- Refusals say where (``args[0]['user']['when']``), what it is, and what to pass instead.

msgpack carries None, bool, int (64 bits), float, str, bytes, list and dict. Extension types carry
datetime, date, time, timedelta, Decimal, UUID, set and frozenset. A tuple comes back as a list
(inside a set as a tuple, since a list can not be there).

Two passes: a walk over the value for what msgpack would let through and not give back (NaN, keys
that are no str, look-alikes of plain types, endless nesting), then one call of the C packer. Only
when either objects does a third, slow one look for the place. Nothing here evaluates or imports
what the bytes name.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Callable, Iterable, Iterator, MappingView
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack

from skedulr.errors import PayloadError, PayloadTooLarge

#: Encoded arguments or results may have this many bytes unless the caller says otherwise.
LIMIT_BYTES = 1_048_576

#: Containers may be nested this deep; msgpack itself gives up at 1,024, in C.
MAX_DEPTH = 100

#: A set is an extension, and each one inside another costs the C unpacker 40 KB of stack. So one
#: set counts as many levels, which allows ten inside each other.
SET_DEPTH = 10

#: Beyond this multiple of the limit a value is refused unpacked, its exact size unknown.
GIVE_UP = 4

# Extension codes. They are in stored tasks: add, never renumber. msgpack's own -1 (timestamp) is
# not written, but read as the aware datetime in UTC that it is, for producers in other languages.
DATETIME, DATE, TIME, TIMEDELTA, DECIMAL, UUID_, SET, FROZENSET, SEALED = range(1, 10)

#: A packer keeps its buffer; one that grew beyond this is not kept.
_KEEP_BYTES = 65_536


class NewerRelease(PayloadError):
    """What is stored was written by a later release, in a form that this one does not know."""


class Sealed(NamedTuple):
    """What a codec made of a value (see codecs.py); only that codec opens it."""

    data: bytes


class _Odd(Exception):
    """Something in the value can not be carried; the slow pass will say what and where."""


class _Huge(Exception):
    """The value is so far over the limit that packing it would be a waste."""


def encode(value: Any, limit: int = LIMIT_BYTES, where: str = "args") -> bytes:
    """``value`` as msgpack.

    ``limit`` is in bytes; ``where`` is how error messages call the value. Raises ``PayloadError``
    for what would not come back equal, ``PayloadTooLarge`` for more than ``limit`` bytes.

    >>> decode(encode(["a@example.com", {"tags": {"new"}}]))
    ['a@example.com', {'tags': {'new'}}]
    >>> encode([{"user": {"score": float("nan")}}])
    Traceback (most recent call last):
    skedulr.errors.PayloadError: args[0]['user']['score'] is NaN, which is not equal to itself: \
pass None
    """
    try:
        _walk((value,), limit * GIVE_UP, 0)
        data = _pack(value)
    except _Huge:
        raise PayloadTooLarge(
            f"{where} would take over {limit * GIVE_UP:,} bytes; the limit is {limit:,}: {_SMALLER}"
        ) from None
    except Exception as error:
        raise _refusal(value, where, error) from None
    if len(data) > limit:
        raise PayloadTooLarge(
            f"{where} takes {len(data):,} bytes; the limit is {limit:,}: {_SMALLER}"
        )
    return data


_SMALLER = "store it elsewhere and pass where it is"


def decode(data: bytes) -> Any:
    """The value that ``encode`` was given; raises ``PayloadError`` for anything else.

    No header in ``data`` can make it build a container larger than ``data`` itself.
    """
    try:
        return msgpack.unpackb(data, ext_hook=_REVIVE[0], timestamp=3)
    except Exception as error:
        raise _unreadable(error) from error


def decode_stream(data: bytes) -> list[Any]:
    """The values that were encoded and put one after the other; raises ``PayloadError`` if the
    last one is cut off, so that a torn journal is never taken for a whole one.
    """
    unpacker = msgpack.Unpacker(
        ext_hook=_REVIVE[0], timestamp=3, max_buffer_size=max(len(data), 1), strict_map_key=True
    )
    values, end = [], 0
    try:
        unpacker.feed(data)
        for value in unpacker:
            values.append(value)
            end = unpacker.tell()  # not after the loop: then it counts half a value as read
    except Exception as error:
        raise _unreadable(error) from error
    if end != len(data):
        raise PayloadError(
            f"stored values can not be read: the last {len(data) - end:,} bytes are no whole one"
        )
    return values


def encode_sealed(data: bytes) -> bytes:
    """What a codec made, as a value of its own."""
    packed: bytes = msgpack.packb(msgpack.ExtType(SEALED, data))
    return packed


def canonical(value: Any, limit: int = LIMIT_BYTES, where: str = "args") -> bytes:
    """Like ``encode``, with dicts in the order of their keys: equal values give equal bytes.

    Types are kept: 1, 1.0, True and "1" differ; a tuple and a list do not. For digests.
    """
    encode(value, limit, where)  # refuses what _in_order could run away on
    return encode(_in_order(value), limit, where)


def _in_order(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _in_order(value[key]) for key in sorted(value)}
    if kind is list or kind is tuple:
        return [_in_order(item) for item in value]
    return value


# --- the quick pass -------------------------------------------------------------------------------

_ATOMS = frozenset({int, bool, type(None)})


def _walk(items: Iterable[Any], left: int, depth: int) -> int:
    """How much of ``left`` bytes remains after ``items``, counting what they take at least.

    Counting on the way down ends the walk of a small value that expands (a list of the same list,
    thirty times over). Long for speed: a call for each item would cost more than the rest. What
    packing itself finds is not looked for: integers over 64 bits, surrogates, keys of a subclass
    of str.
    """
    if left < 0:
        raise _Huge
    if depth > MAX_DEPTH:
        raise _Odd
    for item in items:
        kind = type(item)
        if kind is str or kind is bytes:
            left -= len(item)
        elif kind in _ATOMS:
            pass
        elif kind is dict:
            # join is the quickest test for "only str": it refuses anything else.
            left -= len(item) + len("".join(item))
            left = _walk(item.values(), left, depth + 1)
        elif kind is list or kind is tuple:
            left = _walk(item, left - len(item), depth + 1)
        elif kind is float:
            if item != item:
                raise _Odd
        elif kind is set or kind is frozenset:
            left = _walk(item, left - len(item), depth + SET_DEPTH)
        elif kind not in _EXTENSIONS:
            raise _Odd
    if left < 0:
        raise _Huge
    return left


#: Packers not in use. Taking one is atomic, so threads, greenlets and packers inside packers each
#: have their own; making one costs three times as much as packing small arguments.
_spare: list[Any] = []


def _pack(value: Any) -> bytes:
    try:
        packer = _spare.pop()
    except IndexError:
        packer = msgpack.Packer(default=_extend, strict_types=True, buf_size=4096)
    data: bytes = packer.pack(value)
    if len(data) <= _KEEP_BYTES:
        _spare.append(packer)
    return data


# --- extension types ------------------------------------------------------------------------------


def _extend(value: Any) -> Any:
    """The packer's hook: called for whatever msgpack has no form for."""
    kind = type(value)
    if kind is tuple:
        return list(value)
    form = _EXTENSIONS.get(kind)
    if form is None:
        raise _Odd
    code, to_bytes = form
    return msgpack.ExtType(code, to_bytes(value))


def _datetime_bytes(value: datetime | time) -> bytes:
    """ISO text (with the offset), fold, and the name of the zone as a key or as a mere name.

    The offset is there beside the key because rules differ between machines: then the instant is
    kept, not the wall clock's reading.
    """
    key, name = _zone(value.tzinfo)
    form = [value.isoformat(), value.fold, key, name]
    # A foreign tzinfo becomes a fixed offset. In the hour that happens twice Python calls the two
    # unequal, and then it may not go.
    zone = value.tzinfo
    if not (zone is None or type(zone) is timezone) and _moment(type(value), form) != value:
        raise _Odd
    return _pack(form)


def _zone(zone: tzinfo | None) -> tuple[str | None, str | None]:
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key, None
    if type(zone) is timezone and zone is not UTC:
        name = zone.tzname(None)
        return None, name if name != timezone(zone.utcoffset(None)).tzname(None) else None
    return None, None


def _moment(kind: type[datetime] | type[time], form: list[Any]) -> datetime | time:
    text, fold, key, name = form
    moment = kind.fromisoformat(text)
    if text[-16:-15] in ("+", "-") and text[-15:-6] == "00:00:00.":
        # Python takes an offset of less than a second for none.
        micros = int(text[-16:-15] + text[-6:])
        moment = moment.replace(tzinfo=timezone(timedelta(microseconds=micros)))
    if fold:
        moment = moment.replace(fold=fold)
    if key is not None:
        return _in_zone(moment, key)
    if name is not None:
        offset = moment.utcoffset()
        assert offset is not None
        return moment.replace(tzinfo=timezone(offset, name))
    return moment


def _in_zone(moment: datetime | time, key: str) -> datetime | time:
    try:
        zone = ZoneInfo(key)
    except Exception:
        raise PayloadError(
            f"the time zone {key!r} is not known on this machine: install the tzdata package"
        ) from None
    there = moment.replace(tzinfo=zone)
    if isinstance(moment, datetime) and there.utcoffset() != moment.utcoffset():
        return moment.astimezone(zone)
    return there


def _decimal_bytes(value: Decimal) -> bytes:
    if value.is_nan():
        raise _Odd
    return str(value).encode()


def _set_bytes(value: set[Any] | frozenset[Any]) -> bytes:
    # Sorted: the order of a set changes from process to process, and a repeated submit must make
    # the same bytes.
    header: bytes = msgpack.Packer(buf_size=16).pack_array_header(len(value))
    return header + b"".join(sorted(map(_pack, value)))


_EXTENSIONS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    datetime: (DATETIME, _datetime_bytes),
    date: (DATE, lambda value: value.isoformat().encode()),
    time: (TIME, _datetime_bytes),
    timedelta: (TIMEDELTA, lambda value: _pack([value.days, value.seconds, value.microseconds])),
    Decimal: (DECIMAL, _decimal_bytes),
    UUID: (UUID_, lambda value: value.bytes),
    set: (SET, _set_bytes),
    frozenset: (FROZENSET, _set_bytes),
}


def _revive(sets: int, code: int, data: bytes) -> Any:
    """The unpacker's hook. ``sets`` is how many sets this value is inside of."""
    if code in (DATETIME, TIME):
        return _moment(datetime if code == DATETIME else time, msgpack.unpackb(data))
    if code == DATE:
        return date.fromisoformat(data.decode())
    if code == TIMEDELTA:
        return timedelta(*msgpack.unpackb(data))
    if code == DECIMAL:
        return Decimal(data.decode())
    if code == UUID_:
        return UUID(bytes=data)
    if code == SEALED:
        return Sealed(data)
    if code in (SET, FROZENSET):
        if sets + 1 == len(_REVIVE):
            raise PayloadError(f"sets are nested more than {sets} deep")
        # A list can not have been in a set, so every array here was a tuple.
        members = msgpack.unpackb(data, ext_hook=_REVIVE[sets + 1], timestamp=3, use_list=False)
        return set(members) if code == SET else frozenset(members)
    raise NewerRelease(f"extension type {code} is not known: written by a newer Skedulr?")


#: The hook for a value inside of so many sets.
_REVIVE = [partial(_revive, sets) for sets in range(MAX_DEPTH // SET_DEPTH + 1)]


def _unreadable(error: Exception) -> PayloadError:
    why = str(error) or type(error).__name__
    kind = NewerRelease if isinstance(error, NewerRelease) else PayloadError
    return kind(f"a stored value can not be read: {why}")


# --- the slow pass: where is it, what is it, what to do -------------------------------------------


def _refusal(value: Any, where: str, error: Exception) -> PayloadError:
    try:
        for path, problem in _problems(value, where, 0, ()):
            return PayloadError(f"{_short(path, 300)} {problem}")
    except Exception as second:  # a RecursionError near the caller's own limit, a hostile class
        error = second
    return PayloadError(f"{where} can not be encoded: {type(error).__name__}: {error}")


def _problems(
    value: Any, path: str, depth: int, above: tuple[int, ...]
) -> Iterator[tuple[str, str]]:
    """Each (path, what is wrong there and what to do), first to last; we only need the first."""
    kind = type(value)
    if kind not in _CONTAINERS:
        problem = _atom_problem(value)
        if problem:
            yield path, problem
        return
    if id(value) in above:
        yield path, "contains itself: pass a value without cycles"
        return
    depth += SET_DEPTH if kind in _SETS else 1
    if depth > MAX_DEPTH:
        yield path, _TOO_DEEP
        return
    above = (*above, id(value))
    if kind is dict:
        for key in value:
            if type(key) is not str:
                yield path, f"has {_key_text(key)} as a key: keys must be str"
            elif not _is_utf8(key):
                yield path, f"has the key {_short(repr(key), 60)}, {_SURROGATE}"
    for step, item in _steps(value):
        yield from _problems(item, path + step, depth, above)


_SETS = frozenset({set, frozenset})
_CONTAINERS = _SETS | {dict, list, tuple}
_TOO_DEEP = f"is nested more than {MAX_DEPTH} deep (a set counts as {SET_DEPTH}): pass it flatter"
_SURROGATE = "a str with a lone surrogate, which UTF-8 has no form for: pass bytes"


def _steps(container: Any) -> Iterator[tuple[str, Any]]:
    """Each item of the container with what to add to its path."""
    kind = type(container)
    if kind is dict:
        for key, item in container.items():
            yield f"[{_short(repr(key), 60)}]", item
    elif kind in _SETS:
        for item in container:
            yield "{member}", item
    else:
        for index, item in enumerate(container):
            yield f"[{index}]", item


def _atom_problem(value: Any) -> str | None:
    kind = type(value)
    if kind is int:
        if -(2**63) <= value < 2**64:
            return None
        return "is an int outside 64 bits: pass a str or a Decimal"
    if (kind is float and value != value) or (kind is Decimal and value.is_nan()):
        return "is NaN, which is not equal to itself: pass None"
    if kind is str:
        return None if _is_utf8(value) else f"is {_SURROGATE}"
    if kind is datetime or kind is time:
        return _moment_problem(value)
    if kind in _EXTENSIONS or kind in _ATOMS or kind is float or kind is bytes:
        return None
    return f"is of type {_type_name(kind)}, which would not come back equal: pass {_advice(value)}"


def _moment_problem(value: datetime | time) -> str | None:
    try:
        _datetime_bytes(value)
    except Exception:
        zone = _type_name(type(value.tzinfo))
        return f"has a time zone ({zone}) that can not be carried: use zoneinfo.ZoneInfo, or UTC"
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _advice(value: Any) -> str:
    """What to pass instead. Looks at the type alone: the value's own code is not run."""
    kind = type(value)
    if issubclass(kind, enum.Enum):
        return "its .value"
    if dataclasses.is_dataclass(kind):
        return "dataclasses.asdict(value)"
    if issubclass(kind, tuple) and hasattr(kind, "_asdict"):
        return "value._asdict() or tuple(value)"
    if kind.__module__.partition(".")[0] == "numpy":
        return "value.tolist()"
    for base, advice in _INSTEAD:
        if issubclass(kind, base):
            return advice
    if issubclass(kind, (Iterator, MappingView)):
        return "list(value)"
    return "its id, or its fields as a dict"


#: First match wins, so datetime stands before date.
_INSTEAD: tuple[tuple[type, str], ...] = (
    (datetime, "datetime.fromisoformat(value.isoformat())"),
    (date, "date.fromordinal(value.toordinal())"),
    (timedelta, "a plain timedelta"),
    (dict, "dict(value)"),
    (list, "list(value)"),
    (tuple, "list(value)"),
    (set, "set(value)"),
    (frozenset, "frozenset(value)"),
    (str, "str(value)"),
    (bytes, "bytes(value)"),
    (bytearray, "bytes(value)"),
    (memoryview, "bytes(value)"),
    (int, "int(value)"),
    (float, "float(value)"),
    (complex, "[value.real, value.imag]"),
    (range, "list(value)"),
    (Decimal, "a plain Decimal"),
    (UUID, "a plain UUID"),
    (os.PathLike, "str(value)"),
    (BaseException, "str(value)"),
    (type, "its name"),
    (FunctionType, "its name"),
)


def _key_text(key: Any) -> str:
    kind = type(key)
    if kind in _ATOMS or kind is bytes or kind is float:
        return f"{_short(repr(key), 60)} ({kind.__name__})"
    return f"a value of type {_type_name(kind)}"


def _type_name(kind: type) -> str:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return _short(module + kind.__qualname__, 120)


def _short(text: str, length: int) -> str:
    """At most ``length`` characters, with the middle left out."""
    if len(text) <= length:
        return text
    half = (length - 3) // 2
    return f"{text[:half]}...{text[-half:]}"

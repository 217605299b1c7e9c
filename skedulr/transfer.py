"""A file of exported pools: what its lines are, how they are written and read again.

A line is a map whose ``kind`` comes first. In a file of JSON lines it is one line, bytes in it are
base64 (the fields in ``BYTES``); in a msgpack file it is one value of the stream. The order is:

``skedulr-export``  the head: format, release, namespace, time, how much there is of each pool
``pool``            begins a pool: whether it is paused, how its ready work is kept
``limit``           a limit that the pool knows, and what was set in its place
``lock``            a unique key that is locked for a time
``schedule``        one that was made through the API
``edges``           the tasks that wait (or waited) for a task of the pool
``task``            one that has not ended: where it is, its journal, what scripts know of it
``record``          one that has ended
``end``             how many of each there were: where it is missing, the file was cut

Journals (envelope, attempts, result) are in it byte by byte: nothing here reads them. Fields and
kinds that a later release adds within the same format are left alone by an earlier one.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import msgpack

from . import __version__
from .errors import ConfigError, PayloadError
from .keys import check_name
from .message import envelope_of

#: Grows when an earlier release can not read the file any more.
FORMAT = 1
HEAD, END = "skedulr-export", "end"
MSGPACK, JSONL = "msgpack", "jsonl"
FORMATS = (MSGPACK, JSONL)

#: The fields that hold bytes.
BYTES = frozenset(("body", "definition"))
#: The last value of a msgpack file's last line, so that its end can be known from its last bytes.
_LAST = "end of export"
#: The last line of a file of JSON lines is shorter.
_TAIL_BYTES = 65_536
#: No line of ours is longer: a result of 8 MiB, and the tracebacks of many attempts.
_LINE_BYTES = 1_073_741_824

Line = dict[str, Any]

#: What a line of each kind has to have, and of which type it is.
_FIELDS: dict[str, dict[str, type]] = {
    "pool": {"paused": bool},
    "limit": {"id": str, "text": str},
    "lock": {"digest": str, "holder": str, "until": int},
    "schedule": {"name": str, "definition": bytes, "state": str},
    "edges": {"uid": str, "edges": list},
    "task": {"uid": str, "state": str, "body": bytes},
    "record": {"uid": str, "body": bytes, "ended": int, "dead": bool},
}
#: And a task, by where it is.
_PLACED: dict[str, dict[str, type]] = {
    "queued": {}, "scheduled": {"due": int}, "waiting": {"since": int, "waits": str},
}


class Damaged(ConfigError):
    """A file that is none of ours, of a newer format, cut, or has a line nobody can read."""


# ------------------------------------------------------------------------------------ writing


def writer(file: IO[bytes], form: str) -> Callable[[Line], None]:
    """What writes lines to ``file`` as MSGPACK or JSONL."""
    if form == JSONL:
        return lambda line: _write_json(file, line)
    pack = msgpack.Packer(unicode_errors="surrogateescape").pack
    return lambda line: _write_packed(file, pack, line)


def _write_json(file: IO[bytes], line: Line) -> None:
    shown = {
        name: base64.b64encode(value).decode() if name in BYTES else value
        for name, value in line.items()
    }
    if "body" in line:
        # For people and their tools; nobody reads it in again.
        shown["name"] = _name_in(line["body"])
    file.write(json.dumps(shown, separators=(",", ":")).encode() + b"\n")


def _write_packed(file: IO[bytes], pack: Callable[[Any], bytes], line: Line) -> None:
    file.write(pack({**line, "last": _LAST} if line["kind"] == END else line))


def _name_in(body: bytes) -> str | None:
    """The task's name, where the beginning of its journal can be read."""
    try:
        whole = msgpack.unpackb(
            envelope_of(body), raw=False, ext_hook=lambda *it: None, strict_map_key=False
        )
    except (PayloadError, ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None
    known = isinstance(whole, list) and len(whole) > 1 and isinstance(whole[1], str)
    return whole[1] if known else None


# ------------------------------------------------------------------------------------ reading


def form_of(file: io.BufferedReader) -> str:
    """MSGPACK or JSONL, by how it begins; Damaged for what is neither."""
    first = file.peek(1)[:1]
    if first == b"{":
        return JSONL
    if first and (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF)):
        return MSGPACK
    raise Damaged("it is no export of Skedulr" if first else "it is empty")


def read(file: io.BufferedReader) -> Iterator[Line]:
    """The lines of a file, the head first, each checked: its kind, its names, the types of what it
    has to have. A file that was cut ends without a line of kind END.

    Raises Damaged for a file of something else, of a newer format, or a line nobody can read.
    """
    rows = _read_json(file) if form_of(file) == JSONL else _read_packed(file)
    for number, line in enumerate(rows, 1):
        if number == 1:
            _check_head(line)
        else:
            _check(number, line)
        yield line
        if line["kind"] == END:
            return


def is_cut(file: IO[bytes]) -> bool | None:
    """Whether a file has no end, by its last bytes; None where it can not be looked at twice."""
    try:
        at = file.tell()
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read()
        file.seek(at)
    except (OSError, ValueError):
        return None
    if tail.endswith(msgpack.packb(_LAST)):
        return False
    last = tail.rstrip(b"\n").rpartition(b"\n")[2]
    try:
        return bool(json.loads(last)["kind"] != END)
    except (ValueError, KeyError, TypeError):
        return True


def _read_json(file: IO[bytes]) -> Iterator[Line]:
    for number, text in enumerate(file, 1):
        try:
            line = json.loads(text)
            for name in BYTES & line.keys():
                line[name] = base64.b64decode(line[name], validate=True)
        except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
            if number > 1 and not text.endswith(b"\n"):
                return  # cut in the middle of a line
            raise _unreadable(number, error) from None
        yield line


def _read_packed(file: IO[bytes]) -> Iterator[Line]:
    rows = msgpack.Unpacker(
        file, raw=False, strict_map_key=False, unicode_errors="surrogateescape",
        max_buffer_size=_LINE_BYTES, read_size=65_536,
    )
    number = 0
    while True:
        number += 1
        try:
            line = rows.unpack()
        except msgpack.OutOfData:
            return  # at its end, or cut in the middle of a line
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise _unreadable(number, error) from None
        yield line


def _unreadable(number: int, error: Exception) -> Damaged:
    if number == 1:
        return Damaged("it is no export of Skedulr")
    return Damaged(f"line {number:,} can not be read: {error}")


def _check_head(head: Any) -> None:
    if not isinstance(head, dict) or head.get("kind") != HEAD:
        raise Damaged("it is no export of Skedulr")
    if head.get("format") != FORMAT:
        raise Damaged(
            f"it has format {head.get('format')!r}, written by Skedulr {head.get('release')}; this "
            f"release ({__version__}) reads format {FORMAT}"
        )
    for name, kind in (("id", str), ("namespace", str), ("pools", dict)):
        if not isinstance(head.get(name), kind):
            raise Damaged(f"its head has no usable {name!r}")
    try:
        for pool, sizes in head["pools"].items():
            check_name("pool", pool)
            if not all(isinstance(one, int) for one in sizes.values()):
                raise Damaged(f"its head does not say how much there is of pool {pool!r}")
    except (AttributeError, TypeError):
        raise Damaged("its head has no usable 'pools'") from None


def _check(number: int, line: Any) -> None:
    kind = line.get("kind") if isinstance(line, dict) else None
    if not isinstance(kind, str):
        raise Damaged(f"line {number:,} is none of an export")
    wanted = _FIELDS.get(kind)
    if wanted is None:
        return
    placed = _PLACED.get(line.get("state")) if kind == "task" else {}
    if placed is None:
        raise Damaged(f"line {number:,}: a task is {line.get('state')!r}, and nobody knows where "
                      "that is")
    for name, types in {"pool": str, **wanted, **placed}.items():
        if not isinstance(line.get(name), types):
            raise Damaged(f"line {number:,}, a {kind}, has no usable {name!r}")
    try:
        check_name("pool", line["pool"])
    except ConfigError as error:
        raise Damaged(f"line {number:,}: {error}") from None


def total_of(head: Mapping[str, Any]) -> int:
    """About how many lines follow a head."""
    return sum(sum(sizes.values()) for sizes in head["pools"].values())

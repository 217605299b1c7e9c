"""Looking into a pool whose ready work is a stream; ``transport.lua`` says how it is kept.

What the stream holds up to the last entry delivered is claimed, what lies behind waits. An entry is
``<place>-0``. Entries of tasks that were taken out while they waited stay until a claim or a sweep
gets there; ``removed`` counts them, all together under the empty field.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .keys import PoolKeys

GROUP = "workers"
#: Entries read at once.
WINDOW = 200
#: What every place in a stream is above: it has priority 0.
FIRST_PLACE = 100 * 2**44


class Asker(Protocol):
    """What looking needs of a connection."""

    def call(self, *command: Any) -> Any: ...

    def calls(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Group:
    """How many entries are claimed, and the place of the last that ever was."""

    pending: int
    last_place: int

    @classmethod
    def read(cls, groups: Sequence[Sequence[Any]]) -> Group:
        """From the answer of XINFO GROUPS."""
        if not groups:
            return cls(0, 0)
        facts = dict(zip(groups[0][::2], groups[0][1::2], strict=True))
        last: bytes = facts[b"last-delivered-id"]
        return cls(facts[b"pending"], int(last.partition(b"-")[0]))


def is_streamed(wire: Asker, keys: PoolKeys) -> bool:
    """Whether the pool's ready work is kept in a stream."""
    return bool(wire.call("HGET", keys.meta, "transport") == b"streams")


def group_of(wire: Asker, keys: PoolKeys) -> Group:
    """The pool's group; an empty one where there is no stream (yet)."""
    if not wire.call("EXISTS", keys.stream):
        return Group(0, 0)
    return Group.read(wire.call("XINFO", "GROUPS", keys.stream))


def queued(length: int, group: Group, removed: bytes | None) -> int:
    """How many tasks wait in a stream of that length."""
    return max(0, length - group.pending - int(removed or 0))


def newest_first(
    wire: Asker, keys: PoolKeys, *, claimed: bool, below: str = "+"
) -> Iterator[tuple[str, int]]:
    """(uid, place) of what is claimed, or of what waits, window by window. ``below`` is where to
    begin: a place, "(" before it where that one is not meant."""
    last = group_of(wire, keys).last_place
    low = "-" if claimed else f"({last}-0"
    high = "+" if below == "+" else f"{below}-0"
    if claimed and (below == "+" or int(below.lstrip("(")) > last):
        high = f"{last}-0"
    while True:
        entries = wire.call("XREVRANGE", keys.stream, high, low, "COUNT", WINDOW)
        for entry, fields in entries:
            yield fields[1].decode(), place_of(entry)
        if len(entries) < WINDOW:
            return
        high = "(" + entries[-1][0].decode()


def oldest_first(
    wire: Asker, keys: PoolKeys, size: int, *, above: int = 0
) -> Iterator[list[bytes]]:
    """Pages of the uids of all entries behind a place."""
    low = f"({above}-0" if above else "-"
    while True:
        entries = wire.call("XRANGE", keys.stream, low, "+", "COUNT", size)
        if entries:
            yield [fields[1] for _, fields in entries]
            low = "(" + entries[-1][0].decode()
        if len(entries) < size:
            return


def place_of(entry: bytes) -> int:
    """``<place>-0``."""
    return int(entry.partition(b"-")[0])

"""The lead of a namespace in Redis: one method per script, and the plain reads beside them.

One node leads at a time, under a term that only grows. What a leader writes is written behind a
look at node and term, in one step, so that a leader that was stopped for a while changes nothing
when it wakes. Each method may run twice without harm, but ``steer`` and ``tell``, after which
nothing is lost by not asking again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgpack

from .keys import PoolKeys, SpaceKeys
from .redis_scripts import script
from .wire import Runner

#: For how long the lead is taken, seconds: after the death of a leader another one follows within
#: this and a moment.
TTL_S = 5.0
#: How long tuned pools, or those who listen, are kept in mind after the last word of them, seconds.
MINDED_S = 30.0
#: What a leader saw is worth nothing after this, seconds.
SEEN_S = 30.0
#: How long it is known which crossing was told, seconds.
NOTICED_S = 30 * 86_400.0
#: Decisions that are kept.
MOST_DECISIONS = 200
#: The field that counts changes; no pool can be called so.
VERSION = "#"


class Beat(NamedTuple):
    """What a node hears in answer to its beat. ``term`` 0: nobody leads. ``records`` of all nodes,
    and the pools that were ``sized`` by hand, only a leader hears that is to watch pools, and where
    there are hundreds not even that one: None, and it has to ask."""

    now_ms: int
    term: int
    left_ms: int
    leader: str
    sizes: int
    tuning: int
    watched: bool
    listening: bool
    records: Sequence[bytes] | None = None
    sized: Sequence[bytes] | None = None


class Sample(NamedTuple):
    """A pool as the leader sees it: tasks queued and claimed, attempts ended since ever."""

    now_ms: int
    queued: int
    claimed: int
    ended: int
    paused: bool


class Heard(NamedTuple):
    """What the leader saw last, as those who listen hear it."""

    number: int
    leader: str
    term: int
    saw: dict[str, Any]


class Holder(NamedTuple):
    """Who leads; ``node`` None: nobody."""

    node: str | None
    term: int


class LeadStore:
    """The lead of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.space, self._namespace = SpaceKeys(namespace), namespace

    # Every node

    def beat(
        self, wire: Runner, node: str, *, willing: bool, known_term: int, tuned: bool,
        record: bytes = b"", pools: Sequence[str] = (), ttl_s: float = TTL_S,
    ) -> Beat:
        """Renew the lead or take it where it is free; keep the node's record where one is given."""
        now_ms, term, left_ms, leader, *counts = self._run(wire, "beat", [
            node, round(ttl_s * 1000), "1" if willing else "0", known_term,
            round(MINDED_S * 1000) if tuned else 0, record, *(pools if record else ()),
        ])
        sizes, tuning, watched, listening, *seen = counts
        return Beat(now_ms, term, left_ms, leader.decode(), sizes, tuning, bool(watched),
                    bool(listening), *seen)

    def resign(self, wire: Runner, node: str, term: int) -> bool:
        """Let go of the lead, and tell the others; False where it was another's by now."""
        return bool(self._run(wire, "resign", [node, term, self.space.control, "lead /"])[1])

    def tuned_sizes(self, wire: Runner) -> tuple[int, dict[str, Any]]:
        """How often the leader changed sizes, and what it said of each pool last."""
        return read_sizes(wire.call("HGETALL", self.space.tuning))

    # The leader

    def sample(self, wire: Runner, pool: str) -> Sample:
        """How busy a pool is."""
        called, keys = script("sample"), PoolKeys(self._namespace, pool)
        now_ms, queued, claimed, ended, paused = wire.run(called, keys.of(called.keys), [])
        return Sample(now_ms, queued, claimed, ended, bool(paused))

    def steer(
        self, wire: Runner, node: str, term: int, *, sizes: Sequence[tuple[str, Any]],
        decisions: Sequence[dict[str, Any]],
    ) -> int:
        """Publish sizes and note decisions; -1: it does not lead any more and nothing was done."""
        flat = [part for pool, size in sizes for part in (pool, msgpack.packb(size))]
        version: int = self._run(wire, "steer", [
            node, term, MOST_DECISIONS, self.space.control, "tuned /" if sizes else "",
            len(decisions), *map(msgpack.packb, decisions), *flat,
        ])[1]
        return version

    def tell(self, wire: Runner, node: str, term: int, saw: dict[str, Any]) -> int:
        """Say what was seen to those who listen; its number, or -1 as above."""
        number: int = self._run(
            wire, "tell", [node, term, round(SEEN_S * 1000), msgpack.packb(saw)]
        )[1]
        return number

    # Those who listen

    def listen(self, wire: Runner) -> Heard | None:
        """What the leader saw last; None where nobody leads, or has not looked yet."""
        _, *heard = self._run(wire, "listen", [round(MINDED_S * 1000)])
        if not heard:
            return None
        number, leader, term, saw = heard
        return Heard(number, leader.decode(), int(term), msgpack.unpackb(saw))

    def notice(
        self, wire: Runner, number: int, notes: Sequence[tuple[str, str]]
    ) -> list[str | None] | None:
        """For each (what, new value): the value before, where this process is the first to note
        it, so that it is the one to say so; else None. None alone: what it heard is old."""
        flat = [part for note in notes for part in note]
        _, *before = self._run(wire, "notice", [number, round(NOTICED_S * 1000), *flat])
        if len(before) < len(notes):
            return None
        return [None if one == 0 else one.decode() for one in before]

    def _run(self, wire: Runner, name: str, args: list[Any]) -> Any:
        called = script(name)
        return wire.run(called, [getattr(self.space, key) for key in called.keys], args)


def read_sizes(flat: Any) -> tuple[int, dict[str, Any]]:
    """The version and the pools' entries of a ``tuning`` hash as Redis gives it."""
    if isinstance(flat, dict):
        flat = [part for pair in flat.items() for part in pair]
    version, sizes = 0, {}
    for name, packed in zip(flat[::2], flat[1::2], strict=True):
        if name.decode() == VERSION:
            version = int(packed)
            continue
        try:
            sizes[name.decode()] = msgpack.unpackb(packed)
        except (ValueError, msgpack.UnpackException):
            continue  # another release's: the leader writes it anew
    return version, sizes


def holder_of(fields: Sequence[bytes | None], now_ms: int) -> Holder:
    """Who leads, by the fields ``node``, ``term`` and ``until`` of the ``leader`` hash."""
    node, term, until = fields
    if node is None or int(until or 0) <= now_ms:
        return Holder(None, int(term or 0))
    return Holder(node.decode(), int(term or 0))


class Reign(NamedTuple):
    """Who leads under which term, since when (epoch seconds; None where an older release took the
    lead), and why the lead was free, in words."""

    node: str
    term: int
    since_s: float | None
    why: str


#: The fields of the ``leader`` hash that ``reign_of`` reads.
REIGN_FIELDS = ("node", "term", "until", "since", "how")
_REASONS = {
    "first": "nobody had led before", "forgotten": "Redis had lost who led before",
    "silent": "node {} was not heard of any more", "resigned": "node {} stopped and let go of it",
}


def reign_of(fields: Sequence[bytes | None], now_ms: int) -> Reign | None:
    """The present leader by those fields; None where nobody leads.

    >>> reign_of([b"n2", b"7", b"9000", b"1500", b"silent n1"], 8000)
    Reign(node='n2', term=7, since_s=1.5, why='node n1 was not heard of any more')
    """
    holder = holder_of(fields[:3], now_ms)
    if holder.node is None:
        return None
    since, how = fields[3:]
    word, _, before = (how or b"").decode().partition(" ")
    return Reign(
        holder.node, holder.term, int(since) / 1000 if since else None,
        _REASONS.get(word, "").format(before),
    )


def decisions_of(packed: Sequence[bytes]) -> list[dict[str, Any]]:
    """Decisions as they are kept, newest first; what can not be read is left out."""
    found = []
    for one in packed:
        try:
            found.append(dict(msgpack.unpackb(one)))
        except (ValueError, TypeError, msgpack.UnpackException):
            continue
    return found

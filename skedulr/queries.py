"""The read side: tasks, pools and lists as the HTTP interface shows them.

Nothing here scans or changes anything. Lists go by sorted sets and carry a cursor; counts are
ZCARDs. Times are epoch seconds, None where there is none yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import message
from .errors import ConfigError, PayloadError, nearest
from .keys import PoolKeys, SpaceKeys
from .wire import Wire

STATES = (
    "waiting", "scheduled", "queued", "running", "succeeded", "dead", "cancelled", "skipped",
    "expired",
)
#: The most items a page of a list has.
MOST_ITEMS = 500

_Row = Mapping[str, Any]


class PoolQueries:
    """What can be asked about the tasks of one pool."""

    def __init__(self, keys: PoolKeys) -> None:
        self.keys = keys

    def state(self, wire: Wire, uid: str) -> str | None:
        """The task's state, or None for an unknown uid."""
        found = self._find(wire, uid)
        return found[0] if found else None

    def task(self, wire: Wire, uid: str) -> dict[str, Any] | None:
        """The task as the HTTP interface shows it, or None for an unknown uid."""
        found = self._find(wire, uid)
        return task_view(self.keys.pool, uid, *found) if found else None

    def counts(self, wire: Wire) -> dict[str, int]:
        """How many tasks are in each place, and the totals since ever."""
        k = self.keys
        queued = wire.call("ZCARD", k.ready)
        return {
            "queued": queued,
            "scheduled": wire.call("ZCARD", k.delayed),
            "running": wire.call("HLEN", k.claims),
            "dead": wire.call("ZCARD", k.dead),
            "succeeded": int(wire.call("HGET", k.stats, "succeeded") or 0),
            "failed": int(wire.call("HGET", k.stats, "failed") or 0),
        }

    def page(
        self, wire: Wire, state: str | None, limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Tasks in ``state`` (None: every state), newest first where they ended, and where the
        next page begins (None: nowhere)."""
        items: list[dict[str, Any]] = []
        for kind in _places(state):
            total = wire.call(*self._count(kind))
            if offset >= total:
                offset -= total
                continue
            while len(items) < limit and offset < total:
                uids = wire.call(*self._range(kind, offset, limit - len(items)))
                if not uids:
                    break
                offset += len(uids)
                views = (self.task(wire, uid.decode()) for uid in uids)
                items += [view for view in views if view and state in (None, view["state"])]
            if len(items) >= limit:
                return items, self._passed(wire, state, kind) + offset
            offset = 0
        return items, None

    def _passed(self, wire: Wire, state: str | None, kind: str) -> int:
        places = _places(state)
        return sum(wire.call(*self._count(one)) for one in places[: places.index(kind)])

    def _count(self, kind: str) -> tuple[str, str]:
        return "ZCARD", getattr(self.keys, kind)

    def _range(self, kind: str, offset: int, count: int) -> tuple[Any, ...]:
        last = offset + count - 1
        if kind in ("done", "dead"):
            return "ZREVRANGE", getattr(self.keys, kind), offset, last
        return "ZRANGE", getattr(self.keys, kind), offset, last

    def _find(self, wire: Wire, uid: str) -> tuple[str, bytes, dict[str, Any]] | None:
        """State, journal and facts of a task. Looks again where it moved between two looks."""
        k = self.keys
        for _ in range(3):
            record = wire.call("HGET", k.records, uid)
            if record is not None:
                return _end_state(record), record, {}
            body = wire.call("HGET", k.tasks, uid)
            if body is None:
                continue
            facts = {"header": (wire.call("HGET", k.info, uid) or b"").decode()}
            claim = wire.call("HGET", k.claims, uid)
            if claim is not None:
                facts["claim"] = claim.decode()
                return "running", body, facts
            due = wire.call("ZSCORE", k.delayed, uid)
            if due is not None:
                return "scheduled", body, facts | {"due_ms": float(due)}
            place = wire.call("ZSCORE", k.ready, uid)
            if place is not None:
                return "queued", body, facts | {"place": float(place)}
        return None


def pool_names(wire: Wire, space: SpaceKeys) -> list[str]:
    """Every pool that was ever used in the namespace, sorted."""
    return sorted(name.decode() for name in wire.call("HKEYS", space.pools))


def check_state(state: str | None) -> str | None:
    """``state`` itself; ConfigError where there is no such state."""
    if state is not None and state not in STATES:
        raise ConfigError(f"no state is called {state!r}{nearest(state, STATES)}")
    return state


def task_view(pool: str, uid: str, state: str, journal: bytes, facts: _Row) -> dict[str, Any]:
    """A task in the form DESIGN calls "task", from what Redis holds of it."""
    try:
        read = message.read_journal(journal)
    except PayloadError as error:
        return {"id": f"{pool}/{uid}", "uid": uid, "pool": pool, "state": state,
                "name": None, "unreadable": str(error)}
    ended = read.entries[-1] if read.end_state else None
    header = _header(str(facts.get("header", "")))
    token, _, started_ms = str(facts.get("claim", "")).partition(" ")[0], None, _started(facts)
    attempts = [one for one in read.entries if one.kind != message.RESUBMITTED]
    failures = [one for one in attempts if one.kind in (message.FAILED, message.DEAD)]
    return {
        "id": f"{pool}/{uid}", "uid": uid, "pool": pool, "name": read.name, "state": state,
        "priority": header["priority"] if header else _priority(facts),
        "attempt": _attempt(state, attempts, header),
        "max_retries": read.extras.get("max_retries"),
        "crashes": header["crashes"] if header else _crashes(read.entries),
        "progress": None, "note": None,
        "submitted_at": _epoch(read.submitted_ms),
        "due_at": _epoch(facts.get("due_ms") or (header and header["due"])),
        "started_at": _epoch(ended.started_ms if ended else started_ms),
        "finished_at": _epoch(ended.at_ms if ended else None),
        "result": ended.value if ended and ended.kind == message.SUCCEEDED else None,
        "error": _error(failures[-1] if failures else None, ended),
        "key": read.extras.get("key"), "tags": read.extras.get("tags") or [],
        "worker": (ended.worker if ended else token.rpartition(":")[0]) or None,
        "workflow": None, "depends_on": [],
        "args": read.args, "kwargs": read.kwargs,
    }


def _places(state: str | None) -> tuple[str, ...]:
    """The sorted sets that hold tasks of a state; leases stand for what runs."""
    if state is None:
        return ("leases", "ready", "delayed", "dead", "done")
    return {
        "queued": ("ready",), "scheduled": ("delayed",), "running": ("leases",),
        "dead": ("dead",), "waiting": (),
    }.get(state, ("done",))


def _end_state(record: bytes) -> str:
    try:
        return message.read_journal(record).end_state or "dead"
    except PayloadError:
        return "dead"


def _header(text: str) -> dict[str, Any] | None:
    parts = text.split(" ")
    if len(parts) < 4:
        return None
    priority, attempts, crashes, due = (int(part) for part in parts[:4])
    return {"priority": priority, "attempts": attempts, "crashes": crashes, "due": due or None}


def _priority(facts: _Row) -> int:
    """From the place in ready, or in the claim: the level is its upper part."""
    place = facts.get("place")
    if place is None:
        claim = str(facts.get("claim", "")).split(" ")
        place = float(claim[1]) if len(claim) == 3 else None
    return 100 - int(place // 2**44) if place else 0


def _started(facts: _Row) -> int | None:
    claim = str(facts.get("claim", "")).split(" ")
    return (int(claim[2]) or None) if len(claim) == 3 else None


def _attempt(state: str, attempts: list[message.Entry], header: _Row | None) -> int:
    if state == "running":
        return (header["attempts"] if header else 0) + 1
    numbers: Iterable[int] = (one.attempt for one in attempts)
    return header["attempts"] if header else max(numbers, default=0)


def _crashes(entries: list[message.Entry]) -> int:
    """Since the last fresh start: those charged and given back, and the one that killed it."""
    crashes = 0
    for one in entries:
        if one.kind == message.RESUBMITTED:
            crashes = 0
        elif one.kind == message.CRASHED or (
            one.kind == message.DEAD and one.value and one.value[0] == message.CRASHED_TYPE
        ):
            crashes += 1
    return crashes


def _error(last: message.Entry | None, ended: message.Entry | None) -> dict[str, str] | None:
    if ended is not None and ended.kind == message.SUCCEEDED:
        return None
    if last is not None and isinstance(last.value, list) and len(last.value) >= 3:
        type_, text, trace = last.value[:3]
        return {"type": type_, "message": text, "traceback": trace}
    if ended is not None and ended.value:
        return {"type": message.END_STATES[ended.kind], "message": str(ended.value), "traceback": ""}
    return None


def _epoch(ms: float | None) -> float | None:
    return ms / 1000 if ms else None



"""The read side: tasks, pools and lists as the HTTP interface shows them.

Nothing here scans or changes anything. Lists go by sorted sets and carry a cursor; counts are
ZCARDs. Times are epoch seconds, None where there is none yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import streams
from .errors import ConfigError, nearest
from .keys import PoolKeys, SpaceKeys
from .streams import FIRST_PLACE, is_streamed
from .views import Facts, attempts_view, task_view
from .wire import Wire

STATES = (
    "waiting", "scheduled", "queued", "running", "succeeded", "dead", "cancelled", "skipped",
    "expired",
)
#: The most items a page of a list has.
MOST_ITEMS = 500


class PoolQueries:
    """What can be asked about the tasks of one pool."""

    def __init__(self, keys: PoolKeys) -> None:
        self.keys = keys

    def look(self, wire: Wire, uids: Sequence[str]) -> list[Facts]:
        """What Redis holds of these tasks (at most 500), read in one step."""
        if not uids:
            return []
        k = self.keys
        hashes = (k.records, k.tasks, k.info, k.claims, k.progress)
        sorted_sets = (k.delayed, k.ready, k.suspects, k.parked)
        read = wire.calls([
            ("MULTI",),
            *(("HMGET", key, *uids) for key in hashes),
            *(("ZMSCORE", key, *uids) for key in sorted_sets),
            ("HMGET", k.waiting, *uids), ("HGET", k.meta, "transport"),
            ("EXEC",),
        ])[-1]
        # A stream does not tell whether a task is in it: what lives and is nowhere else is.
        unseen = float(FIRST_PLACE) if read.pop() == b"streams" else None
        found = [
            Facts(uid, record, body, header, claim, progress, _number(due),
                  _number(place) or _number(suspect) or _number(parked)
                  or (None if tied else unseen))
            for uid, record, body, header, claim, progress, due, place, suspect, parked, tied
            in zip(uids, *read, strict=True)
        ]
        self._say_what_parked_wait_for(wire, [
            facts for facts, parked in zip(found, read[-2], strict=True) if parked is not None
        ])
        return found

    def _say_what_parked_wait_for(self, wire: Wire, parked: Sequence[Facts]) -> None:
        if not parked:
            return
        sets = [_set_of(facts.header) for facts in parked]
        waits = wire.call("HMGET", self.keys.slots, *(f"@{one}" for one in sets))
        for facts, wait in zip(parked, waits, strict=True):
            # "!<key> <place> <set>"; gone where it was let out since.
            facts.waits_for = "" if wait is None else wait.split(b" ")[0].decode()[1:]

    def state(self, wire: Wire, uid: str) -> str | None:
        """The task's state, or None for an unknown uid."""
        return self.look(wire, [uid])[0].state

    def tasks(
        self, wire: Wire, uids: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Those of the tasks that are known, as the HTTP interface shows them."""
        return [
            task_view(self.keys.pool, facts, state)
            for facts in self.look(wire, uids) if (state := facts.state) is not None
        ]

    def task(self, wire: Wire, uid: str) -> dict[str, Any] | None:
        """The task as the HTTP interface shows it, or None for an unknown uid."""
        return next(iter(self.tasks(wire, [uid])), None)

    def attempts(self, wire: Wire, uid: str) -> list[dict[str, Any]]:
        """The attempts of a task that ended, oldest first; empty for an unknown uid."""
        facts = self.look(wire, [uid])[0]
        return attempts_view(facts) if facts.state is not None else []

    def counts(self, wire: Wire) -> dict[str, int]:
        """How many tasks are in each place, and the totals since ever."""
        k = self.keys
        queued = wire.call("ZCARD", k.ready)
        if is_streamed(wire, k):
            length, removed = wire.calls([("XLEN", k.stream), ("HGET", k.removed, "")])
            queued = streams.queued(length, streams.group_of(wire, k), removed)
        parked = wire.call("ZCARD", k.parked)
        return {
            "queued": queued + parked, "parked": parked,
            "scheduled": wire.call("ZCARD", k.delayed),
            "running": wire.call("HLEN", k.claims),
            "dead": wire.call("ZCARD", k.dead),
            "succeeded": int(wire.call("HGET", k.stats, "succeeded") or 0),
            "failed": int(wire.call("HGET", k.stats, "failed") or 0),
        }


def pool_names(wire: Wire, space: SpaceKeys) -> list[str]:
    """Every pool that was ever used in the namespace, sorted."""
    return sorted(name.decode() for name in wire.call("HKEYS", space.pools))


def check_state(state: str | None) -> str | None:
    """``state`` itself; ConfigError where there is no such state."""
    if state is not None and state not in STATES:
        raise ConfigError(f"no state is called {state!r}{nearest(state, STATES)}")
    return state


def _set_of(header: bytes | None) -> str:
    """The set of limits that a header names (see limit_text.lua)."""
    named = (header or b"").decode().partition(" l:")[2].partition(" ")[0]
    return named.partition("/")[0]


def _number(score: bytes | None) -> float | None:
    return None if score is None else float(score)

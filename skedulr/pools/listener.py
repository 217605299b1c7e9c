"""The listener: calls an app's hooks for the whole cluster, each thing once in the cluster.

Only children import the code in which hooks are, so hooks run there, in any pool and on any node.
Each child that has such hooks hears every other second what the leader saw, and of those that hear
the same, the first to note it in Redis calls its hooks. A child that dies after it noted something
has said it for the others: a call may be lost so, and none is made twice, also not by a new leader
or by a process that was stopped for a while.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from ..hooks import Hooks, Threshold
from ..hub.driver import Driver
from ..lead import Heard, LeadStore
from ..wire import Runner, WireError

log = logging.getLogger("skedulr.pool")

#: Between two times, seconds.
PAUSE_S = 2.0
#: A queue is long no more when its wait is under this part of the threshold.
BACK = 0.8
#: Between two calls of "stats" hooks, seconds.
STATS_S = 60

LONG, SHORT = "long", "short"


class Note(NamedTuple):
    """Something that may be new: what, its value, and what to call with it and the one before."""

    what: str
    value: str
    told: Any


class Listener:
    """Listens for one child; ``usual_s`` is the threshold of hooks that name none."""

    def __init__(
        self, *, store: LeadStore, wire: Runner, hooks: Hooks, driver: Driver, usual_s: float
    ) -> None:
        self._store, self._wire, self._hooks, self._driver = store, wire, hooks, driver
        self._usual_s = usual_s
        self._number = 0
        #: What is noted in Redis, as far as we know.
        self._known: dict[str, str] = {}

    def start(self) -> None:
        """Listen from now on, where there are hooks to call."""
        if any(map(self._hooks.has, ("long_queue", "leader_change", "stats"))):
            self._driver.after(0, self.look)
            self._driver.every(PAUSE_S, self.look, jitter=0.2)

    def look(self) -> None:
        """Hear what the leader saw last and call the hooks it is for."""
        try:
            heard = self._store.listen(self._wire)
            if heard is None or heard.number == self._number:
                return
            self._number = heard.number
            notes = [
                note for note in self._notes(heard) if self._known.get(note.what) != note.value
            ]
            before = self._store.notice(
                self._wire, heard.number, [(note.what, note.value) for note in notes]
            ) if notes else []
        except WireError as error:
            log.debug("can not hear of the cluster: %s", error)
            return
        if before is None:
            return  # there is a newer word already, and the next look brings it
        for note, was in zip(notes, before, strict=True):
            self._known[note.what] = note.value
            if was is not None:
                self._call(note, was)

    # What may be new

    def _notes(self, heard: Heard) -> list[Note]:
        notes = []
        if self._hooks.has("leader_change"):
            notes.append(Note("leader", f"{heard.term} {heard.leader}", heard.leader))
        stats = heard.saw["stats"]
        if self._hooks.has("stats"):
            notes.append(Note("stats", str(int(heard.saw["at"] // STATS_S)), stats))
        for one in self._hooks.thresholds:
            for pool in stats["pools"]:
                if one.pool in (None, pool["name"]):
                    notes += self._of_a_queue(one, pool)
        return notes

    def _of_a_queue(self, one: Threshold, pool: dict[str, Any]) -> list[Note]:
        seconds = self._usual_s if one.seconds is None else one.seconds
        wait = pool["predicted_wait"]
        if pool["paused"]:
            return []  # it waits because somebody wants it to
        if wait is None:
            # Nothing has ended for a while: how long it has been is all there is to go by.
            wait = pool["oldest_age"] or 0.0
        if BACK * seconds <= wait <= seconds:
            return []  # as it was
        long = wait > seconds
        told = {**pool, "threshold": seconds, "long": long, "wait": wait}
        return [Note(f"{pool['name']} {one.name(seconds)}", LONG if long else SHORT, told)]

    # Calling

    def _call(self, note: Note, was: str) -> None:
        if note.what == "leader":
            self._hooks.fire("leader_change", note.told, was.partition(" ")[2] or None)
        elif note.what == "stats":
            self._hooks.fire("stats", note.told)
        elif note.value == LONG or was == LONG:
            self._hooks.fire_threshold(
                note.what.partition(" ")[2], self._usual_s, note.told
            )

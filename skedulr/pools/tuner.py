"""The tuner: has the leader size the pools that were given as ``NAME=MIN..MAX``.

At each beat of a leader it looks at those pools in the whole cluster (the nodes' records, which the
beat brings, and one script a pool), asks ``tuning.py``, and publishes what changed: the total, and
the places among which every master shares it out. It is written behind the leader's term; who finds
that it leads no more forgets what it knew. A size that an operator set is left alone.

How far a predecessor had come is read with the sizes when a term begins. A node counts as long as
its record changes: by our own clock, since nodes' clocks may differ.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .. import tuning
from ..counts import SILENT_S, nodes_of
from ..lead import Beat, LeadStore, Sample, read_sizes
from ..tuning import Decision, Seen, State
from ..wires import SharedWire
from .shares import Place, pack

log = logging.getLogger("skedulr.master")

#: A node whose record did not change for so long is not counted, seconds.
LATE_S = 12.0
#: A pool is out of CPU where its processes use this part of a core, or their hubs are this late;
#: or where the node has less than so many free cores and they use that part.
FULL, LATE_MS, NO_CORES, BUSY = 0.85, 100, 0.1, 0.4
#: A node's memory counts less for its share below this part free.
ROOMY = 0.3
MANUAL, AUTO = "manual", "auto"


class Pool(NamedTuple):
    """A tuned pool in the whole cluster. ``most`` is what it may have, ``room`` what fits."""

    name: str
    places: list[Place]
    workers: int
    least: int
    most: int
    room: int
    low_s: float
    high_s: float
    out_of_cpu: bool

    @property
    def fixed(self) -> list[tuple[Any, ...]]:
        """What of its places calls for a new share when it changes: all but the weights."""
        return [place[:4] for place in self.places]


class Tuner:
    """Sizes pools while its node leads."""

    def __init__(
        self, *, store: LeadStore, wire: SharedWire, node: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._wire, self._node, self._monotonic = store, wire, node, monotonic
        self._term = 0
        self._busy = False
        self._states: dict[str, State] = {}
        #: The places among which each pool's total was shared last.
        self._shared: dict[str, list[tuple[Any, ...]]] = {}
        self._manual: set[str] = set()
        #: Of each node its last record's time, by its own clock, and when we saw that, by ours.
        self._beats: dict[str, tuple[float, float]] = {}

    def forget(self) -> None:
        """This node leads no more."""
        self._term = 0
        self._states.clear()
        self._shared.clear()
        self._beats.clear()

    def look(self, beat: Beat) -> None:
        """Look at every tuned pool once and publish what follows. Raises WireError."""
        if self._busy:
            return
        self._busy = True
        try:
            if beat.term != self._term:
                self._begin(beat.term)
            self._look(beat)
        finally:
            self._busy = False

    # A term

    def _begin(self, term: int) -> None:
        """Go on where the leader before came to."""
        self.forget()
        _, published = read_sizes(self._wire.call("HGETALL", self._store.space.tuning))
        for pool, entry in published.items():
            try:
                self._states[pool] = State.of(entry["state"])
            except (KeyError, TypeError, ValueError):
                continue  # another release's: begin anew
        self._term = term

    # A look

    def _look(self, beat: Beat) -> None:
        records, manual = beat.records, beat.sized
        if records is None or manual is None:
            records, manual = self._wire.calls([
                ("HVALS", self._store.space.nodes), ("HKEYS", self._store.space.sizes),
            ])
        nodes = self._living(nodes_of(records, beat.now_ms / 1000), beat.now_ms / 1000)
        set_by_hand = {name.decode() for name in manual}
        sizes: list[tuple[str, Any]] = []
        decisions: list[dict[str, Any]] = []
        for pool in pools_of(nodes):
            at_s = beat.now_ms / 1000
            decision = self._by_hand(pool, pool.name in set_by_hand)
            if pool.name not in set_by_hand:
                decision = self._decide(pool) or decision
                if self._is_to_be_shared(pool, decision):
                    state = self._states[pool.name]
                    sizes.append((
                        pool.name, {**pack(state.size, pool.places), "state": state.kept()}
                    ))
            if decision is not None:
                decisions.append(self._described(pool.name, at_s, decision))
        if (sizes or decisions) and self._store.steer(
            self._wire, self._node, self._term, sizes=sizes, decisions=decisions,
        ) < 0:
            log.warning("node %s does not lead any more: what it decided is dropped", self._node)
            self.forget()
            return
        for name, published in sizes:
            self._shared[name] = [tuple(place[:4]) for place in published["places"]]

    def _living(self, nodes: Sequence[dict[str, Any]], now_s: float) -> list[dict[str, Any]]:
        seen_at, living = self._monotonic(), []
        for node in nodes:
            beat_at = float(node["beat_at"])
            known = self._beats.get(node["id"])
            if known is None:
                # Seen for the first time: its own clock has to do.
                old = abs(now_s - beat_at) > SILENT_S
                known = self._beats[node["id"]] = beat_at, seen_at - (LATE_S if old else 0)
            elif known[0] != beat_at:
                known = self._beats[node["id"]] = beat_at, seen_at
            if seen_at - known[1] < LATE_S:
                living.append(node)
        return living

    def _by_hand(self, pool: Pool, manual: bool) -> Decision | None:
        """Whether an operator has taken the size over, or given it back, since the last look."""
        if manual == (pool.name in self._manual):
            return None
        state = self._states.get(pool.name)
        size = state.size if state is not None else pool.workers
        if manual:
            self._manual.add(pool.name)
            if state is not None:
                self._states[pool.name] = replace(state, last=None)
            why = "an operator set its size, which holds until: skedulr scale POOL reset"
            return Decision(MANUAL, pool.workers, pool.workers, why, 0.0, 0.0)
        self._manual.discard(pool.name)
        return Decision(AUTO, pool.workers, size, "its size was given back to tuning", 0.0, 0.0)

    def _decide(self, pool: Pool) -> Decision | None:
        sample = self._store.sample(self._wire, pool.name)
        state = self._states.get(pool.name) or State(size=max(pool.least, pool.workers))
        if sample.paused:
            # What piles up meanwhile says nothing of how many workers it needs.
            self._states[pool.name] = replace(state, last=None)
            return None
        self._states[pool.name], decision = tuning.decide(state, seen(pool, sample, state.size))
        return decision

    def _is_to_be_shared(self, pool: Pool, decision: Decision | None) -> bool:
        if decision is not None and decision.before != decision.after:
            return True
        known = self._shared.get(pool.name)
        if known is None:
            # Nobody has been told: that is as it should be while it has its least size.
            return self._states[pool.name].size != pool.least
        return known != pool.fixed

    def _described(self, pool: str, at_s: float, decision: Decision) -> dict[str, Any]:
        why = decision.why.replace("{name}", pool)
        level = logging.WARNING if decision.kind == tuning.LIMIT else logging.INFO
        log.log(level, "pool %s: %s, %d workers in all, then %d: %s", pool, decision.kind,
                decision.before, decision.after, why)
        return {
            "at": at_s, "pool": pool, "kind": decision.kind, "from": decision.before,
            "to": decision.after, "why": why, "wait": round(decision.wait_s, 3),
            "work": round(decision.work, 2), "leader": self._node,
        }


def seen(pool: Pool, sample: Sample, size: int) -> Seen:
    """A look at a pool. What is claimed ahead of a free worker waits like what is queued."""
    busy = min(sample.claimed, pool.workers)
    limit = tuning.MEMORY if pool.room <= size < pool.most else ""
    if pool.out_of_cpu:
        limit = tuning.CPU
    return Seen(
        sample.now_ms / 1000, sample.queued + sample.claimed - busy, busy, pool.workers,
        sample.ended, pool.least, pool.most, pool.low_s, pool.high_s, limit,
    )


def pools_of(nodes: Sequence[Mapping[str, Any]]) -> list[Pool]:
    """The tuned pools that these nodes serve, by their records."""
    served: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for node in (one for one in nodes if not one.get("drained")):
        for spec in node.get("pools") or []:
            served.setdefault(spec["name"], []).append((node, spec))
    return [
        _pool(name, those) for name, those in sorted(served.items())
        if any(spec["min"] != spec["max"] for _, spec in those)
    ]


def _pool(name: str, those: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Pool:
    places, children, full = [], [], []
    for node, spec in those:
        own = [child for child in node["children"] if child["pool"] == name]
        most = spec["max"]
        if spec["short"]:
            # It keeps what it has: the largest of its processes may be over the others by one.
            most = max(spec["min"], max((child["workers"] for child in own), default=0))
        used = sum(child["cpu"] for child in own)
        weight = (node["free_cores"] + used) * min(1.0, node["free_memory"] / ROOMY)
        places.append(Place(
            node["id"], spec["processes"], spec["min"], most, max(0.1, round(weight, 1))
        ))
        children += own
        full += [_is_full(child, node["free_cores"]) for child in own]
    low_s, high_s = those[0][0]["target_wait"]
    return Pool(
        name, places, sum(child["workers"] for child in children),
        sum(place.processes * place.least for place in places),
        sum(spec["processes"] * spec["max"] for _, spec in those),
        sum(place.processes * place.most for place in places), low_s, high_s,
        out_of_cpu=bool(full) and all(full),
    )


def _is_full(child: Mapping[str, Any], free_cores: float) -> bool:
    cpu: float = child["cpu"]
    return cpu >= FULL or child["lag_ms"] >= LATE_MS or (free_cores < NO_CORES and cpu >= BUSY)

"""The election: of all masters of a namespace one leads, and each tells Redis that it is there.

One script does both, the node's beat: it keeps the node's record, renews or takes the lead, and
says what changed, so that a node on which nothing happens sends one command every few seconds. The
leader renews three times within the time the lead is taken for; the others come when it would be
free, or at once when a leader that stops says so. Nothing but tuning and cluster-wide hooks needs
a leader.

``leads`` is what this node believes, by its own clock. A node that was stopped may be wrong about
it for a moment; what it writes then is refused (see ``lead.py``).
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from typing import Protocol

from ..hub.driver import Driver
from ..hub.wheel import Entry
from ..lead import TTL_S, Beat, LeadStore
from ..wire import Runner, WireError

log = logging.getLogger("skedulr.master")

#: Between two beats of a leader, seconds, and the most between two of any node.
RENEW_S, BEAT_S = 5 / 3, 5.0
#: Between two tries while Redis is away, seconds.
AGAIN_S = 0.5
#: How much after the moment the lead is free others come for it, seconds.
SOON_S, LATER_S = 0.02, 0.12


class Record(Protocol):
    """Gives the node's record, and the pools it serves."""

    def __call__(self) -> tuple[bytes, list[str]]: ...


class Election:
    """Beats for one node. ``on_beat`` hears each answer, on the greenlet that asked; ``tuned`` says
    whether the node has pools whose size the leader is to find."""

    def __init__(
        self, *, store: LeadStore, wire: Runner, node: str, driver: Driver, record: Record,
        tuned: Callable[[], bool], on_beat: Callable[[Beat], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._wire, self._node, self._driver = store, wire, node, driver
        self._record, self._tuned, self._on_beat = record, tuned, on_beat
        self._monotonic = monotonic
        self._entry: Entry | None = None
        self._running = False
        self._willing = True
        self._led = False
        #: Monotonic seconds until which the lead is ours, and those of the last record.
        self._until = -math.inf
        self._recorded_at = -math.inf
        #: The term under which this node led last, or the highest it heard of.
        self.term = 0

    @property
    def leads(self) -> bool:
        """Whether this node leads, as far as it knows."""
        return self._led and self._monotonic() < self._until

    def start(self) -> None:
        """Beat from now on."""
        if not self._running:
            self._running = True
            self._plan(0)

    def stop(self) -> None:
        """Beat no more. Safe twice. The lead is let go of by ``resign``."""
        self._running = False
        self._unplan()

    def resign(self) -> None:
        """Lead no more, and let the others know. Beats go on, for the record."""
        self._willing = False
        if not self._led:
            return
        self._led = False
        try:
            self._store.resign(self._wire, self._node, self.term)
        except WireError as error:
            # It is free for others when its time is over.
            log.debug("can not let go of the lead: %s", error)

    def hurry(self) -> None:
        """Beat at once: somebody said that the lead is free."""
        if self._running:
            self._plan(random.uniform(0, SOON_S))

    def tell(self) -> None:
        """Write the node's record now."""
        self._recorded_at = -math.inf
        self.beat()

    def beat(self) -> None:
        """One beat; the next one is planned by what it finds."""
        if not self._running:
            return
        asked_at = self._monotonic()
        tuned = self._tuned()
        # How its own children do, a leader that sizes them knows by its own record.
        fresh = self._record_is_fresh(asked_at) and not (tuned and self._led)
        record, pools = (b"", []) if fresh else self._record()
        try:
            beat = self._store.beat(
                self._wire, self._node, willing=self._willing, known_term=self.term,
                tuned=tuned, record=record, pools=pools,
            )
        except WireError as error:
            log.debug("the node's beat was not heard: %s", error)
            self._plan(AGAIN_S)
            return
        if record:
            self._recorded_at = asked_at
        self._plan(self._hear(beat, asked_at))
        self._on_beat(beat)

    def _record_is_fresh(self, now: float) -> bool:
        # A record is written with the beat that comes nearest to its time.
        return now - self._recorded_at < BEAT_S - RENEW_S / 2

    def _hear(self, beat: Beat, asked_at: float) -> float:
        """Who leads now; seconds until the next beat."""
        led, ours = self._led, beat.leader == self._node and self._willing
        if ours and not (led and beat.term == self.term):
            log.info("node %s leads, term %d", self._node, beat.term)
        elif led and not ours:
            log.warning("node %s does not lead any more: %s does, term %d", self._node,
                        beat.leader or "nobody", beat.term)
        self._led, self._until = ours, asked_at + TTL_S
        self.term = max(self.term, beat.term)
        if ours:
            return RENEW_S
        if not self._willing:
            return BEAT_S
        return min(BEAT_S, beat.left_ms / 1000 + random.uniform(SOON_S, LATER_S))

    def _plan(self, delay_s: float) -> None:
        self._unplan()
        if self._running:
            self._entry = self._driver.after(delay_s, self.beat, internal=True)

    def _unplan(self) -> None:
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.cancel()

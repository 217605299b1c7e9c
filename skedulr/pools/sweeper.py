"""The sweeper: what every child does for its whole pool now and then, through the wheel.

It gives back what expired leases hold, forgets the oldest records, and adds up what was counted of
runs. Any number of children may do it at once; each step is one bounded script.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from ..hub.driver import Driver, Repeat
from ..storage import BATCH, Judgement, Records, Storage
from ..wire import Wire, WireError

log = logging.getLogger("skedulr.pool")

#: Between two sweeps for expired leases, seconds; a fifth more or less, to the next beat: a dead
#: host's tasks are back in lease + 5 s.
RECOVER_S = 3.6
#: Between two trims of old records, seconds.
TRIM_S = 60.0
#: Between two steps that add the minute that is over to what is longer, seconds.
FOLD_S = 60.0
#: How many pages of records one trim forgets at most, so that it never holds up the queue.
MOST_PAGES = 20


@dataclass(frozen=True, slots=True)
class Keep:
    """How long and how many records are kept: age in seconds, ended ones, dead ones, bytes of all
    of them together (by a sample)."""

    age_s: float
    most_done: int
    most_dead: int
    most_bytes: float = math.inf

    def counts(self, there: Records) -> tuple[int, int]:
        """Most ended and most dead records, for a pool that has ``there``."""
        fit = self.most_bytes / there.mean_bytes if there.mean_bytes else math.inf
        if there.done + there.dead <= fit:
            return self.most_done, self.most_dead
        over = there.done + there.dead - math.floor(fit)
        # The dead are what someone still has to look at: they go last.
        done_over = min(there.done, over)
        dead_over = over - done_over
        return (
            min(self.most_done, there.done - done_over),
            min(self.most_dead, max(0, there.dead - dead_over)),
        )


class Sweeper:
    """Sweeps one pool. ``needed(pool, uid)`` says whether a task that has not ended waited for
    this one. What a sweep finds beside leases: ``on_untold()`` hears that tasks have died that no
    hook was told of, ``on_undelivered()`` that the outbox is not empty."""

    def __init__(
        self, *, store: Storage, wire: Wire, driver: Driver, lease_s: float,
        keep: Keep, judgement: Judgement,
        needed: Callable[[str, bytes], bool] = lambda pool, uid: False,
        on_untold: Callable[[], object] = lambda: None,
        on_undelivered: Callable[[], object] = lambda: None,
    ) -> None:
        self._needed = needed
        self._on_untold, self._on_undelivered = on_untold, on_undelivered
        self._store, self._wire, self._driver = store, wire, driver
        self._lease_s, self._keep, self._judgement = lease_s, keep, judgement
        self._repeats: list[Repeat] = []

    def start(self) -> None:
        """Sweep from now on."""
        recover_s = min(RECOVER_S, self._lease_s / 4)
        self._repeats = [
            self._driver.every(recover_s, self.recover, jitter=0.2, internal=True),
            self._driver.every(TRIM_S, self.trim, jitter=0.2, internal=True),
            self._driver.every(FOLD_S, self.fold, jitter=0.2, internal=True),
        ]

    def stop(self) -> None:
        """No more sweeps. Safe twice."""
        for repeat in self._repeats:
            repeat.cancel()

    def recover(self) -> int:
        """Give back what expired leases hold; how many tasks."""
        lease_ms = round(self._lease_s * 1000)
        # Renewed each third of it, a lease has two thirds left when Redis goes away. Whatever was
        # away for long enough to let one run out must count as a gap.
        gap_ms = round(self._lease_s / 2 * 1000)
        total = 0
        more = True
        while more:
            try:
                returned = self._store.recover(self._wire, lease_ms, gap_ms, self._judgement)
            except WireError as error:
                log.debug("can not sweep: %s", error)
                return total
            more = returned.more
            total += len(returned.uids)
            if returned.untold:
                self._on_untold()
            if returned.undelivered:
                self._on_undelivered()
            for uid in returned.dead:
                log.error("task %s is dead: %s", uid.decode(), "its process died again and again")
        if total:
            log.warning("%d tasks of dead processes are back in the queue", total)
        return total

    def fold(self) -> int:
        """Add the minutes that are over to all that is longer; how many."""
        try:
            return self._store.fold(self._wire)
        except WireError as error:
            log.debug("can not add up what was counted: %s", error)
            return 0

    def trim(self) -> int:
        """Forget old records; how many."""
        total = 0
        try:
            most_done, most_dead = self._keep.counts(self._store.records(self._wire))
        except WireError as error:
            log.debug("can not trim: %s", error)
            return 0
        kept: dict[bool, set[bytes]] = {True: set(), False: set()}
        loose: list[bytes] = []
        for _ in range(MOST_PAGES):
            try:
                page = self._store.trim(
                    self._wire, round(self._keep.age_s * 1000), most_done, most_dead,
                    passed=(len(kept[False]), len(kept[True])), loose=loose,
                )
                loose = self._loose(page.done, kept[False]) + self._loose(page.dead, kept[True])
            except WireError as error:
                log.debug("can not trim: %s", error)
                break
            total += page.forgotten
            if page.forgotten < BATCH and not page.done and not page.dead:
                break
        return total

    def _loose(self, parents: list[bytes], kept: set[bytes]) -> list[bytes]:
        """Those of these ended tasks that no other needs any more; the others go to ``kept``."""
        pool = self._store.keys.pool
        loose = [uid for uid in parents if not self._needed(pool, uid)]
        kept.update(set(parents) - set(loose))
        return loose

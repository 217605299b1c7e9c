"""A crew: the workers of one pool, as a child process has them, claiming only when told to.

Executor, recorder and scripts are production's own. Left out is what decides when things happen:
the fetcher and the ticker's alarm (the test's loop claims and ticks), the heart and the sweeper
(leases never end here).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

from ..app import Skedulr
from ..codecs import Codec
from ..hub.driver import Driver
from ..keys import PoolKeys, SpaceKeys
from ..pools.board import Board
from ..pools.executor import Executor, Limits
from ..pools.progress import Progress
from ..pools.recorder import Outcome, Recorder
from ..pools.runs import CANCELLED
from ..pools.ticker import Ticker
from ..schedule_records import Definition
from ..schedule_store import Directory, ScheduleStore
from ..store import Lane, Store
from ..wires import SharedWire
from .standing import Clock, RedisClock

log = logging.getLogger("skedulr.testing")

#: Longer than any test goes forward.
LEASE_S = 100 * 365 * 86400.0


class Crew:
    """The workers of one pool. ``on_end()`` is called whenever nothing is owed for a task more."""

    def __init__(
        self, *, namespace: str, pool: str, app: Skedulr, wire: SharedWire, clock: Clock,
        driver: Driver, workers: int, result_limit: int, on_end: Callable[[], object],
        declared: Sequence[Definition] = (), codec: Codec | None = None,
    ) -> None:
        self.pool, self._workers, self._wire, self._on_end = pool, workers, wire, on_end
        self.keys = PoolKeys(namespace, pool)
        self._store = Store(self.keys)
        owner = f"test-{pool}"
        self._claims = Lane(wire, owner)
        self._board = Board(workers)
        self._recorder = Recorder(
            store=self._store, lane=Lane(wire, owner), on_gone=_nothing
        )
        self._executor = Executor(
            pool=pool, owner=owner, app=app, recorder=self._recorder, driver=driver,
            clock=RedisClock(clock), board=self._board,
            limits=Limits(workers, LEASE_S, result_limit, unknown_after_s=0.0), codec=codec,
        )
        self._recorder.on_recorded = self._recorded
        self._recorder.started = self._executor.holdings.started
        self._progress = Progress(store=self._store, wire=wire, driver=driver)
        self._executor.on_progress = self._report
        space = SpaceKeys(namespace)
        self._schedules = ScheduleStore(self.keys, space.control)
        self._ticker = Ticker(
            store=self._schedules, wire=wire, driver=cast(Driver, _Unwound()),
            store_of=lambda other: ScheduleStore(PoolKeys(namespace, other), space.control),
            directory=Directory(space), clock=RedisClock(clock), owner=owner, declared=declared,
            codec=codec,
        )
        #: How many of its tasks wait for the ends of others.
        self.waiting = 0
        #: When the next delayed task is due, Redis ms; as of the last claim.
        self.next_due_ms: int | None = None
        #: Attempts begun since ever.
        self.begun = 0

    def start(self) -> None:
        """Make the workers."""
        self._recorder.start()
        self._executor.start()
        self._ticker.declare()

    def stop(self) -> None:
        """End what writes. Safe twice."""
        self._recorder.stop()

    @property
    def busy(self) -> bool:
        """Whether anything is under way that does not wait for other tasks."""
        return len(self._executor.holdings.held) > self.waiting

    def claim(self) -> bool:
        """Take the next task that is due and have it started; False where there is none, or no
        worker free."""
        free = int(len(self._executor.running) < self._workers)
        claims = self._store.claim(self._claims, free, free, round(LEASE_S * 1000))
        self.next_due_ms = claims.next_due_ms
        if not claims.rows:
            return False
        self.begun += 1
        self._executor.accept(claims, free)
        return True

    def tick(self) -> int:
        """Fire the schedules that are due; how many were."""
        before = self._ticker.fired
        self._ticker.look()
        return self._ticker.fired - before

    @property
    def next_tick_ms(self) -> int | None:
        """When the next schedule is due that is not yet, Redis ms."""
        return self._schedules.look(self._wire, limit=1).next_due_ms

    def cancel(self, uid: str) -> None:
        """A task was cancelled: interrupt it, if it runs."""
        self._executor.interrupt(uid.encode(), CANCELLED)

    def running(self) -> list[str]:
        """Name and id of what is under way, for people."""
        return [f"{run.name} {self.pool}/{run.id}"
                for run in self._executor.running.values()]

    def _recorded(self, batch: Sequence[Outcome]) -> None:
        self._executor.holdings.forget_all(batch)
        self._on_end()

    def _report(self, uid: bytes, token: bytes, percent: float, note: str | None) -> None:
        self._progress.report(uid, token, percent, note)
        self._progress.write()


class _Unwound:
    """In the driver's place: nothing fires by itself."""

    def every(self, *given: Any, **options: Any) -> _Unwound:
        return self

    after = at = every

    def monotonic_ms(self) -> int:
        return 0

    def cancel(self) -> bool:
        return True


def _nothing() -> None:
    """An owner that nobody releases is never gone."""

"""A crew: the workers of one pool, as a child process has them, claiming only when told to.

Executor, recorder and scripts are production's own. Left out is what decides when things happen:
the fetcher (the test's loop claims), the heart and the sweeper (leases never end here).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..app import Skedulr
from ..hub.driver import Driver
from ..keys import PoolKeys
from ..pools.board import Board
from ..pools.executor import CANCELLED, Executor, Limits
from ..pools.progress import Progress
from ..pools.recorder import Recorder
from ..store import Lane, Store
from ..wire import Wire, WireError
from .standing import Clock, RedisClock

log = logging.getLogger("skedulr.testing")

#: Longer than any test goes forward.
LEASE_S = 100 * 365 * 86400.0


class Crew:
    """The workers of one pool. ``on_end()`` is called whenever nothing is owed for a task more."""

    def __init__(
        self, *, namespace: str, pool: str, app: Skedulr, wire: Wire, clock: Clock,
        driver: Driver, workers: int, result_limit: int, on_end: Callable[[], object],
    ) -> None:
        self.pool, self._workers, self._wire, self._on_end = pool, workers, wire, on_end
        self.keys = PoolKeys(namespace, pool)
        self._store = Store(self.keys)
        owner = f"test-{pool}"
        self._claims = Lane(wire, owner, _give_up)
        self._board = Board(workers)
        self._recorder = Recorder(
            store=self._store, lane=Lane(wire, owner, _give_up), on_gone=_nothing
        )
        self._executor = Executor(
            pool=pool, owner=owner, app=app, recorder=self._recorder, driver=driver,
            clock=RedisClock(clock), board=self._board,
            limits=Limits(workers, LEASE_S, result_limit, unknown_after_s=0.0),
        )
        self._recorder.on_recorded = self._recorded
        self._recorder.started = self._executor.started
        self._progress = Progress(store=self._store, wire=wire, driver=driver)
        self._executor.on_progress = self._report
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

    def stop(self) -> None:
        """End what writes. Safe twice."""
        self._recorder.stop()

    @property
    def busy(self) -> bool:
        """Whether anything is under way that does not wait for other tasks."""
        return len(self._executor.held) > self.waiting

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

    def cancel(self, uid: str) -> None:
        """A task was cancelled: interrupt it, if it runs."""
        self._executor.interrupt(uid.encode(), CANCELLED)

    def running(self) -> list[str]:
        """Name and id of what is under way, for people."""
        return [f"{run.name} {self.pool}/{run.claimed.uid.decode()}"
                for run in self._executor.running.values()]

    def _recorded(self, uid: bytes) -> None:
        self._executor.forget(uid)
        self._on_end()

    def _report(self, uid: bytes, token: bytes, percent: float, note: str | None) -> None:
        self._progress.report(uid, token, percent, note)
        self._progress.write()


def _give_up(error: WireError, tries: int) -> None:
    raise error


def _nothing() -> None:
    """An owner that nobody releases is never gone."""

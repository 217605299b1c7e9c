"""The fetcher: claims work for free workers, and sleeps where there is none.

Asleep, it waits for any of three: a wake token in Redis (someone submitted), the alarm (the next
delayed task is due; one entry in the wheel), or a worker that became free. A stopped client can
take a token with it, so a sleep in Redis is short, and looks for itself afterwards.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

import gevent
from gevent.event import Event

from ..clock import Clock
from ..errors import ConfigError
from ..hub.alarm import Alarm
from ..hub.driver import Driver
from ..storage import Lane, Storage
from ..wire import Gone, Runner, Wire, WireError
from .executor import Executor
from .patience import FIRST_S, LONGEST_S, Patience, Stopped

log = logging.getLogger("skedulr.pool")

#: How long one sleep in Redis lasts, seconds: drawn between the two, so that fetchers spread.
SHORTEST_SLEEP_S, LONGEST_SLEEP_S = 1.4, 1.9


class Fetcher:
    """Claims for one executor, once ``settle(wire)`` has told Redis how the pool is kept. Where
    that raises ConfigError nothing is claimed, and ``on_refused(error)`` is called."""

    def __init__(
        self, *, store: Storage, lane: Lane, sleeper: Wire, promoter: Wire, executor: Executor,
        driver: Driver, clock: Clock, lease_s: float, patience: Patience,
        on_gone: Callable[[], None], settle: Callable[[Runner], object],
        on_refused: Callable[[ConfigError], None], aging_s: float = 0.0,
    ) -> None:
        self._settle, self._on_refused = settle, on_refused
        self._store, self._lane, self._executor = store, lane, executor
        self._sleeper, self._promoter = sleeper, promoter
        self._driver, self._clock, self._lease_ms = driver, clock, round(lease_s * 1000)
        self._aging_ms = round(aging_s * 1000)
        self._patience, self._on_gone = patience, on_gone
        self._room = Event()
        self._work = Event()
        self._alarm = Alarm(driver, self._ring, inline=True)
        self._asleep = Event()
        self._stopping = False
        self._greenlets: list[gevent.Greenlet] = []
        executor.workers.on_room = self.on_room

    def start(self) -> None:
        """Begin to claim."""
        self._greenlets = [gevent.spawn(self._run), gevent.spawn(self._sleep_in_redis)]

    @property
    def greenlets(self) -> list[gevent.Greenlet]:
        """Those that must live for it to work."""
        return list(self._greenlets)

    def stop(self) -> None:
        """Claim nothing more; returns once a claim under way has been answered. Safe twice."""
        self._stopping = True
        self._room.set()
        self._work.set()
        if self._greenlets:
            self._greenlets[0].join(timeout=2)
        gevent.killall(self._greenlets)
        self._greenlets = []
        self._alarm.cancel()

    def on_room(self) -> None:
        """A worker became free, or a slice of work was done."""
        if not self._room.is_set():
            self._room.set()

    def due_in(self, seconds: float) -> None:
        """A task will be due this soon: be there."""
        self._alarm.set_in(seconds)

    def _run(self) -> None:
        try:
            # Redis may have been away when the master told it how this pool is kept.
            self._lane.insist(lambda: self._settle(self._lane.wire))
            while not self._stopping:
                self._step()
        except ConfigError as error:
            self._on_refused(error)
        except Gone:
            self._on_gone()
        except Stopped:
            pass

    def _step(self) -> None:
        self._room.clear()
        want, starting = self._executor.room()
        if want == 0:
            self._room.wait()
            return
        self._work.clear()
        sent_at = time.monotonic()
        self._executor.holdings.heard = set()
        claims = self._store.claim(
            self._lane, want, starting, self._lease_ms, self._aging_ms
        )
        self._clock.anchor(claims.now_ms)
        if claims.next_due_ms is not None:
            self._alarm.set(self._clock.to_monotonic(claims.next_due_ms))
        if claims.rows:
            self._executor.accept(claims, starting, sent_at)
        self._executor.holdings.heard = None
        if len(claims.rows) < 4 * want:
            # Redis had no more: whatever is submitted from now on brings a token.
            self._asleep.set()
            self._work.wait()
            self._asleep.clear()

    # Sleeping in Redis

    def _sleep_in_redis(self) -> None:
        """Beside the fetcher: block on the token for it, only while it sleeps."""
        failures = 0
        while not self._stopping:
            self._asleep.wait()
            try:
                woken = self._block()
                failures = 0
            except WireError:
                failures += 1
                gevent.sleep(min(LONGEST_S, FIRST_S * 2 ** min(failures, 10)))
                continue
            if woken:
                # Not to block again before the fetcher has run: that would only hold it up.
                self._asleep.clear()
                self._work.set()

    def _block(self) -> bool:
        """Whether there may be work: a token came, or the queue is not empty after all."""
        seconds = random.uniform(SHORTEST_SLEEP_S, LONGEST_SLEEP_S)
        if self._store.wait(self._sleeper, seconds):
            if not self._asleep.is_set() and not self._executor.has_room():
                # The alarm brought work meanwhile and nobody is free here: let another have it.
                self._store.pass_on(self._sleeper)
            return True
        return self._store.has_work(self._sleeper)

    # The next due time

    def _ring(self) -> None:
        self._work.set()
        if not self._asleep.is_set() or not self._executor.has_room():
            # Every worker is busy here. Others may be free: the task must be ready for them.
            gevent.spawn(self._promote)

    def _promote(self) -> None:
        try:
            now_ms, _, next_due_ms = self._store.promote(self._promoter)
        except WireError as error:
            log.debug("can not promote: %s", error)
            self.due_in(1.0)
            return
        self._clock.anchor(now_ms)
        if next_due_ms is not None:
            self._alarm.set(self._clock.to_monotonic(next_due_ms))

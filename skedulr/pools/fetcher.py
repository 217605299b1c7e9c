"""The fetcher: claims work for free workers, and sleeps where there is none.

It sleeps inside a claim: the claim's script goes to Redis together with the wait for a wake token,
and is run there the moment one comes (somebody submitted, or the alarm of some process made what
is due ready). A stopped client can take a token with it, so a sleep is short.

What such a claim takes is claimed even if this process can not read of it: it asks for no more than
what a wake brought last, one task where that was none. While the hub is silent the heart gives back
what came (``under_way`` of the holdings), and while the heart is silent too the master does
(``under_way`` and ``taken`` of the board).
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
from ..storage import Claims, Lane, Storage
from ..wire import Gone, Runner, WireError
from .board import Board
from .executor import Executor
from .patience import Patience, Stopped

log = logging.getLogger("skedulr.pool")

#: How long one sleep in Redis lasts, seconds: drawn between the two, so that fetchers spread; and
#: the part of a lease that it is at most, for the lease counts from when the sleep began.
SHORTEST_SLEEP_S, LONGEST_SLEEP_S, SLEEP_PART = 1.4, 1.9, 0.25
#: A claim that brought so many is followed by another one, whether Redis knew of more or not.
MANY = 50
#: How long the end waits for an answer that is under way, seconds.
LAST_ANSWER_S = 2.0


class _Anew(BaseException):
    """Breaks off a claim that sleeps."""


class Fetcher:
    """Claims for one executor, once ``settle(wire)`` has told Redis how the pool is kept. Where
    that raises ConfigError nothing is claimed, and ``on_refused(error)`` is called.
    ``on_unread(pairs)`` gets what was claimed and is not for this process any more."""

    def __init__(
        self, *, store: Storage, lane: Lane, promoter: Runner, executor: Executor, board: Board,
        driver: Driver, clock: Clock, lease_s: float, patience: Patience,
        on_gone: Callable[[], None], settle: Callable[[Runner], object],
        on_refused: Callable[[ConfigError], None],
        on_unread: Callable[[list[tuple[bytes, bytes]]], None], aging_s: float = 0.0,
    ) -> None:
        self._settle, self._on_refused, self._on_unread = settle, on_refused, on_unread
        self._store, self._lane, self._executor = store, lane, executor
        self._promoter, self._board = promoter, board
        self._driver, self._clock = driver, clock
        self._lease_s, self._lease_ms = lease_s, round(lease_s * 1000)
        self._aging_ms = round(aging_s * 1000)
        self._patience, self._on_gone = patience, on_gone
        self._room = Event()
        self._alarm = Alarm(driver, self._ring, inline=True)
        self._asleep = self._stopping = False
        #: When the last claim was sent, monotonic seconds.
        self._sent_at = 0.0
        #: Whether Redis may have more than it gave, and how much the last wake brought.
        self._more, self._brought = True, 0
        self._greenlet: gevent.Greenlet | None = None
        executor.workers.on_room = self.on_room

    def start(self) -> None:
        """Begin to claim."""
        self._greenlet = gevent.spawn(self._run)

    @property
    def greenlets(self) -> list[gevent.Greenlet]:
        """Those that must live for it to work."""
        return [self._greenlet] if self._greenlet is not None else []

    def stop(self) -> None:
        """Claim nothing more. What a claim that was under way took is pending. Safe twice."""
        self._stopping = True
        self._room.set()
        if self._greenlet is not None:
            if not self._asleep:
                self._greenlet.join(timeout=LAST_ANSWER_S)
            self._greenlet.kill()
            self._greenlet = None
            self._end_lane()
        self._alarm.cancel()

    def ask_anew(self) -> None:
        """There is less room than before: a claim that sleeps asks for too much."""
        if self._asleep and self._greenlet is not None:
            # Once for each sleep: a second one would come while the first is dealt with.
            self._asleep = False
            self._greenlet.kill(_Anew(), block=False)

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
                try:
                    self._step()
                except _Anew:
                    self._end_lane()
        except ConfigError as error:
            self._on_refused(error)
        except Gone:
            self._on_gone()
        except Stopped:
            pass

    def _step(self) -> None:
        self._room.clear()
        want, starting = self._executor.room()
        if want == 0 or not (starting or self._more):
            # Nothing is taken ahead of need by a claim that sleeps: it would come at any time.
            self._room.wait()
            return
        if self._more:
            brought = self._claim(want, starting)
            self._brought += brought
        else:
            # What came starts first: to send the next claim wakes the server, which takes longer.
            gevent.sleep(0)
            want = min(want, max(1, 2 * self._brought))
            self._brought = brought = self._claim(want, min(starting, want), self._sleep_s())
        # Where so many came at once, others will have come by the time these have run: they are
        # asked for meanwhile, or server and workers would wait for each other in turn.
        self._more = self._more or brought == want or brought >= MANY

    def _sleep_s(self) -> float:
        most_s = max(0.05, SLEEP_PART * self._lease_s)
        return min(random.uniform(SHORTEST_SLEEP_S, LONGEST_SLEEP_S), most_s)

    def _claim(self, want: int, starting: int, sleep_s: float = 0.0) -> int:
        """Claim once; how many tasks came."""
        holdings, self._sent_at = self._executor.holdings, time.monotonic()
        number = self._board.under_way = self._lane.number + 1
        holdings.heard = set()
        holdings.under_way.clear()
        holdings.under_way[number] = True
        self._asleep = sleep_s > 0
        claims = self._store.claim(
            self._lane, want, starting, self._lease_ms, self._aging_ms, sleep_s
        )
        self._asleep = False
        self._clock.anchor(claims.now_ms)
        self._note_next(claims)
        self._take_in(claims, starting)
        holdings.heard = None
        return len(claims.rows) // 4

    def _take_in(self, claims: Claims, starting: int) -> None:
        holdings, number = self._executor.holdings, int(self._board.under_way)
        ours = holdings.under_way.pop(number, False) and self._board.taken < number
        self._board.under_way = 0
        if not ours:
            # Nobody here read for so long that others began to give this back.
            self._on_unread([(uid, claims.token) for uid in claims.rows[::4]])
        elif claims.rows:
            self._executor.accept(claims, starting, self._sent_at)

    def _note_next(self, claims: Claims) -> None:
        next_ms = claims.next_due_ms
        self._more = next_ms is not None and next_ms <= claims.now_ms
        if next_ms is not None and not self._more:
            self._alarm.set(self._clock.to_monotonic(next_ms))

    def _end_lane(self) -> None:
        """Have Redis take no claim of before any more, and take in what the last one took."""
        if not self._board.under_way:
            return
        last = Lane(self._lane.wire, self._lane.owner)
        last.number = self._lane.number
        try:
            with gevent.Timeout(LAST_ANSWER_S):
                claims = self._store.claim(last, 0, 0, self._lease_ms)
        except (WireError, gevent.Timeout) as error:
            log.debug("the last claim is not known to be over: %s", error)
            return  # the master releases the whole owner in the end
        self._lane.number = last.number
        self._take_in(claims, 0)

    # The next due time

    def _ring(self) -> None:
        if self._asleep or not self._executor.has_room():
            # The claim that sleeps is woken by what this makes ready; or every worker is busy here,
            # and others may be free.
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

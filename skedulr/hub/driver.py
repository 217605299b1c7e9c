"""The driver: the one greenlet and the one timer behind everything that fires later in a process.

Its duties: give the wheel the time, sleep until the wheel wants it again, run what is due, and be
there. A callback runs on a greenlet of its own, so none can hold up another; ``internal`` ones
share a bounded number of greenlets, and an ``inline`` one (a few microseconds, never waiting: an
event to set, a throw to schedule) runs on the driver itself. What a callback raises is logged.

The greenlet can not be dead unnoticed: whatever ends it, short of ``stop``, another takes over
where it stopped, with a log line. After a stall (a handler computed, the process was stopped, the
machine slept) all that is overdue fires in deadline order, in one go, before it sleeps again.

All times are this driver's monotonic milliseconds, whole ones, rounded down: by a finer clock a
callback may seem early by less than one. Everything here belongs to the hub's thread; another
thread has to get in through an async watcher.
"""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
from gevent import get_hub, getcurrent

from skedulr.clock import Clock
from skedulr.hub.wheel import Callback, Entry, Wheel

log = logging.getLogger("skedulr.hub")

#: A driver that died twice without having slept in between is started after this long.
RESTART_PAUSE_S = 0.1

#: What repeats this seldom, or more seldom, does so on the process's beat, which comes this often,
#: seconds: an idle process wakes up once for all of it. To wake costs more than what is then done.
BEAT_S = 1.0

#: ``_wake_at_ms`` of a driver that is not asleep: no deadline is earlier, so none moves its timer.
AWAKE = -math.inf
#: And of one that sleeps without a timer.
NEVER = math.inf


class _Inline(partial[object]):
    """A callback to be run on the driver. The wheel holds it, so that plain ones cost nothing."""


class _Internal(partial[object]):
    """A callback to be run on one of the background greenlets."""


class Driver:
    """Runs callbacks at their time, on the hub's thread.

    ``wheel`` is where entries are kept (a new one by default), ``monotonic_ms`` the clock, and
    ``background`` how many ``internal`` callbacks run at once; more of them wait their turn.
    Entries may be added before ``start`` and after ``stop``: they fire once it runs.

    >>> driver = Driver()
    >>> entry = driver.after(30, lambda: print("too late"))
    >>> entry.cancel(), driver.pending
    (True, 0)
    """

    def __init__(
        self,
        wheel: Wheel | None = None,
        monotonic_ms: Callable[[], int] | None = None,
        background: int = 64,
    ) -> None:
        self.monotonic_ms = monotonic_ms or Clock().monotonic_ms
        self._wheel = Wheel(start_ms=self.monotonic_ms()) if wheel is None else wheel
        self._background = background
        #: Set by the first that asks for one.
        self._first_beat_ms: int | None = None
        #: How often it woke up, for a reason or without: an idle wheel does not move it.
        self.wakeups = 0
        #: How often its greenlet died and was replaced.
        self.deaths = 0
        self._greenlet: gevent.Greenlet | None = None
        self._deaths_in_a_row = 0
        self._timer: Any = None
        self._wake_at_ms: float = AWAKE
        self._due: deque[Entry] = deque()  # outlives the greenlet: a successor goes on with it
        self._backlog: deque[Entry] = deque()
        self._workers = 0

    @property
    def tick_ms(self) -> int:
        """The precision: a callback runs up to this much after its time on an idle hub."""
        return self._wheel.tick_ms

    @property
    def pending(self) -> int:
        """How many callbacks wait for their time, or are due and have not been handed over."""
        return len(self._wheel) + len(self._due)

    def start(self) -> None:
        """Begin to fire. Does nothing when it runs already."""
        if self._greenlet is None:
            self._launch()

    def stop(self) -> None:
        """Fire nothing from now on; what waits is kept, what runs goes on. Safe to repeat."""
        greenlet, self._greenlet = self._greenlet, None
        self._disarm()
        if greenlet is not None and greenlet is not getcurrent():
            greenlet.kill(block=False)

    def after(
        self, delay_s: float, callback: Callback, *, internal: bool = False, inline: bool = False
    ) -> Entry:
        """Run ``callback`` in ``delay_s`` seconds. Not before them, and a tick later at most."""
        deadline_ms = self.monotonic_ms() + math.ceil(delay_s * 1000)
        return self.at(deadline_ms, callback, internal=internal, inline=inline)

    def at(
        self, monotonic_ms: int, callback: Callback, *, internal: bool = False, inline: bool = False
    ) -> Entry:
        """Run ``callback`` at a time of this driver's clock; at once if that has passed."""
        if inline:
            callback = _Inline(callback)
        elif internal:
            callback = _Internal(callback)
        entry = self._wheel.add(monotonic_ms, callback)
        if monotonic_ms < self._wake_at_ms:
            self._arm()
        return entry

    def every(
        self,
        period_s: float,
        callback: Callback,
        jitter: float = 0.0,
        *,
        internal: bool = False,
        inline: bool = False,
    ) -> Repeat:
        """Run ``callback`` again and again, ``period_s`` seconds from one's end to the next start.

        So it never overlaps itself, and after a stall it runs once, not once for each time missed.
        The first run is one period from now. ``jitter=0.1`` makes each pause up to a tenth
        shorter or longer, so that processes started together do not go on in step. A pause of a
        second or more ends on the process's beat: see ``beat_in``.
        """
        if not period_s > 0 or not 0 <= jitter < 1:
            raise ValueError(f"every needs period_s > 0 and 0 <= jitter < 1: {period_s}, {jitter}")
        run_later = partial(self._run_later, internal=internal, inline=inline)
        return Repeat(run_later, period_s, callback, jitter)

    def beat_in(self, delay_s: float) -> int:
        """When to do what is in no hurry, about ``delay_s`` seconds from now, in milliseconds.

        Of a second or more it is up to half a second earlier or later: at one of the process's
        beats, a second apart, so that all there is of the kind is done at one waking.
        """
        due_ms = self.monotonic_ms() + math.ceil(delay_s * 1000)
        if delay_s < BEAT_S:
            return due_ms
        first_ms, beat_ms = self._first_beat_ms, round(BEAT_S * 1000)
        if first_ms is None:
            # On a tick, so that what is due on a beat is not late by the wheel's rounding up.
            self._first_beat_ms = first_ms = -(-due_ms // self.tick_ms) * self.tick_ms
        return first_ms + round((due_ms - first_ms) / beat_ms) * beat_ms

    def wake(self) -> None:
        """Look at the clock now, not when the timer ends. For clocks that jump: those of tests."""
        if self._wake_at_ms != AWAKE:
            self._set_timer(0)

    # The greenlet's life

    def _launch(self, died_of: object = None) -> None:
        self._greenlet = greenlet = gevent.Greenlet(self._run, died_of)
        greenlet.link(self._on_end)
        if self._deaths_in_a_row > 1:
            greenlet.start_later(RESTART_PAUSE_S)
        else:
            greenlet.start()

    def _on_end(self, greenlet: gevent.Greenlet) -> None:
        died_of = greenlet.exception or greenlet.value
        if self._greenlet is greenlet:  # else it was stopped
            self.deaths += 1
            self._deaths_in_a_row += 1
            self._launch(died_of)

    def _run(self, died_of: object) -> None:
        if died_of is not None:
            # Not told by _on_end: that runs in the hub, where a log handler must not wait.
            log.error("wheel driver died of %r and was started again", died_of)
        while self._is_current():
            self._due.extend(self._wheel.advance(self.monotonic_ms()))
            while self._due and self._is_current():
                self._fire(self._due.popleft())
            self._sleep()

    def _is_current(self) -> bool:
        """False in a greenlet that was stopped, also if by a callback that it ran itself."""
        return self._greenlet is getcurrent()

    # Sleep

    def _sleep(self) -> None:
        """Wait for the next due time. If that has passed, for the others to have had a turn."""
        if not self._is_current():
            return
        self._arm()
        try:
            get_hub().switch()
        finally:
            if self._is_current():
                self._disarm()
        self._deaths_in_a_row = 0
        self.wakeups += 1

    def _arm(self) -> None:
        due_ms = self._wheel.next_due()
        if due_ms is None:
            self._disarm()
            self._wake_at_ms = NEVER
        else:
            self._set_timer(max(0, due_ms - self.monotonic_ms()) / 1000)
            self._wake_at_ms = due_ms

    def _set_timer(self, wait_s: float) -> None:
        self._close_timer()
        assert self._greenlet is not None
        self._timer = get_hub().loop.timer(wait_s)
        # update: the loop's own idea of now is as old as its last turn, and would end this early.
        self._timer.start(self._greenlet.switch, update=True)

    def _disarm(self) -> None:
        self._close_timer()
        self._wake_at_ms = AWAKE

    def _close_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.stop()
            timer.close()

    # What is due

    def _run_later(
        self, delay_s: float, callback: Callback, *, internal: bool, inline: bool
    ) -> Entry:
        return self.at(self.beat_in(delay_s), callback, internal=internal, inline=inline)

    def _fire(self, entry: Entry) -> None:
        """Hand the entry over. It is taken where it runs, so a cancel until then still wins."""
        kind = type(entry.callback)
        if kind is _Inline:
            _run_entry(entry)
        elif kind is _Internal:
            self._backlog.append(entry)
            self._staff()
        elif entry.callback is not None:
            gevent.spawn(_run_entry, entry)

    def _staff(self) -> None:
        if self._backlog and self._workers < self._background:
            self._workers += 1
            gevent.spawn(self._work)

    def _work(self) -> None:
        try:
            while self._backlog:
                _run_entry(self._backlog.popleft())
        finally:
            self._workers -= 1
            self._staff()  # a worker that was killed leaves its share to another


class Repeat:
    """A callback that runs again and again, as ``Driver.every`` planned it."""

    def __init__(
        self,
        run_later: Callable[[float, Callback], Entry],
        period_s: float,
        callback: Callback,
        jitter: float,
    ) -> None:
        self._run_later = run_later
        self._period_s = period_s
        self._callback = callback
        self._jitter = jitter
        self._cancelled = False
        self._entry = self._plan()

    def __repr__(self) -> str:
        return f"<every {self._period_s} s: {self._callback!r}>"

    def __call__(self) -> None:
        try:
            if not self._cancelled:
                self._callback()
        finally:
            if not self._cancelled:
                self._entry = self._plan()

    def cancel(self) -> bool:
        """No further run starts; one under way goes on. False if it was cancelled before."""
        was, self._cancelled = self._cancelled, True
        self._entry.cancel()
        return not was

    def _plan(self) -> Entry:
        stretch = 1 + random.uniform(-self._jitter, self._jitter)
        return self._run_later(self._period_s * stretch, self)


def _run_entry(entry: Entry) -> None:
    callback = entry.take()
    if callback is None:
        return
    try:
        callback()
    except Exception:
        log.exception("%r, due at %d ms, raised", callback, entry.deadline_ms)

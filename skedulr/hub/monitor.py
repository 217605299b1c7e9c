"""The monitor: how late the hub is, and what holds it up.

Its duties: measure the hub's lag through the wheel, which is how everything else there is timed;
tell that the loop is alive (``on_beat``); and show stacks, of whatever blocks the hub, and of
every greenlet.

While the hub is blocked nothing that runs on it can report so. ``blocked`` and
``stack_of_hub_thread`` are therefore made to be called from a native thread: they take no lock,
since a lock of a patched process belongs to the hub, and neither log nor write. All stacks have
the form of Python's own tracebacks, innermost call last, so that editors and log viewers know them.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

import gevent
from gevent import monkey
from greenlet import getcurrent, greenlet

from skedulr.hub.driver import Driver
from skedulr.hub.wheel import Entry

log = logging.getLogger("skedulr.hub")

#: What ``max_lag_ms`` looks back on.
WINDOW_S = 60.0

_HEAD = "Traceback (most recent call last):\n"


class Monitor:
    """Measures the lag of the hub that ``driver`` runs on, every ``interval_s`` seconds.

    A lag of ``lag_warn_s`` or more is logged. ``on_beat`` is called at each measurement, on the
    driver: it must be quick. ``monotonic`` is the driver's clock, in seconds.

    ``lag_ms`` is the last measurement, ``max_lag_ms`` the largest of the last minute: by how much
    a callback ran after the tick of its deadline, 0 on an idle hub.
    """

    def __init__(
        self,
        driver: Driver,
        lag_warn_s: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        interval_s: float = 1.0,
        on_beat: Callable[[], object] | None = None,
    ) -> None:
        self._driver = driver
        self._lag_warn_ms = lag_warn_s * 1000
        self._monotonic = monotonic
        self._interval_s = interval_s
        self.on_beat = on_beat
        self.lag_ms = 0
        self.max_lag_ms = 0
        self._lags: deque[tuple[float, int]] = deque()  # (when, how much), of the last minute
        self._entry: Entry | None = None
        self._hub_thread: int | None = None

    def start(self) -> None:
        """Measure from now on. To be called on the hub's thread; does nothing when started."""
        if self._entry is None:
            self._hub_thread = _thread_ident()
            self._plan()

    def stop(self) -> None:
        """Measure no more. Safe to repeat."""
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.cancel()

    def blocked(self, seconds: float) -> str | None:
        """The stack of what blocks the hub, if it is ``seconds`` late by now; else None.

        For a native thread. Between two measurements the hub may stand still unseen, so the
        answer comes up to ``interval_s`` after those seconds.
        """
        entry, ident = self._entry, self._hub_thread
        if entry is None or ident is None:
            return None
        if self._monotonic() * 1000 - entry.deadline_ms < seconds * 1000:
            return None
        return stack_of_hub_thread(ident)

    # One measurement

    def _plan(self) -> None:
        # On a tick exactly, or the wheel's rounding up would be taken for lag.
        tick_ms = self._driver.tick_ms
        ticks = -(-self._driver.beat_in(self._interval_s) // tick_ms)
        self._entry = self._driver.at(ticks * tick_ms, self._measure, inline=True)

    def _measure(self) -> None:
        entry = self._entry
        if entry is None:
            return
        now_s = self._monotonic()
        self._plan()
        self._note(now_s, max(0, int(now_s * 1000) - entry.deadline_ms))
        if self.on_beat is not None:
            self.on_beat()

    def _note(self, now_s: float, lag_ms: int) -> None:
        lags = self._lags
        lags.append((now_s, lag_ms))
        while lags[0][0] < now_s - WINDOW_S:
            lags.popleft()
        self.lag_ms = lag_ms
        self.max_lag_ms = max(lag for _, lag in lags)
        if lag_ms >= self._lag_warn_ms:
            log.warning("hub was blocked: a callback ran %d ms late; nothing else ran", lag_ms)


def stack_of_hub_thread(thread_ident: int) -> str:
    """What the thread with that ident (the system's, not a patched one) runs at this moment.

    For a native thread: it takes no lock. An unknown ident gives a line that says so.
    """
    frame = sys._current_frames().get(thread_ident)
    if frame is None:
        return f"thread {thread_ident} has no stack: it has ended\n"
    return _format(frame)


def stack_of_greenlet(one: Any) -> str:
    """Where a greenlet of this thread is at the moment: its name, then its calls, inmost last."""
    return _greenlet_block(one)


def greenlet_stacks() -> str:
    """The stack of every greenlet and thread of the process, one block each, blank lines between.

    To be called on the hub's thread (from a signal's greenlet, say). It walks all objects of the
    process: fit for a dump that somebody asked for, not for every second.
    """
    here = getcurrent()
    blocks = [f"{_name(here)} (asked for this)\n{_format(sys._getframe(1))}"]
    blocks += [_greenlet_block(one) for one in _greenlets() if one is not here]
    blocks += [
        f"Thread {ident:#x}\n{_format(frame)}"
        for ident, frame in sys._current_frames().items()
        if ident != _thread_ident()
    ]
    return "\n".join(blocks)


def _greenlets() -> list[Any]:
    # By the real type: isinstance asks an object for its __class__, and some answer with an error.
    return [
        one for one in gc.get_objects() if issubclass(type(one), greenlet) and not one.dead
    ]


def _greenlet_block(one: Any) -> str:
    if one is getcurrent():
        return f"{_name(one)}\n{_format(sys._getframe(2))}"
    if one.gr_frame is None:
        return f"{_name(one)}: not started, or running in another thread\n"
    return f"{_name(one)}\n{_format(one.gr_frame)}"


def _name(one: Any) -> str:
    """Without the arguments that gevent's own repr shows: a dump must not give a task's away."""
    if not isinstance(one, gevent.Greenlet):
        return repr(one)
    function = getattr(one, "_run", None)
    what = getattr(function, "__qualname__", type(function).__name__)
    return f'<{type(one).__name__} "{one.name}": {what}>'


def _format(frame: FrameType) -> str:
    return _HEAD + "".join(traceback.format_stack(frame))


def _thread_ident() -> int:
    """The system thread's ident. A patched ``get_ident`` would give the greenlet's."""
    ident: int = monkey.get_original("_thread", "get_ident")()
    return ident

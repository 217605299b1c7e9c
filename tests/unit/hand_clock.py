"""A clock that tests move by hand, and what lets a real hub catch up with it."""

from __future__ import annotations

from collections.abc import Callable

import gevent

from skedulr.hub.driver import Driver


def wait_until(what: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Let the hub turn until ``what`` is true."""
    with gevent.Timeout(timeout_s, AssertionError("it did not come about")):
        while not what():
            gevent.sleep(0)


def turns(times: int = 3) -> None:
    """Let everything run that could: what is scheduled, and timers that have ended."""
    for _ in range(times):
        gevent.sleep(0)
        gevent.idle()


class HandClock:
    """Monotonic milliseconds that stand still. ``move`` moves them and has the driver look."""

    def __init__(self) -> None:
        self.now_ms = 5_000
        self.driver: Driver

    def __call__(self) -> int:
        return self.now_ms

    def move(self, by_ms: int) -> None:
        """To the new time; back when the driver has fired what is due and sleeps again."""
        self.now_ms += by_ms
        seen = self.driver.wakeups
        self.driver.wake()
        wait_until(lambda: self.driver.wakeups > seen)
        turns()

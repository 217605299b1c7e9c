"""Riding out: what a worker process does while Redis is away, refuses, or starts up.

It waits, longer each time, and tries again; nothing is given up, no attempt is burned. One line is
logged when it begins and one when it is over.
"""

from __future__ import annotations

import logging
import random
import time

import gevent

from ..wire import Gone, WireError

#: Seconds: the first pause, doubled up to the second.
FIRST_S, LONGEST_S = 0.05, 1.0


class Stopped(Exception):
    """The process stops: the wait is over, nothing more is tried."""


class Patience:
    """``ride_out`` for a ``Lane``: pauses, or raises Stopped once ``stop`` was called."""

    def __init__(self, what: str, log: logging.Logger) -> None:
        self._what, self._log = what, log
        self._stopped = False
        self._since: float | None = None

    def stop(self) -> None:
        """Raise Stopped at the next failure. Safe twice."""
        self._stopped = True

    def ride_out(self, error: WireError, tries: int) -> None:
        """Called after the ``tries``-th failure in a row: returns when to try again."""
        if isinstance(error, Gone):
            raise error
        if self._stopped:
            raise Stopped from error
        if tries == 1:
            self._since = time.monotonic()
        elif tries == 2 and self._since is not None:
            # The first failure is often one dropped connection and not worth a line.
            self._log.warning("%s: Redis does not answer (%s); waiting for it", self._what, error)
        pause_s = min(LONGEST_S, FIRST_S * 2 ** min(tries - 1, 10))
        gevent.sleep(pause_s * random.uniform(0.7, 1.0))

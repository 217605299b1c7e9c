"""Time: monotonic inside the process, Redis time across processes, the wall clock nowhere.

A ``Clock`` counts monotonic milliseconds and knows what they are in Redis time, from the server
time that script answers carry. The wall clock of this machine decides nothing, so setting it
changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: An answer may be this much older than the best one seen before the anchor moves, ms.
DRIFT_MS = 50


class Clock:
    """Monotonic milliseconds, and their conversion to and from Redis time.

    >>> clock = Clock(lambda: 5.0)
    >>> clock.anchor(1_700_000_000_000)
    >>> clock.redis_ms(), clock.to_monotonic(1_700_000_000_250)
    (1700000000000, 5250)
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._offset_ms: int | None = None

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back."""
        return int(self._monotonic() * 1000)

    def anchor(self, redis_ms: int) -> None:
        """Take ``redis_ms`` (the server's time when it made an answer) for now.

        The answer travelled, so the largest difference seen is the truest one. It is kept unless
        the new one is so much smaller that the server's clock must have been set.
        """
        offset = redis_ms - self.monotonic_ms()
        if self._offset_ms is None or not -DRIFT_MS <= offset - self._offset_ms <= 0:
            self._offset_ms = offset

    def redis_ms(self) -> int:
        """Now in Redis time, epoch milliseconds. Before the first anchor: this machine's time."""
        offset_ms = self._offset_ms
        if offset_ms is None:
            return int(time.time() * 1000)
        # Asked twice a run, so without a call of monotonic_ms().
        return int(self._monotonic() * 1000) + offset_ms

    def to_monotonic(self, redis_ms: int) -> int:
        """The monotonic millisecond at which Redis time will be ``redis_ms``."""
        return self.monotonic_ms() + redis_ms - self.redis_ms()

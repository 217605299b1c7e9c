"""A pace: bulk work in small parts, no faster than so many a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

#: A second's worth is done in this many parts, so that the queue gets no bursts.
PARTS_A_SECOND = 5


class Pace:
    """``rate`` items a second (None: as fast as it goes)."""

    def __init__(
        self, rate: float | None, *, sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._sleep, self._monotonic = rate, sleep, monotonic
        self._free_at = monotonic()

    def parts(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """``items`` in order, in parts; each is given out when its time has come."""
        if self._rate is None:
            yield items
            return
        size = max(1, int(self._rate / PARTS_A_SECOND))
        for at in range(0, len(items), size):
            part = items[at:at + size]
            now = self._monotonic()
            if now < self._free_at:
                self._sleep(self._free_at - now)
            # Time that was not used is gone: after a slow part the next ones do not hurry.
            self._free_at = max(self._free_at, now) + len(part) / self._rate
            yield part

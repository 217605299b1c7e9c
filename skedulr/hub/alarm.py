"""An alarm: the next due time of a set that lives elsewhere, as one entry in the wheel.

A process does not keep every delayed task of its pool. It keeps the time of the next one, which
each answer of Redis brings up to date; one entry stands for a million tasks, and what is due is
still what Redis says is due. A time beyond the horizon is rung for early, so that a wrong one (the
server's clock was set) is not slept on for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from .driver import Driver
from .wheel import Entry

#: A due time further away than this is looked at again before it comes, seconds.
HORIZON_S = 60.0


class Alarm:
    """Calls ``ring`` at the earliest time it was set to. ``inline`` and ``internal`` as of the
    driver's ``at``."""

    def __init__(
        self, driver: Driver, ring: Callable[[], object], *, inline: bool = False,
        internal: bool = False,
    ) -> None:
        self._driver, self._ring = driver, ring
        self._inline, self._internal = inline, internal
        self._entry: Entry | None = None
        self._due_ms = 0

    def set(self, due_ms: int) -> None:
        """Ring at this monotonic millisecond, unless an earlier ring is planned already."""
        due_ms = min(due_ms, self._driver.monotonic_ms() + round(HORIZON_S * 1000))
        if self._entry is not None:
            if self._due_ms <= due_ms:
                return
            self._entry.cancel()
        self._due_ms = due_ms
        self._entry = self._driver.at(
            due_ms, self._go_off, inline=self._inline, internal=self._internal
        )

    def set_in(self, seconds: float) -> None:
        """Ring this many seconds from now, unless an earlier ring is planned already."""
        self.set(self._driver.monotonic_ms() + round(seconds * 1000))

    def cancel(self) -> None:
        """Do not ring. Safe twice."""
        if self._entry is not None:
            self._entry.cancel()
            self._entry = None

    def _go_off(self) -> None:
        self._entry = None
        self._ring()

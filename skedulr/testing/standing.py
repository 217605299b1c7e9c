"""The clock of tests: it stands still until it is told to move."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from .. import options
from ..clock import Clock as ProcessClock
from ..errors import ConfigError


class Clock:
    """Redis time for tests, in whole milliseconds. Made, it shows ``start`` (default: now).

    ``start`` is an aware datetime or epoch seconds.

    >>> clock = Clock(1_700_000_000)
    >>> clock.forward(0.25)
    >>> clock.time()
    1700000000.25
    """

    def __init__(self, start: datetime | float | None = None) -> None:
        seconds = time.time() if start is None else options.moment("start", start)
        self.ms = round(seconds * 1000)

    def __repr__(self) -> str:
        return f"<Clock at {self.now().isoformat()}>"

    def time(self) -> float:
        """Epoch seconds."""
        return self.ms / 1000

    def now(self) -> datetime:
        """The same as an aware datetime, in UTC."""
        return datetime.fromtimestamp(self.ms / 1000, UTC)

    def forward(self, seconds: float | timedelta) -> None:
        """Move on. Runs nothing: ``DrivenApp.advance`` does both."""
        self.ms += round(options.seconds("seconds", seconds) * 1000)

    def set_ms(self, ms: int) -> None:
        """Move on to ``ms``; ConfigError for a time that is past."""
        if ms < self.ms:
            raise ConfigError(f"the clock can not go back from {self.ms} to {ms}")
        self.ms = ms


class RedisClock(ProcessClock):
    """What a worker process knows of the time: here, exactly what the test's clock shows."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def monotonic_ms(self) -> int:
        """Milliseconds of the test's clock."""
        return self._clock.ms

    def redis_ms(self) -> int:
        """Milliseconds of the test's clock."""
        return self._clock.ms

"""How far long work has come: a line on stderr, on a terminal only, ten times a second at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

_REDRAW_S = 0.1
_BAR = 24


class Progress:
    """A context: ``count`` is how many are done; ``read(n)`` adds to what is read of ``total``.

    ``total`` may be anything that grows evenly, such as bytes of a file; None where it is unknown.
    """

    def __init__(
        self, stream: TextIO, total: int | None = None, *, what: str = "tasks",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._total, self._what, self._monotonic = stream, total, what, monotonic
        self._drawn_at = 0.0
        self._done = 0
        self.count = 0
        self._began = monotonic()
        self._shown = stream.isatty()

    def __enter__(self) -> Progress:
        self._began = self._monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        """Take the line away: what comes next begins at the left."""
        if self._shown and self._drawn_at:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def expect(self, total: int) -> None:
        """What there is in all is known by now."""
        self._total = total

    def read(self, amount: int) -> None:
        """``amount`` more of the total is behind us; draws when it is time."""
        self._done += amount
        if not self._shown:
            return
        now = self._monotonic()
        if now - self._drawn_at >= _REDRAW_S:
            self._drawn_at = now
            self._stream.write(f"\r{self.line(now)}\x1b[K")
            self._stream.flush()

    def line(self, now: float) -> str:
        """What is shown: ``[####----]  50 %  12,000 tasks  41,230/s  3 s left``."""
        passed = max(now - self._began, 1e-9)
        parts = [f"{self.count:,} {self._what}", f"{self.count / passed:,.0f}/s"]
        if self._total:
            part = min(1.0, self._done / self._total)
            full = int(part * _BAR)
            parts.insert(0, f"[{'#' * full}{'-' * (_BAR - full)}] {part:4.0%}")
            if part and passed > 1:
                parts.append(f"{passed / part - passed:,.0f} s left")
        return "  ".join(parts)

    def took(self) -> str:
        """For the last line: `` in 2.4 s, 41,230/s``."""
        passed = max(self._monotonic() - self._began, 1e-9)
        return f" in {passed:.1f} s, {self.count / passed:,.0f}/s"

"""Unique ids made by clients: sortable by time, the same length, safe across processes and forks.

Nine characters of milliseconds, three of a counter, eight of a random number that each process
draws: two are the same only if two processes drew the same 40 bits, and then submit in the same
millisecond, or if one process submits more than 32,768 in a millisecond.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count

#: In the order of their character codes, so that text order is number order.
_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [a + b for a in _DIGITS for b in _DIGITS]
_COUNTS = 32**3


class Uids:
    """``next()`` gives a new uid of 20 characters; from any greenlet or thread."""

    def __init__(self, epoch_s: Callable[[], float] = time.time) -> None:
        self._epoch_s = epoch_s
        self._pid = 0
        self._tail = ""
        # Drawing from it is one step even between native threads. It goes on when the clock is set
        # back, so a millisecond that comes twice gives other uids.
        self._count = count()
        #: The last millisecond and its text. One tuple, so that threads see both or neither.
        self._last = (-1, "")

    def next(self) -> str:
        """A new uid."""
        if os.getpid() != self._pid:
            # After a fork both sides hold the same number; each draws its own.
            self._tail = _text(int.from_bytes(os.urandom(5), "big"), 8)
            self._pid = os.getpid()
        ms = int(self._epoch_s() * 1000)
        known, text = self._last
        if ms != known:
            text = _text(ms * 32, 10)[:9]
            self._last = (ms, text)
        number = next(self._count) % _COUNTS
        return text + _PAIRS[number >> 5] + _DIGITS[number & 31] + self._tail


def made_ms(uid: str) -> int:
    """When a uid of this form was made, epoch milliseconds (its maker's clock)."""
    return int(uid[:9], 32)


def _text(number: int, length: int) -> str:
    pairs = []
    for _ in range(length // 2):
        number, low = divmod(number, 1024)
        pairs.append(_PAIRS[low])
    return "".join(reversed(pairs))

"""A small, fixed number of connections shared by whoever needs one for a moment.

Greenlets and threads wait for their turn; a connection that broke in someone's hands comes back
closed and is made anew by the next one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .redis_scripts import Script
from .whereabouts import Whereabouts
from .wire import NotAnswered, Wire

#: No answer is waited for less than this, seconds.
_SHORTEST_S = 0.1


class Wires:
    """Up to ``size`` connections to ``url``, lent one caller at a time."""

    def __init__(
        self, url: str, *, name: str, size: int = 4, timeout_s: float = 5.0,
        whereabouts: Whereabouts | None = None,
    ) -> None:
        self._all = [
            Wire(url, name=name, timeout_s=timeout_s, whereabouts=whereabouts)
            for _ in range(size)
        ]
        self._free = deque(self._all)
        self._turns = threading.Semaphore(size)
        self._timeout_s = timeout_s

    @contextmanager
    def lend(self, timeout_s: float | None = None) -> Iterator[Wire]:
        """A connection for the length of the block, that is open when the block begins.

        All of it, waiting for a turn too, and each answer in the block, take ``timeout_s`` at most
        (None: the usual bound). Raises NotAnswered when all stay busy, and what ``Wire.connect``
        does.
        """
        allowed_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        deadline = time.monotonic() + allowed_s
        if not self._turns.acquire(timeout=allowed_s):
            raise NotAnswered("all connections of this process are busy", sent=False)
        # The last one given back is the likeliest to be open.
        wire = self._free.pop()
        try:
            if allowed_s < self._timeout_s:
                wire.timeout_s = max(_SHORTEST_S, allowed_s)
            if not wire.connected:
                wire.connect()
                left_s = deadline - time.monotonic()
                if left_s < 0.9 * allowed_s:
                    wire.timeout_s = max(_SHORTEST_S, left_s)
            yield wire
        finally:
            wire.timeout_s = self._timeout_s
            self._free.append(wire)
            self._turns.release()

    def close(self) -> None:
        """Close those that nobody holds."""
        for wire in list(self._free):
            wire.close()

    def leave(self) -> None:
        """As ``Wire.leave``, those that are lent included."""
        for wire in self._all:
            wire.leave()


class SharedWire(Wire):
    """One connection for several greenlets whose calls are rare: they take turns."""

    def __init__(self, url: str, *, name: str, timeout_s: float = 5.0) -> None:
        super().__init__(url, name=name, timeout_s=timeout_s)
        # One that its holder may take again: a script that is not known there is sent by ``call``.
        self._turn = threading.RLock()

    def call(self, *command: Any, timeout_s: float | None = None) -> Any:
        """As ``Wire.call``, after those who came before."""
        with self._turn:
            return super().call(*command, timeout_s=timeout_s)

    def run(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """As ``Wire.run``, after those who came before."""
        with self._turn:
            return super().run(script, keys, args)

    def calls(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """As ``Wire.calls``, after those who came before."""
        with self._turn:
            return super().calls(commands)

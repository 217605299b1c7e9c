"""Signals, only recorded: the handler notes the number, one loop acts.

A wake-up pipe makes a sleeping hub notice at once. Signals are blocked across a fork and let
through once the child has handlers of its own, or one that comes in between would be lost.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from gevent import monkey, socket
from gevent.hub import get_hub

_signal = monkey.get_original("signal", "signal")

#: What a master listens to; a child listens to some and ignores the others.
WATCHED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTTIN, signal.SIGTTOU,
    signal.SIGCHLD,
)


@contextmanager
def blocked() -> Iterator[None]:
    """No watched signal is delivered inside the block; what came meanwhile is, after it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        yield
    finally:
        unblock()


def unblock() -> None:
    """Let watched signals through (again)."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)


class Signals:
    """Records signals and lets one greenlet wait for them."""

    def __init__(self) -> None:
        self._came: deque[int] = deque()
        self._reader = self._writer = -1
        self._watched: tuple[int, ...] = ()

    def listen(self, watched: Iterable[int], ignored: Iterable[int] = ()) -> None:
        """Record ``watched`` from now on, drop ``ignored``; in place of inherited handlers."""
        self.close()
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        # The interpreter writes to it in the C handler, so that the hub wakes up and runs ours.
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._watched = tuple(watched)
        for number in self._watched:
            _signal(number, self._record)
        for number in ignored:
            _signal(number, signal.SIG_IGN)

    def wait(self, timeout_s: float) -> list[int]:
        """Signals that came, in order; waits up to ``timeout_s`` for the first, or for ``wake``."""
        if not self._came:
            watcher = get_hub().loop.io(self._reader, 1)
            try:
                socket.wait(watcher, timeout=timeout_s, timeout_exc=_Over())
            except _Over:
                pass
            finally:
                watcher.close()
        self._drain()
        came = []
        while self._came:
            came.append(self._came.popleft())
        return came

    def wake(self) -> None:
        """Let ``wait`` return at once, with what came so far."""
        if self._writer >= 0:
            try:
                os.write(self._writer, b"\0")
            except BlockingIOError:
                pass  # it is full: it wakes all the same

    def close(self) -> None:
        """Let go of the pipe, and ignore what was watched: the process is about to end, and a last
        signal shall not change its exit status. Safe twice."""
        if self._reader >= 0:
            for number in self._watched:
                _signal(number, signal.SIG_DFL if number == signal.SIGCHLD else signal.SIG_IGN)
            signal.set_wakeup_fd(-1)
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1

    def descriptors(self) -> tuple[int, int]:
        """The pipe's ends, for a forked child to close."""
        return self._reader, self._writer

    def _record(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)

    def _drain(self) -> None:
        try:
            while os.read(self._reader, 512):
                pass
        except BlockingIOError:
            pass


class _Over(Exception):
    """The time to wait for a signal is over."""

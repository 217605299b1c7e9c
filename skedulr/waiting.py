"""Waiting for results: one subscription a process, however many wait.

``watch`` in Redis is one step: the record, or the promise that this process's channel will be told.
The message only says which task ended; the record is read then. A message can be lost with its
connection, so every waiter looks again after each new subscription and every few seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from .subscription import follow
from .wire import WireError

log = logging.getLogger("skedulr.client")

#: A waiter that heard nothing looks for itself this often, seconds.
LOOK_AGAIN_S = 5.0


class Bell:
    """What one waiter sleeps on. ``ring`` may come before or after ``sleep``, from any thread."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Let the waiter go, now or when it comes."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:
                pass  # rung by another thread in between

    def sleep(self, seconds: float) -> bool:
        """Until rung (True) or for ``seconds``."""
        return self._lock.acquire(timeout=max(0.0, seconds))


class Listener:
    """Subscribes this process's channel and rings the bells of the tasks named in messages."""

    def __init__(self, *, url: str, channel: str, name: str) -> None:
        self.channel = channel
        self._url, self._name = url, name
        self._bells: dict[str, set[Bell]] = {}
        self._guard = threading.Lock()
        self._subscribed = threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self, id: str, bell: Bell, timeout_s: float) -> None:
        """Ring ``bell`` when the task ends; returns once the channel is subscribed, or in vain
        after ``timeout_s`` (the waiter then lives on looking again)."""
        with self._guard:
            self._bells.setdefault(id, set()).add(bell)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="skedulr-listener", daemon=True
                )
                self._thread.start()
        self._subscribed.wait(timeout_s)

    def leave(self, id: str, bell: Bell) -> bool:
        """Stop listening; True if nobody in this process waits for the task any more."""
        with self._guard:
            bells = self._bells.get(id, set())
            bells.discard(bell)
            if not bells:
                self._bells.pop(id, None)
            return not bells

    def _run(self) -> None:
        pause_s = 0.1
        while True:
            try:
                follow(self._url, self.channel, name=self._name,
                       on_subscribed=self._on_subscribed, on_message=self._ring)
            except Exception as error:
                log.debug("the subscription for results broke: %s", error)
            self._subscribed.clear()
            with self._guard:
                if not self._bells:
                    # Idle and disconnected: the next waiter starts a new one.
                    self._thread = None
                    return
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 2.0)

    def _on_subscribed(self) -> None:
        self._subscribed.set()
        self._ring_all()  # whoever missed a message while nobody listened

    def _ring(self, id: str) -> None:
        with self._guard:
            bells = list(self._bells.get(id, ()))
        for bell in bells:
            bell.ring()

    def _ring_all(self) -> None:
        with self._guard:
            bells = [bell for several in self._bells.values() for bell in several]
        for bell in bells:
            bell.ring()


def wait_for(
    listener: Listener, id: str, look: Callable[[], bytes | None], deadline: float | None,
) -> bytes | None:
    """The record of a task once it ended; None when ``deadline`` (monotonic seconds) is over.

    ``look`` asks Redis: the record, or None and the channel will be told.
    """
    bell = Bell()
    listener.listen(id, bell, 1.0 if deadline is None else max(0.0, deadline - time.monotonic()))
    try:
        while True:
            try:
                record = look()
            except WireError:
                record = None
                if deadline is not None and time.monotonic() >= deadline:
                    raise
            if record is not None:
                return record
            left_s = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                return None
            bell.sleep(min(left_s, LOOK_AGAIN_S))
    finally:
        listener.leave(id, bell)

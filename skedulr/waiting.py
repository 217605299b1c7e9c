"""Waiting for tasks to end: one subscription a process, however many wait.

``watch`` in Redis is one step: the record, or the promise that this process's channel will be told.
The message only says which task ended; the record is read then. A message can be lost with its
connection, so every waiter looks again after each new subscription and every few seconds.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from redis.connection import Connection

from .whereabouts import Whereabouts
from .wire import WireError, end_connection, leave_connection, open_connection

log = logging.getLogger("skedulr.client")

#: A waiter that heard nothing looks for itself this often, seconds; with many tasks, less often.
LOOK_AGAIN_S = 5.0
_LOOKS_PER_S = 100
#: Redis did not answer a look: the next one.
_AFTER_FAILURE_S = 1.0
#: For the subscription a waiter waits this long; then it lives on looking again.
_SUBSCRIBED_S = 1.0


class Waiter:
    """What one caller sleeps on. ``tell`` may come before or during ``sleep``, from any thread."""

    __slots__ = ("_bell", "_told")

    def __init__(self) -> None:
        self._told: deque[str | None] = deque()
        # A lock used as a bell: locked while silent.
        self._bell = threading.Lock()
        self._bell.acquire()

    def tell(self, id: str | None) -> None:
        """This task ended; None: messages may have been lost, look at all."""
        self._told.append(id)
        if self._bell.locked():
            try:
                self._bell.release()
            except RuntimeError:
                pass  # rung by another thread in between

    def sleep(self, seconds: float) -> list[str | None]:
        """What it was told; waits for that up to ``seconds``."""
        self._bell.acquire(timeout=max(0.0, seconds))
        told = []
        while self._told:
            told.append(self._told.popleft())
        return told


class Listener:
    """Subscribes this process's channel and tells the waiters of the tasks named in messages."""

    def __init__(
        self, *, url: str, channel: str, name: str, whereabouts: Whereabouts | None = None
    ) -> None:
        self.channel, self._whereabouts = channel, whereabouts
        self._url, self._name = url, name
        self._waiters: dict[str, set[Waiter]] = {}
        self._guard = threading.Lock()
        self._subscribed = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._stopped = False
        self._connection: Connection | None = None

    def join(self, ids: Iterable[str], waiter: Waiter, timeout_s: float) -> None:
        """Tell ``waiter`` when one of the tasks ends; returns once the channel is subscribed, or
        in vain after ``timeout_s``."""
        with self._guard:
            for id in ids:
                self._waiters.setdefault(id, set()).add(waiter)
            if self._thread is None or not self._thread.is_alive():
                self._subscribed.clear()
                self._thread = threading.Thread(
                    target=self._run, name="skedulr-listener", daemon=True
                )
                self._thread.start()
        self._subscribed.wait(timeout_s)

    def leave(self, ids: Iterable[str], waiter: Waiter) -> list[str]:
        """Stop telling; those of ``ids`` that nobody in this process waits for any more."""
        with self._guard:
            return [id for id in ids if self._forget(id, waiter)]

    def hint(self, id: str) -> None:
        """Have whoever waits for the task look again."""
        self._tell(id)

    @property
    def subscribed(self) -> bool:
        """Whether messages are heard just now."""
        return self._subscribed.is_set()

    def stop(self, *, now: bool = True) -> None:
        """End the subscription, ``now`` or within a minute; who still waits lives on looking."""
        self._stopped = True
        if now:
            end_connection(self._connection)

    def leave_parent(self) -> None:
        """As ``Wire.leave``."""
        leave_connection(self._connection)

    def _forget(self, id: str, waiter: Waiter) -> bool:
        waiters = self._waiters.get(id, set())
        waiters.discard(waiter)
        if not waiters:
            self._waiters.pop(id, None)
        return not waiters

    def _run(self) -> None:
        pause_s = 0.1
        # A forked child of a patched process goes on running copies of its parent's greenlets.
        while os.getpid() == self._pid:
            try:
                self._follow()
            except Exception as error:
                log.debug("the subscription for results broke: %s", error)
            if self._subscribed.is_set():
                self._subscribed.clear()
                pause_s = 0.1
            with self._guard:
                if not self._waiters or self._stopped:
                    # Idle and disconnected: the next waiter starts a new one.
                    self._thread = None
                    return
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 2.0)

    def _follow(self) -> None:
        connection = self._connection = open_connection(
            self._url, name=self._name, timeout_s=5.0, key=self.channel,
            whereabouts=self._whereabouts,
        )
        try:
            connection.send_command("SUBSCRIBE", self.channel)
            connection.read_response(timeout=5.0)
            # Whoever missed a message while nobody listened; newcomers look once it is set.
            self._tell_all()
            self._subscribed.set()
            while not self._stopped:
                if not connection.can_read(timeout=60):
                    connection.send_command("PING")
                kind, *rest = connection.read_response(timeout=10.0)
                if kind == b"message":
                    self._tell(rest[1].decode())
        finally:
            connection.disconnect()

    def _tell(self, id: str) -> None:
        with self._guard:
            waiters = list(self._waiters.get(id, ()))
        for waiter in waiters:
            waiter.tell(id)

    def _tell_all(self) -> None:
        with self._guard:
            waiters = {waiter for several in self._waiters.values() for waiter in several}
        for waiter in waiters:
            waiter.tell(None)


class Watch:
    """One caller's wait for the end of several tasks.

    ``look(id)`` asks Redis: the record, or None and the channel will be told. ``unlook(id)`` takes
    that promise back.
    """

    def __init__(
        self, *, listener: Listener, ids: Iterable[str], look: Callable[[str], bytes | None],
        unlook: Callable[[str], None],
    ) -> None:
        self._listener, self._look, self._unlook = listener, look, unlook
        self._waiter = Waiter()
        #: Those that have not ended, in the order given.
        self.left = dict.fromkeys(ids)

    def ends(self, deadline: float | None) -> Iterator[tuple[str, bytes]]:
        """Each task's id and record when it has ended, until all have or the time is over.

        ``deadline`` is in monotonic seconds. Raises WireError where Redis does not answer and the
        time is over.
        """
        # Whoever asks for what ended long ago needs no subscription.
        joined = self._listener.subscribed and self._join(deadline)
        tidy = False
        to_look = list(self.left)
        try:
            while True:
                pause_s, problem = LOOK_AGAIN_S + len(self.left) / _LOOKS_PER_S, None
                try:
                    yield from self._look_at(to_look)
                except WireError as error:
                    pause_s, problem = _AFTER_FAILURE_S, error
                if not self.left:
                    return
                if _left_s(deadline) <= 0:
                    if problem is not None:
                        raise problem
                    tidy = True
                    return
                if not joined:
                    joined = self._join(deadline)
                    # What it was told meanwhile, the look at all of them finds.
                    self._waiter.sleep(0)
                    to_look = list(self.left)
                    continue
                told = self._waiter.sleep(min(pause_s, _left_s(deadline)))
                hopeful = told and None not in told and problem is None
                to_look = [id for id in dict.fromkeys(told if hopeful else self.left) if id]
        except GeneratorExit:
            tidy = True
            raise
        finally:
            # A greenlet that is killed talks to nobody any more.
            self._leave(tidy=tidy)

    def _join(self, deadline: float | None) -> bool:
        self._listener.join(self.left, self._waiter, min(_SUBSCRIBED_S, _left_s(deadline)))
        return True

    def _look_at(self, ids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for id in ids:
            record = self._look(id) if id in self.left else None
            if record is not None:
                del self.left[id]
                yield id, record

    def _leave(self, *, tidy: bool) -> None:
        alone = self._listener.leave(self.left, self._waiter)
        if not tidy:
            return
        try:
            for id in alone:
                self._unlook(id)
                # Another caller may have begun to wait in between; its promise went with ours.
                self._listener.hint(id)
        except WireError:
            pass  # the task's end removes it as well


def _left_s(deadline: float | None) -> float:
    """Seconds until ``deadline``; as good as for ever without one."""
    return 3600.0 if deadline is None else deadline - time.monotonic()

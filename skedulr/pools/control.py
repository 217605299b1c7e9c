"""The control channel: cancels reach a running task at once instead of at the next renewal."""

from __future__ import annotations

import logging
from collections.abc import Callable

import gevent

from ..subscription import follow
from .patience import FIRST_S, LONGEST_S

log = logging.getLogger("skedulr.pool")


class Control:
    """Follows the namespace's control channel. ``on_cancel(uid)`` hears of this pool's cancels,
    ``on_change()`` that settings of the pool may have changed (also after each new subscription,
    since a message may have been missed), ``on_outbox()`` that there is something to deliver,
    ``on_death()`` that tasks have died that no hook was told of, ``on_look(uid)`` that somebody
    wants to see where a task is."""

    def __init__(
        self, *, url: str, channel: str, name: str, pool: str,
        on_cancel: Callable[[bytes], object], on_change: Callable[[], object],
        on_outbox: Callable[[], object] = lambda: None,
        on_look: Callable[[bytes], object] = lambda uid: None,
        on_death: Callable[[], object] = lambda: None,
    ) -> None:
        self._on_outbox, self._on_look, self._on_death = on_outbox, on_look, on_death
        self._url, self._channel, self._name, self._pool = url, channel, name, pool
        self._on_cancel, self._on_change = on_cancel, on_change
        self._greenlet: gevent.Greenlet | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._greenlet = gevent.spawn(self._run)

    @property
    def greenlets(self) -> list[gevent.Greenlet]:
        """Those that must live for it to work."""
        return [self._greenlet] if self._greenlet is not None else []

    def stop(self) -> None:
        """Listen no more. Safe twice."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None

    def _run(self) -> None:
        failures = 0
        while True:
            try:
                follow(self._url, self._channel, name=self._name,
                       on_subscribed=self._on_change, on_message=self._hear)
            except Exception as error:
                failures += 1
                log.debug("the control channel broke: %s", error)
            gevent.sleep(min(LONGEST_S, FIRST_S * 2 ** min(failures, 10)))

    def _hear(self, text: str) -> None:
        verb, _, what = text.partition(" ")
        if not what:
            # "<pool>/<uid>" ended, a run that a tick of its schedule waits for.
            what = verb
        pool, _, uid = what.partition("/")
        if pool not in (self._pool, "*"):
            return
        if verb == "outbox":
            self._on_outbox()
        elif verb == "death":
            self._on_death()
        elif verb == "cancel":
            self._on_cancel(uid.encode())
        elif verb == "look":
            self._on_look(uid.encode())
        else:
            self._on_change()

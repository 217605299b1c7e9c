"""The publisher: tells the namespace which tasks this child knows, their pools and defaults.

Every child publishes all tasks of its app, at boot and once a minute, since another one may have
published something else meanwhile; the last word counts.
"""

from __future__ import annotations

import logging

from .. import names
from ..app import Skedulr
from ..clock import Clock
from ..hub.driver import Driver
from ..keys import SpaceKeys
from ..store import BATCH
from ..wire import Wire, WireError

log = logging.getLogger("skedulr.pool")

#: Between two times, seconds.
PAUSE_S = 60.0
#: What nobody has published for this long is forgotten.
FORGET_AFTER_S = 30 * 86400.0


class Publisher:
    """Publishes an app's tasks, and says where a name is at home."""

    def __init__(
        self, *, app: Skedulr, space: SpaceKeys, wire: Wire, clock: Clock, driver: Driver
    ) -> None:
        self._app, self._wire, self._clock, self._driver = app, wire, clock, driver
        self._key = space.names
        self._directory = names.Directory(lambda name: wire.call("HGET", space.names, name))

    def start(self) -> None:
        """Publish now and from now on."""
        self._driver.after(0, self._first, internal=True)
        self._repeat = self._driver.every(PAUSE_S, self.publish, internal=True)

    def publish(self) -> None:
        """Write an entry for each task."""
        now_ms = self._clock.redis_ms()
        pairs = [(task.name, names.pack(names.published(task, now_ms))) for task in self._app.tasks]
        try:
            for at in range(0, len(pairs), BATCH):
                flat = [part for pair in pairs[at:at + BATCH] for part in pair]
                self._wire.call("HSET", self._key, *flat)
        except WireError as error:
            log.debug("the tasks' names are not published: %s", error)

    def home_of(self, name: str) -> names.Published | None:
        """The pool that tasks of this name belong to, and defaults; None where nobody knows.

        Asks Redis (cached) about a name that is not registered here.
        """
        known = self._app.tasks.get(name)
        if known is not None:
            return names.published(known)
        try:
            return self._directory.find(name)
        except WireError as error:
            log.debug("the directory of tasks can not be asked: %s", error)
            return None

    def _first(self) -> None:
        self.publish()
        try:
            self._forget_old()
        except WireError as error:
            log.debug("old names are not forgotten: %s", error)

    def _forget_old(self) -> None:
        since_ms = self._clock.redis_ms() - FORGET_AFTER_S * 1000
        flat = self._wire.call("HGETALL", self._key)
        entries = zip(flat[::2], flat[1::2], strict=True)
        old = [
            name for name, entry in entries
            if (known := names.unpack(entry)) is None or known.at_ms < since_ms
        ]
        for at in range(0, len(old), BATCH):
            self._wire.call("HDEL", self._key, *old[at:at + BATCH])

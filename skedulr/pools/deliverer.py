"""The deliverer: tells waiting tasks of this pool, and others, what became of their parents.

It looks at the pool's outbox whenever this process ended a task that others wait for, when the
control channel says so, and when the sweep for expired leases finds something in it; at those of
all pools now and then, because one that nobody serves may hold what another waits for.
"""

from __future__ import annotations

import logging

import gevent
from gevent.event import Event

from ..delivery import Delivery
from ..hub.driver import Driver, Repeat
from ..keys import PoolKeys, SpaceKeys
from ..queries import pool_names
from ..wire import Wire, WireError

log = logging.getLogger("skedulr.pool")

#: Between two looks at what is delivered and still to be removed, seconds.
LOOK_S = 6.0
#: Every so many of those are at the outboxes of all pools. An idle one pays for them.
ALL_POOLS = 5


class Deliverer:
    """Delivers for ``pool``, one call after the other, on a greenlet of its own."""

    def __init__(
        self, *, namespace: str, pool: str, wire: Wire, driver: Driver
    ) -> None:
        self._space, self._pool, self._wire, self._driver = (
            SpaceKeys(namespace), pool, wire, driver
        )
        self._namespace = namespace
        self._delivery = Delivery(namespace, wire)
        self._work = Event()
        self._greenlet: gevent.Greenlet | None = None
        self._repeat: Repeat | None = None
        self._looks = 0

    def start(self) -> None:
        """Deliver from now on."""
        self._greenlet = gevent.spawn(self._run)
        self._repeat = self._driver.every(LOOK_S, self.look, jitter=0.2, internal=True)

    def stop(self) -> None:
        """No more. What is half delivered comes again elsewhere. Safe twice."""
        if self._repeat is not None:
            self._repeat.cancel()
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None

    def wake(self) -> None:
        """There is something to deliver."""
        self._work.set()

    def look(self) -> None:
        """See whether there is something, for nobody may have said so."""
        self._looks += 1
        try:
            if self._delivery.owes:
                self.wake()
            if self._looks % ALL_POOLS == 0:
                self._look_everywhere()
        except WireError as error:
            log.debug("can not look at the outbox: %s", error)

    def _look_everywhere(self) -> None:
        for pool in pool_names(self._wire, self._space):
            if self._wire.call("EXISTS", PoolKeys(self._namespace, pool).outbox):
                self._delivery.told.add(pool)
                self.wake()

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            try:
                self._delivery.deliver(self._pool)
            except WireError as error:
                # What was taken comes again; the next look goes on.
                log.debug("can not deliver: %s", error)
            except Exception:
                # What was taken comes again after a while, and so does this.
                log.exception("the outbox could not be delivered; it is tried again")

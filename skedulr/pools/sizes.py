"""The sizes that operators and the leader gave pools while they run: followed by the master.

They are kept in Redis (``scale_pool`` writes the one, the leader's tuner the other), so that every
node follows them, now and after a restart. The control channel says when to look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gevent

from .. import sizing
from ..keys import SpaceKeys
from ..lead import read_sizes
from ..sizing import Size
from ..subscription import follow
from ..wire import WireError
from ..wires import SharedWire

log = logging.getLogger("skedulr.master")

#: Between two tries to subscribe, seconds.
AGAIN_S = 1.0


class Sizes:
    """Follows the stored sizes; ``on_change`` is called on a greenlet of its own. Whoever owns it
    calls ``look`` where ``version`` is no longer the one that is stored. ``on_free`` hears on the
    same channel that a leader let go of its lead."""

    def __init__(
        self, *, url: str, space: SpaceKeys, name: str, on_change: Callable[[], object],
        on_free: Callable[[], object] = lambda: None,
    ) -> None:
        self._url, self._space, self._name = url, space, name
        self._on_change, self._on_free = on_change, on_free
        self._wire = SharedWire(url, name=f"{name}:sizes", timeout_s=2)
        self._greenlet: gevent.Greenlet | None = None
        #: By pool; a pool that is not here has the size of the configuration.
        self.stored: dict[str, Size] = {}
        #: The nodes that are to claim nothing.
        self.drained: frozenset[str] = frozenset()
        #: How often they had been changed when they were read; -1: they have not been.
        self.version = -1
        #: What the leader published of tuned pools, and how often it had.
        self.tuned: dict[str, Any] = {}
        self.tuned_version = -1

    def start(self) -> None:
        """Follow from now on."""
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._follow)

    def stop(self) -> None:
        """Follow no more. Safe twice."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None
        self._wire.close()

    def look(self) -> bool:
        """Read them once; False where Redis did not answer. What was known then stays."""
        try:
            self.version, stored, drained = sizing.look(self._wire, self._space)
            self.tuned_version, tuned = read_sizes(
                self._wire.call("HGETALL", self._space.tuning)
            )
        except WireError as error:
            log.debug("can not read the pools' sizes: %s", error)
            return False
        if (stored, drained, tuned) != (self.stored, self.drained, self.tuned):
            self.stored, self.drained, self.tuned = stored, drained, tuned
            self._on_change()
        return True

    def _follow(self) -> None:
        while True:
            try:
                follow(self._url, self._space.control, name=f"{self._name}:control",
                       on_subscribed=self.look, on_message=self._hear)
            except Exception as error:
                log.debug("the control channel broke: %s", error)
            gevent.sleep(AGAIN_S)

    def _hear(self, text: str) -> None:
        verb = text.partition(" ")[0]
        if verb == "lead":
            self._on_free()
        elif verb != "cancel":
            self.look()

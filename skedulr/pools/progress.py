"""Progress: what running tasks report, gathered and written a few times a second at most."""

from __future__ import annotations

import logging

import msgpack

from ..hub.driver import Driver
from ..storage import BATCH, Storage
from ..wire import Wire, WireError

log = logging.getLogger("skedulr.pool")

#: Between two writes, seconds: a task's progress is written at most five times a second.
PAUSE_S = 0.2
#: The longest note that is kept, characters.
LONGEST_NOTE = 500


class Progress:
    """The newest report of each running task, on its way to Redis."""

    def __init__(self, *, store: Storage, wire: Wire, driver: Driver) -> None:
        self._store, self._wire, self._driver = store, wire, driver
        self._reports: dict[bytes, tuple[bytes, bytes]] = {}
        self._planned = False

    def report(self, uid: bytes, token: bytes, percent: float, note: str | None) -> None:
        """Note it; an earlier report that was not written yet is replaced."""
        text = msgpack.packb([percent, note[:LONGEST_NOTE] if note else None])
        self._reports[uid] = (token, text)
        if not self._planned:
            self._planned = True
            self._driver.after(PAUSE_S, self.write, internal=True)

    def write(self) -> None:
        """Write what has gathered. Where Redis does not answer it is dropped: newer will come."""
        self._planned = False
        reports, self._reports = self._reports, {}
        batch = [(uid, token, text) for uid, (token, text) in reports.items()]
        for at in range(0, len(batch), BATCH):
            try:
                self._store.progress(self._wire, batch[at:at + BATCH])
            except WireError as error:
                log.debug("progress is not written: %s", error)

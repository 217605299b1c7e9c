"""Audit: who changed what through the UI or its HTTP interface, and when."""

from __future__ import annotations

import logging
from typing import Any

import msgpack

from ..client import Client
from ..errors import StorageUnavailable
from ..wire import Wire

log = logging.getLogger("skedulr.audit")

#: So many of the newest changes are kept.
KEPT = 1_000


class Audit:
    """The list of changes, newest first, shared by all masters of the namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def note(self, *, who: str, where: str, what: str, target: str) -> None:
        """Write one change down, here and in the log. ``where`` is the caller's address."""
        log.info("%s: %s by %s from %s", what, target, who, where)
        key = self._client.space.audit

        def write(wire: Wire) -> None:
            seconds, micros = wire.call("TIME")
            at = int(seconds) + int(micros) / 1e6
            wire.call("LPUSH", key, msgpack.packb([at, who, where, what, target[:500]]))
            wire.call("LTRIM", key, 0, KEPT - 1)

        try:
            self._client.ask(write)
        except StorageUnavailable as error:
            # The change itself went through: saying it failed would have it done twice.
            log.warning("the change can not be noted: %s", error)

    def newest(self, count: int) -> list[dict[str, Any]]:
        """The newest changes."""
        key = self._client.space.audit
        rows: list[bytes] = self._client.ask(lambda wire: wire.call("LRANGE", key, 0, count - 1))
        names = ("at", "who", "where", "what", "target")
        return [dict(zip(names, msgpack.unpackb(row), strict=True)) for row in rows]

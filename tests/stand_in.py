"""A stand-in for a child: claims tasks and ends them as the test says, without master or fork.

    worker = StandIn(server.url, namespace="n")
    worker.run(lambda name, args, kwargs: args[0] + 1)     # everything that is ready
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from skedulr import message, payload
from skedulr.keys import PoolKeys
from skedulr.store import END_DEAD, END_SUCCEEDED, Ending, Lane, Store
from skedulr.wire import Wire

LEASE_MS = 15_000


class StandIn:
    """One owner in one pool. ``claimed`` are the tasks it holds: uid to (token, body)."""

    def __init__(self, url: str, *, namespace: str = "skedulr", pool: str = "default") -> None:
        self.store = Store(PoolKeys(namespace, pool))
        self.wire = Wire(url, name="test:stand-in")
        owner = f"test:{os.urandom(4).hex()}:1"
        self._claims = Lane(self.wire, owner)
        self._ends = Lane(self.wire, owner)
        self.claimed: dict[str, tuple[bytes, bytes]] = {}

    def claim(self, count: int = 500) -> list[str]:
        """Take up to ``count`` ready tasks; their uids."""
        taken = self.store.claim(self._claims, count, count, LEASE_MS)
        uids = [uid.decode() for uid in taken.rows[::4]]
        for uid, body in zip(uids, taken.rows[2::4], strict=True):
            self.claimed[uid] = (taken.token, body)
        return uids

    def succeed(self, uid: str, result: Any = None) -> None:
        """End a claimed task with this result."""
        entry = message.success(message.success_head("stand-in"), 1, 1, payload.encode(result))
        self._end(uid, END_SUCCEEDED, entry)

    def fail(self, uid: str, type: str = "ValueError", text: str = "no") -> None:
        """End a claimed task in the dead-letter queue."""
        error = [type, text, "Traceback ..."]
        self._end(uid, END_DEAD, message.entry(message.DEAD, "stand-in", 1, 1, error))

    def run(self, handler: Callable[[str, list[Any], dict[str, Any]], Any]) -> int:
        """Claim and succeed everything that is ready; how many tasks that were."""
        count = 0
        while uids := self.claim():
            for uid in uids:
                name, args, kwargs, _ = message.read_call(self.claimed[uid][1])
                self.succeed(uid, handler(name, args, kwargs))
                count += 1
        return count

    def close(self) -> None:
        self.wire.close()

    def _end(self, uid: str, kind: str, entry: bytes) -> None:
        token, _ = self.claimed.pop(uid)
        verdicts = self.store.finish(self._ends, [Ending(uid.encode(), token, kind, entry)])
        assert verdicts == "k", verdicts

"""The mover: takes tasks that lie in the wrong pool to the one their name belongs to.

A producer that knows a task by name alone, before any child had published it, submits to pool
``default``. A child there that knows better moves it, and no attempt is counted:

1. store it in the other pool, under the same uid and with the same envelope;
2. end it here (moved.lua, fenced by the claim's token) with a record that says where it is, which
   is where handles and waits go on.

Nothing is lost or doubled wherever a process dies. Before 1 the claim expires and the next child
does it all. Between 1 and 2 the same: the repeated submit finds the same id with the same envelope,
waiting, running or ended, and changes nothing. This holds while the other pool keeps the record,
which is never less than a minute, longer than any lease. A cancel that comes in between is found by
moved.lua and carried out in both pools.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from .. import message
from ..keys import PoolKeys, SpaceKeys
from ..storage import (
    ALREADY,
    CANCEL_MEANWHILE,
    DUPLICATE,
    END_CANCELLED,
    END_DEAD,
    NO_PRIORITY,
    PRIORITY,
    STORED,
    Ending,
    Lane,
    Relocation,
    Storage,
    Submission,
)
from ..transports import open_storage


class Mover:
    """Moves tasks of the pool of ``store``. ``lane`` is the recorder's."""

    def __init__(self, *, store: Storage, lane: Lane, space: SpaceKeys) -> None:
        self._store, self._lane, self._space = store, lane, space

    def move(self, batch: Sequence[Relocation]) -> Iterator[tuple[Relocation, str | Ending]]:
        """Of each its verdict here, KEPT or LOST; or how it is to end because it can not go."""
        stored = []
        for one in batch:
            refused = self._cancel_there(one) if one.cancelled else self._store_there(one)
            if refused is None:
                stored.append(one)
            else:
                yield one, refused
        if not stored:
            return
        verdicts = self._store.moved(self._lane, [
            (one.uid, one.token, message.moved(self._lane.owner, _new_id(one))) for one in stored
        ])
        for one, verdict in zip(stored, verdicts, strict=True):
            yield one, self._cancel_there(one) if verdict == CANCEL_MEANWHILE else verdict

    def _store_there(self, one: Relocation) -> Ending | None:
        there, wire = self._there(one), self._lane.wire
        submission = Submission(one.uid.decode(), one.envelope, one.options)

        def submit() -> str:
            wire.call("HSETNX", self._space.pools, one.pool, int(time.time() * 1000))
            return there.submit(wire, [submission])[0]

        verdict = self._lane.insist(submit)
        if verdict in (STORED, ALREADY):
            return None
        if verdict == PRIORITY:
            why = (
                f"pool {one.pool!r}, where this one belongs, has no priorities and no limits: "
                f"{NO_PRIORITY}"
            )
            return self._ending(one, END_DEAD, message.DEAD, ["ConfigError", why, ""])
        if verdict == DUPLICATE:
            why = f"another task has the id {_new_id(one)}, where this one belongs"
            return self._ending(one, END_DEAD, message.DEAD, ["DuplicateTask", why, ""])
        why = f"another task of pool {one.pool!r}, where this one belongs, holds its unique key"
        return self._ending(one, END_CANCELLED, message.CANCELLED, why)

    def _cancel_there(self, one: Relocation) -> Ending:
        there, why = self._there(one), "cancelled before it started"
        note = message.entry(message.CANCELLED, self._lane.owner, 0, 0, why)
        self._lane.insist(
            lambda: there.cancel(self._lane.wire, one.uid.decode(), note, self._space.control)
        )
        return self._ending(one, END_CANCELLED, message.CANCELLED, why)

    def _ending(self, one: Relocation, end: str, kind: int, value: object) -> Ending:
        return Ending(one.uid, one.token, end,
                      message.entry(kind, self._lane.owner, 0, 0, value))

    def _there(self, one: Relocation) -> Storage:
        return open_storage(PoolKeys(self._store.keys.namespace, one.pool))


def _new_id(one: Relocation) -> str:
    return f"{one.pool}/{one.uid.decode()}"

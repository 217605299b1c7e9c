"""What a child holds when it can not speak for itself.

- A dead child's claims are given back at once, and again and again while Redis is away; its death
  is judged (``poison.py``).
- The task for which a hung child was killed is counted as an attempt that timed out.
- While a living child's heart is silent (C code keeps the GIL, or somebody stopped the process),
  its leases are renewed in its place.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any

import gevent

from .. import message, names, retries
from ..errors import PayloadError, TaskTimeout
from ..errortext import describe
from ..keys import PoolKeys, SpaceKeys
from ..statistics import UNKNOWN
from ..storage import BATCH, END_DEAD, Ending, Failure, Judgement, Lane, Storage
from ..tasks import MAX_RETRIES
from ..transports import open_storage
from ..wire import Wire, WireError
from ..wires import SharedWire
from . import poison
from .child import DRAINED, GONE
from .children import Death, Process

log = logging.getLogger("skedulr.master")

#: Between two tries while Redis is away, seconds.
AGAIN_S = 0.2


class Estates:
    """Speaks for the children of one node. ``lease_s`` is how long a renewal holds."""

    def __init__(self, *, url: str, namespace: str, node: str, lease_s: float) -> None:
        self._url, self._namespace, self._node, self._lease_s = url, namespace, node, lease_s
        self._side = SharedWire(url, name=f"skedulr:{node}:master:renew", timeout_s=2)

    def close(self) -> None:
        """Drop the connection."""
        self._side.close()

    # The living

    def renew(self, process: Process) -> None:
        """Renew all that a child with a silent heart holds. A claim that went to others stays.

        But what it has claimed and not read of goes back: the child may have been asleep when it
        was stopped. It looks at ``taken`` before it starts any of it."""
        store = self._store(process)
        lease_ms = round(self._lease_s * 1000)
        number = int(process.board.under_way)
        process.board.taken = max(number, process.board.taken)
        unread = f"{process.owner}:{number}".encode()
        try:
            held = store.held_by(self._side, process.owner)
            back = [pair for pair in held if pair[1] == unread]
            if back:
                # Claims take no more than a batch.
                store.release(self._side, process.owner, back)
                held = [pair for pair in held if pair[1] != unread]
            for at in range(0, len(held), BATCH):
                store.renew(self._side, process.owner, held[at:at + BATCH], lease_ms)
        except WireError as error:
            log.warning("can not renew for pid %d: %s", process.pid, error)
            return
        log.debug("renewed %d leases for pid %d, whose heart is silent", len(held), process.pid)

    # The dead

    def release(
        self, death: Death, *, asked_for: bool, is_over: Callable[[], bool]
    ) -> None:
        """Give back what a dead child held. ``asked_for``: it was told to end, so nobody is
        charged; ``is_over``: asked between tries, whether to leave the rest to the leases."""
        process = death.process
        pool = process.slot.pool.name
        store = self._store(process)
        wire = Wire(self._url, name=f"skedulr:{self._node}:{pool}:release", timeout_s=2)
        try:
            while True:
                try:
                    if process.hung_s is not None and not asked_for:
                        self._time_out(store, wire, death)
                    count = self._release(store, wire, death, asked_for)
                    break
                except WireError as error:
                    if is_over():
                        # What is not known to hold nothing may hold something.
                        empty = death.status == DRAINED and process.board.empty_handed
                        log.log(
                            logging.DEBUG if empty else logging.WARNING,
                            "tasks of pid %d wait for their leases: %s", process.pid, error,
                        )
                        return
                    gevent.sleep(AGAIN_S)
        finally:
            wire.close()
        if count:
            log.warning("pool %s: %d tasks of pid %d are back in the queue", pool, count,
                        process.pid)

    def _release(self, store: Storage, wire: Wire, death: Death, asked_for: bool) -> int:
        pool, total, more = death.process.slot.pool.name, 0, True
        judgement = None if asked_for else self._judge(store, wire, death)
        while more:
            returned = store.release_owner(wire, death.process.owner, judgement)
            more = returned.more
            total += len(returned.uids)
            for uid in returned.charged:
                log.warning("task %s/%s is charged with the death of its process%s", pool,
                            uid.decode(), " as a loss" if death.from_outside else "")
            for uid in returned.dead:
                log.error("task %s/%s lost its process too often: it is dead", pool,
                          uid.decode())
            if returned.untold:
                self._hurry_mourners(wire, pool)
        return total

    def _time_out(self, store: Storage, wire: Wire, death: Death) -> None:
        """Write for the dead child that the task it hung in failed. Its token still holds."""
        process = death.process
        uid = process.board.culprit()
        standing = store.standing(wire, uid) if uid else None
        if standing is None or not standing.token.startswith(process.owner.encode() + b":"):
            return
        token, started_ms, body, attempts = standing
        attempt = attempts + 1
        error = TaskTimeout(
            f"its process had not yielded for {process.hung_s:.0f} s and was killed (hang_timeout)"
        )
        kind, text, _ = describe(error)
        value: list[Any] = [kind, text, death.last_words]
        most = process.board.retries_of_culprit(MAX_RETRIES)
        delay_s = _delay_s(body, attempt, error, most, lambda name: self._published(wire, name))
        sample = f" - {round((process.hung_s or 0) * 1000)} {_name_of(body)}"
        lane = _heir_lane(store, wire, process.owner)
        if delay_s is None:
            # First: whoever dies in between, the children hear of it when it has ended.
            store.note_death(wire, uid)
            store.finish(lane, [Ending(uid, token, END_DEAD + sample, message.entry(
                message.DEAD, process.owner, attempt, started_ms, value
            ))])
            self._hurry_mourners(wire, store.keys.pool)
        else:
            store.retry(lane, [Failure(uid, token, round(delay_s * 1000), message.entry(
                message.FAILED, process.owner, attempt, started_ms, [*value, delay_s]
            ), sample[1:])])
        log.error("task %s/%s hung on attempt %d; %s", store.keys.pool, uid.decode(), attempt,
                  "to the dead-letter queue" if delay_s is None else f"again in {delay_s:.3g} s")

    def _hurry_mourners(self, wire: Wire, pool: str) -> None:
        """Have a child of the pool tell its hooks at once: the next sweep would, too."""
        wire.call("PUBLISH", SpaceKeys(self._namespace).control, f"death {pool}/")

    def _published(self, wire: Wire, name: str) -> Any:
        """The strategy that the children published for a task of this name, as it travels."""
        known = names.unpack(wire.call("HGET", SpaceKeys(self._namespace).names, name))
        return known.retry if known is not None else None

    def _store(self, process: Process) -> Storage:
        pool = process.slot.pool
        return open_storage(PoolKeys(self._namespace, pool.name), pool.transport)

    def _judge(self, store: Storage, wire: Wire, death: Death) -> Judgement | None:
        """Whom to charge with a death; None: nobody."""
        process = death.process
        if death.status in (DRAINED, GONE) or process.board.draining or process.hung_s is not None:
            return None
        culprit = process.board.culprit()
        body = wire.call("HGET", store.keys.tasks, culprit) if culprit else None
        return poison.judge(
            culprit=culprit, owner=process.owner, host=socket.gethostname(), how=death.how,
            suspecting=True, loss=death.from_outside, name=_name_of(body) if body else "",
        )


def _name_of(body: bytes) -> str:
    """What a task is called, for the statistics."""
    try:
        return message.read_journal(body).name
    except PayloadError:
        return UNKNOWN


def _delay_s(
    body: bytes, attempt: int, error: BaseException, most: int | None,
    published: Callable[[str], Any],
) -> float | None:
    """When a task is tried again, seconds; None for no more.

    The call's own strategy counts before the one of the task (``published``, by its name). One of
    your own class is in the children alone: the default one stands in.
    """
    try:
        journal = message.read_journal(body)
    except PayloadError:
        return None
    strategy = (
        retries.from_wire(journal.extras.get("retry"))
        or retries.from_wire(published(journal.name))
        or retries.DEFAULT
    )
    return retries.delay_after(strategy, attempt, error, most)


def _heir_lane(store: Storage, wire: Wire, owner: str) -> Lane:
    """The lane on which an owner that is surely dead has finished, to go on with."""
    lane = Lane(wire, owner)
    lane.number = store.last_number(wire, owner, "finish")
    return lane

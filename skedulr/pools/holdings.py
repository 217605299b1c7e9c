"""The holdings: everything this process has claimed and not yet settled.

Claimed tasks are pending until a worker takes one; taking is one ``dict.pop``, so that a worker and
the heart, which gives pending tasks back when the hub is silent, can never both have it. What is
held is renewed. Nothing is started once the lease of what is held may have run out.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

from ..store import Claims
from .runs import Claimed

#: A Claimed from its seven values, without a step in Python: there is one for each task.
_claimed = partial(tuple.__new__, Claimed)
_place = itemgetter(Claimed._fields.index("place"))


class Holdings:
    """Pending, held, started and cancelled tasks; ``lease_s`` is how long a claim holds."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._by_place: deque[Claimed] = deque()
        #: What waits for a worker, by uid. Whoever pops an item has it.
        self.pending: dict[bytes, Claimed] = {}
        #: Everything that must be renewed: pending, running, and not yet recorded; uid -> token.
        self.held: dict[bytes, bytes] = {}
        #: Running tasks that were taken ahead of need, for the recorder to note that they began.
        self.started: dict[bytes, bytes] = {}
        #: Uids that are to be cancelled.
        self.cancelled: set[bytes] = set()
        #: While a claim is under way: cancels heard meanwhile of tasks that it may bring. Redis
        #: took them as those of running tasks, and its answer was made before and names them not.
        self.heard: set[bytes] | None = None
        #: Claims that are under way, by number. Whoever pops one decides what it brought: the
        #: fetcher that reads of it, or the heart, if the hub is silent.
        self.under_way: dict[int, bool] = {}
        #: What a renewal found lost, (uid, token), until the hub has heard of it.
        self.lost: set[tuple[bytes, bytes]] = set()
        #: Whether pending tasks wait for a renewal to tell that they are still ours.
        self.in_doubt = False
        #: When the oldest claim since the last renewal was sent, monotonic seconds.
        self._claimed_at = math.inf
        #: Monotonic seconds from which the lease of everything held counts at the least: when the
        #: last renewal was sent, or a claim that it did not cover.
        self._renewed_at = time.monotonic()

    def accept(self, claims: Claims, starting: int, sent_at: float | None = None) -> None:
        """Take in what a claim brought; ``rows`` is uid, place, body, header, uid, ...

        ``starting``: how many of them are started at once. ``sent_at``: monotonic seconds when it
        was sent first; its lease counts from then at the earliest, however late the answer came.
        """
        rows, by_place, token = claims.rows, self._by_place, claims.token
        uids, places = rows[::4], list(map(int, rows[1::4]))
        self.cancelled.update(claims.cancelled)
        if self.heard:
            self.cancelled.update(self.heard.intersection(uids))
        came = list(map(_claimed, zip(
            uids, repeat(token), places, rows[2::4], rows[3::4], repeat(time.monotonic()),
            chain(repeat(True, starting), repeat(False)),
        )))
        self.held.update(zip(uids, repeat(token)))
        # After they stand in ``held``: see begin_renewal.
        if sent_at is not None:
            self._claimed_at = min(self._claimed_at, sent_at)
            self._renewed_at = min(self._renewed_at, sent_at)
        self.pending.update(zip(uids, came, strict=True))
        # A task of higher priority may come after others were fetched ahead.
        ordered = places == sorted(places) and (
            not (by_place and places) or by_place[-1].place <= places[0]
        )
        by_place.extend(came)
        if not ordered:
            self._by_place = deque(sorted(by_place, key=_place))

    def take(self, now_s: float) -> Claimed | None:
        """The next task to run at ``now_s`` (monotonic seconds), or None."""
        by_place, pending = self._by_place, self.pending
        if by_place and now_s - self._renewed_at >= self._lease_s:
            # No renewal got through for a whole lease: what is pending may be another's by now.
            # The next renewal tells; until then nothing is started.
            self.in_doubt = True
            return None
        while by_place:
            claimed = by_place.popleft()
            uid = claimed[0]
            # One that was given back may stand here still, and be pending again under a new claim:
            # that is not the one to take away.
            if pending.get(uid) is claimed and pending.pop(uid, None) is claimed:
                return claimed
        return None

    def waiting_s(self) -> float:
        """How long the task that waits longest for a worker has done so, seconds; from any
        thread."""
        try:
            first = next(iter(self.pending.values()), None)
        except RuntimeError:
            return 0.0  # it changed in between: something moves
        return time.monotonic() - first.came_at if first is not None else 0.0

    def take_all_pending(self) -> list[tuple[bytes, bytes]]:
        """Everything that has not started, taken away from the workers; from any thread."""
        taken = []
        for uid in list(self.pending):
            claimed = self.pending.pop(uid, None)
            if claimed is not None:
                taken.append((uid, claimed.token))
        return taken

    def forget(self, uid: bytes, token: bytes) -> None:
        """Nothing is owed for this claim any more: recorded, given back, or lost. The task may be
        held under a newer one, which stays."""
        self.forget_all(((uid, token),))

    def forget_all(self, batch: Sequence[tuple[Any, ...]]) -> None:
        """As ``forget``, of tuples that begin with uid and token."""
        held, started, cancelled, lost = self.held, self.started, self.cancelled, self.lost
        for one in batch:
            uid, token = one[0], one[1]
            if held.get(uid) == token:
                held.pop(uid, None)
                started.pop(uid, None)
                cancelled.discard(uid)
                if lost:
                    lost.discard((uid, token))

    def is_surely_ours(self, uid: bytes, token: bytes) -> bool:
        """Whether a task that was taken may still be started: something was waited for since."""
        fresh = time.monotonic() - self._renewed_at < self._lease_s
        return fresh and (uid, token) not in self.lost

    # For the heart's thread

    def begin_renewal(self) -> list[tuple[bytes, bytes]]:
        """What is to be renewed, as (uid, token). What is claimed from here on may be missing from
        it, and keeps ``end_renewal`` from counting it in."""
        self._claimed_at = math.inf
        while True:
            try:
                return list(self.held.items())
            except RuntimeError:
                continue  # the hub's thread changed it in between

    def end_renewal(self, sent_at: float, lost: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """All of it was renewed by calls sent at ``sent_at`` (monotonic seconds) or later, but for
        what is ``lost``. That can be started no more: a process that had been stopped for longer
        than its lease would do so before its hub heard the word of it."""
        for uid, token in lost:
            claimed = self.pending.get(uid)
            if claimed is not None and claimed.token == token and (
                self.pending.pop(uid, None) is claimed
            ):
                self.forget(uid, token)
            elif self.held.get(uid) == token:
                self.lost.add((uid, token))
        self._renewed_at = min(sent_at, self._claimed_at)

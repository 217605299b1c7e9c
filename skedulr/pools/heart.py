"""The heart: a native thread of a child that beats while a handler computes.

- renews the leases of everything the child holds, every third of a lease, and passes on which
  claims are lost and which tasks cancelled;
- asks the hub for a sign of life where it gives none by itself, and writes its own beat on the
  board;
- gives back claimed tasks that have not started, once the hub was silent for a second, or every
  worker busy: what computes or takes long does not hold back others. So it does with what a claim
  takes whose answer the silent hub does not read.

The thread touches no lock, socket or logger that gevent patched: it writes to the board, takes
single items out of dicts (one step under the GIL), and tells the hub through an async watcher.
C code that keeps the GIL stops it as well; then the master renews (``master.py``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from gevent import monkey
from gevent.hub import get_hub

from ..storage import BATCH, Storage
from ..wire import Gone, WireError
from .board import Board
from .executor import Executor
from .plainwire import PlainWire

_start_new_thread = monkey.get_original("_thread", "start_new_thread")
_sleep = monkey.get_original("time", "sleep")

#: Between two looks, seconds: while something is held, and while nothing is. What begins to compute
#: in the longer one is noticed no later, for the hub gives a sign when it takes something in.
TICK_S, IDLE_TICK_S = 0.25, 1.0
#: A hub silent for this long does not start what is still pending, seconds.
SILENT_S = 1.0


class Heart:
    """Renews and watches. ``on_word(lost, cancelled)`` is called on the hub."""

    def __init__(
        self, *, store: Storage, wire: PlainWire, owner: str, executor: Executor, board: Board,
        lease_s: float, hang_timeout_s: float,
        on_word: Callable[[list[tuple[bytes, bytes]], list[bytes]], None],
        on_gone: Callable[[], None], log: Any,
    ) -> None:
        self._store, self._wire, self._owner = store, wire, owner
        self._executor, self._board = executor, board
        self._lease_s, self._on_word, self._on_gone, self._log = lease_s, on_word, on_gone, log
        # Shorter than what the master takes for silence of either, which these make shorter.
        self._idle_s = max(TICK_S, min(IDLE_TICK_S, lease_s / 12, hang_timeout_s / 8))
        # A renewal that is lost on the way must be noticed while there is time for another one.
        wire.timeout_s = min(wire.timeout_s, lease_s / 3)
        self._words: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._troubled = False
        #: When the hub was asked for a sign of life, monotonic seconds.
        self._asked_at = 0.0
        #: The claim that was under way when the hub fell silent, or None; whether it took anything.
        self._unread: int | None = None
        self._found = False
        #: Taken away from the workers, and not yet back in the queue for all we know.
        self._returning: list[tuple[bytes, bytes]] = []
        self._async: Any = None

    def start(self) -> None:
        """Begin to beat."""
        self._board.hub_beat = self._board.heart_beat = time.monotonic()
        self._async = get_hub().loop.async_()
        # The watcher must not keep the loop alive by itself.
        self._async.ref = False
        self._async.start(self._hear)
        _start_new_thread(self._beat, ())

    def stop(self) -> None:
        """No beat after the current one; leases are not renewed any more. Safe twice."""
        self._stopping = True

    # On the hub

    def _hear(self) -> None:
        self._board.note_life()
        while self._words:
            self._words.popleft()()

    # In the thread

    def _beat(self) -> None:
        renewed_at = time.monotonic()
        while not self._stopping:
            now = time.monotonic()
            self._board.heart_beat = now
            silent = self._is_silent(now)
            try:
                due = now - renewed_at >= self._lease_s / 3 or self._executor.holdings.in_doubt
                if due and self._renew():
                    renewed_at = now
                if silent:
                    self.take_back("the hub was silent for over a second")
                    self._take_unread()
                elif self._unread is not None:
                    self._return_unread()
                if self._executor.stuck_s() > SILENT_S:
                    # Claimed ahead while tasks were fast: others may have idle workers for them.
                    self.take_back("all workers were busy for over a second")
                if self._returning:
                    self._give_back()
            except Gone:
                self._tell(self._on_gone)
            except WireError as error:
                if not self._troubled:
                    self._tell(partial(
                        self._log.warning, "can not renew leases (%s); trying again", str(error)
                    ))
                self._troubled = True
            except Exception as error:
                self._tell(partial(self._log.error, "the heart stumbled: %r", error))
            _sleep(TICK_S if self._is_needed() else self._idle_s)
        self._wire.close()

    def _is_needed(self) -> bool:
        """Whether more than a sign of life now and then is asked of it."""
        unanswered = self._asked_at > self._board.hub_beat
        return bool(self._executor.holdings.held or self._returning or unanswered)

    def _is_silent(self, now: float) -> bool:
        """Whether the hub has been asked for a sign of life and gave none for a second; asks it,
        unless it has given one by itself and nothing is held. To ask is to wake it up."""
        last: float = self._board.hub_beat
        unanswered = self._asked_at > last
        if self._is_needed() or now - last > self._idle_s + TICK_S:
            if not unanswered:
                self._asked_at = now
            self._async.send()
        return unanswered and now - last > SILENT_S

    def _tell(self, word: Callable[[], None]) -> None:
        if len(self._words) < 1000:
            self._words.append(word)
        self._async.send()

    def _renew(self) -> bool:
        """Renew everything held, 500 a call; True once all is done."""
        lost: list[tuple[bytes, bytes]] = []
        cancelled: list[bytes] = []
        sent_at = time.monotonic()
        held = self._executor.holdings.begin_renewal()
        lease_ms = round(self._lease_s * 1000)
        for at in range(0, len(held), BATCH):
            batch = held[at:at + BATCH]
            _, gone, stopped = self._store.renew(self._wire, self._owner, batch, lease_ms)
            if gone:
                missing = frozenset(gone)
                lost += [pair for pair in batch if pair[0] in missing]
            cancelled += stopped
        self._executor.holdings.end_renewal(sent_at, lost)
        if self._troubled:
            self._troubled = False
            self._tell(partial(self._log.info, "leases are renewed again"))
        if lost or cancelled:
            self._tell(partial(self._on_word, lost, cancelled))
        # After that word: what is lost must not be started.
        if self._executor.holdings.in_doubt:
            self._tell(self._executor.resume)
        return True

    def take_back(self, why: str) -> None:
        """What the workers have not started is for others: it is given back at the next beat, and
        tried again until it is. From any thread."""
        taken = self._executor.holdings.take_all_pending()
        for uid, token in taken:
            # Not renewed from now on: if no release gets through, the lease ends all the same.
            self._executor.holdings.forget(uid, token)
        self.give_back(taken)
        if taken:
            self._tell(partial(
                self._log.info, "%s: %d tasks that had not started are given back",
                why, len(taken),
            ))

    def give_back(self, claims: list[tuple[bytes, bytes]]) -> None:
        """These (uid, token) are for others, from the next beat on. From any thread."""
        self._returning += claims

    def _take_unread(self) -> None:
        """Give back what the claim takes whose answer waits for the hub: Redis says that it is ours
        and we know nothing of it. From now on the fetcher gives back whatever it brings."""
        holdings = self._executor.holdings
        for number in list(holdings.under_way):
            if holdings.under_way.pop(number, None):
                self._unread, self._found = number, False
        if self._unread is None:
            return
        unknown = [
            (uid, token) for uid, token in self._store.held_by(self._wire, self._owner)
            if holdings.held.get(uid) != token
        ]
        self._found = self._found or bool(unknown)
        self.give_back(unknown)

    def _return_unread(self) -> None:
        """The hub is back: what the claim brings is for the fetcher again, if nothing of it was
        given back."""
        if not self._found and self._unread is not None:
            self._executor.holdings.under_way[self._unread] = True
        self._unread = None

    def _give_back(self) -> None:
        while self._returning:
            batch = self._returning[:BATCH]
            self._store.release(self._wire, self._owner, batch)
            del self._returning[:len(batch)]

"""Bulk submits: a stream of calls becomes stored tasks in constant memory, 500 or 4 MiB at a time.

Calls are prepared in chunks; a chunk is grouped by pool, so that calls to mixed pools cost as few
round trips as calls to one. While Redis stores one chunk the next is prepared. Where a call can not
be prepared or stored, everything before it still is, and the error says how far it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from .committer import CALL_BYTES, Parcel
from .store import BATCH, Submission

C = TypeVar("C")
H = TypeVar("H")


class _Chunk:
    """Prepared calls under way to Redis: each one's parcel and its index in it."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: list[tuple[str, Parcel, int]] = []


class Bulk(Generic[C, H]):
    """``prepare(call)`` gives pool and submission, ``post(pool, submissions)`` a parcel,
    ``settle(pool, parcel, index)`` the handle or the error of one of them; ``stored(pool, parcel)``
    is called for parcels with tasks that wait for others, once they are stored."""

    def __init__(
        self, *, prepare: Callable[[C], tuple[str, Submission]],
        post: Callable[[str, list[Submission]], Parcel],
        settle: Callable[[str, Parcel, int], H],
        stored: Callable[[str, Parcel], None] = lambda pool, parcel: None,
    ) -> None:
        self._prepare, self._post, self._settle = prepare, post, settle
        self._stored = stored

    def run(self, calls: Iterable[C]) -> Iterator[H]:
        """Handles in the order of ``calls``, each once its task is stored."""
        waiting: deque[_Chunk] = deque()
        prepared: list[tuple[str, Submission]] = []
        size = 0
        failure: Exception | None = None
        source = iter(calls)
        while failure is None:
            try:
                prepared.append(self._prepare(next(source)))
                size += len(prepared[-1][1].envelope)
            except StopIteration:
                break
            except Exception as error:
                failure = error  # what came before it is stored all the same
            if len(prepared) == BATCH or size >= CALL_BYTES:
                waiting.append(self._send(prepared))
                prepared, size = [], 0
                if len(waiting) > 1:
                    yield from self._await(waiting.popleft())
        if prepared:
            waiting.append(self._send(prepared))
        while waiting:
            yield from self._await(waiting.popleft())
        if failure is not None:
            raise failure

    def _send(self, prepared: list[tuple[str, Submission]]) -> _Chunk:
        by_pool: dict[str, list[Submission]] = {}
        where = []
        for pool, submission in prepared:
            batch = by_pool.setdefault(pool, [])
            where.append((pool, len(batch)))
            batch.append(submission)
        parcels = {pool: self._post(pool, batch) for pool, batch in by_pool.items()}
        chunk = _Chunk()
        chunk.places = [(pool, parcels[pool], index) for pool, index in where]
        return chunk

    def _await(self, chunk: _Chunk) -> Iterator[H]:
        for pool, parcel in {pool: parcel for pool, parcel, _ in chunk.places}.items():
            if any(one.waits is not None for one in parcel.submissions):
                self._stored(pool, parcel)
        for pool, parcel, index in chunk.places:
            yield self._settle(pool, parcel, index)

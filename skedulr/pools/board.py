"""The board: memory that the master and one child share, so that each sees the other's life.

The master makes it before the fork and goes on reading it when the child is dead: which task was
on the CPU, how long the hub had been silent. Writing a field is one store; nothing is locked, since
each field has one writer. Beside it lies the file that the C-level stack dump of a dying child goes
to (faulthandler's): text that is written when no Python code can run any more.
"""

from __future__ import annotations

import mmap
import time
from struct import Struct
from typing import Any

#: Numbers, all stored as doubles. Beats are CLOCK_MONOTONIC seconds, the same in every process.
FIELDS = (
    "ready", "draining", "hub_beat", "heart_beat", "workers", "busy", "pending", "lag_ms",
    "finished", "on_cpu", "wanted", "own_kill", "empty_handed", "under_way", "taken",
)
_HEAD = 8 * len(FIELDS)
#: A worker's slot: the length of the uid, how often the task may be tried again, then the uid.
_SLOT_FORM = Struct("BB206s")
_SLOT = _SLOT_FORM.size
NOBODY = -1
#: In a slot: as often as usual, and without a limit.
_USUAL, _UNLIMITED = 255, 254
#: The number of the field that is written at each switch of greenlets.
ON_CPU = FIELDS.index("on_cpu")
_HUB_BEAT = FIELDS.index("hub_beat")


def _field(index: int) -> property:
    def read(board: Board) -> float:
        return float(board.numbers[index])

    def write(board: Board, value: float) -> None:
        board.numbers[index] = value

    return property(read, write)


class Board:
    """Shared numbers, and the uid of the task in each worker's slot."""

    ready = _field(0)
    draining = _field(1)
    hub_beat = _field(2)
    heart_beat = _field(3)
    workers = _field(4)
    busy = _field(5)
    pending = _field(6)
    lag_ms = _field(7)
    finished = _field(8)
    #: The slot of the worker that has the CPU, or NOBODY.
    on_cpu = _field(9)
    #: How many workers the master wants here. It writes this one and ``taken``.
    wanted = _field(10)
    #: Whether the child is sending SIGKILL to itself just now.
    own_kill = _field(11)
    #: Whether the child held nothing more when it ended.
    empty_handed = _field(12)
    #: The number of the claim that is under way, 0 for none; and the last one whose tasks the
    #: master gave back, because nobody here was able to read of them.
    under_way = _field(13)
    taken = _field(14)

    def __init__(self, slots: int) -> None:
        # Anonymous and shared: pages that no worker touches are never made.
        self._memory = mmap.mmap(-1, _HEAD + slots * _SLOT)
        self.numbers: Any = memoryview(self._memory)[:_HEAD].cast("d")
        self.on_cpu = NOBODY

    def note_life(self) -> None:
        """The hub runs at this moment."""
        self.numbers[_HUB_BEAT] = time.monotonic()

    def begin_task(self, slot: int, uid: bytes) -> None:
        """Worker ``slot`` has the CPU and runs this task from now on."""
        _SLOT_FORM.pack_into(self._memory, _HEAD + slot * _SLOT, len(uid), _USUAL, uid)
        self.numbers[ON_CPU] = slot

    def end_task(self) -> None:
        """The worker that has the CPU runs no task any more."""
        self.numbers[ON_CPU] = NOBODY

    def allow(self, slot: int, retries: int | None) -> None:
        """The task in this slot may be tried again so often (None: for ever), not as usual."""
        self._memory[_HEAD + slot * _SLOT + 1] = (
            _UNLIMITED if retries is None else min(retries, _UNLIMITED - 1)
        )

    def task_in(self, slot: int) -> bytes:
        """The uid in a worker's slot, or ``b""``."""
        at = _HEAD + slot * _SLOT
        return self._memory[at + 2:at + 2 + self._memory[at]]

    def retries_of_culprit(self, usual: int | None) -> int | None:
        """How often the task that had the CPU last may be tried again."""
        slot = int(self.on_cpu)
        retries = _USUAL if slot == NOBODY else self._memory[_HEAD + slot * _SLOT + 1]
        return {_USUAL: usual, _UNLIMITED: None}.get(retries, retries)

    def culprit(self) -> bytes:
        """The task that had the CPU last, or ``b""`` where none had."""
        slot = int(self.on_cpu)
        return b"" if slot == NOBODY else self.task_in(slot)

    def close(self) -> None:
        """Give the memory back; safe twice."""
        self.numbers.release()
        self._memory.close()

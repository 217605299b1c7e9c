"""What measured tasks write and their measurer reads: when each was asked for and when it started.

Each process appends records of 16 bytes to a file of its own, in the folder that the environment
variable ``BENCH_METER`` names: through memory, without a call of the system's, so that being
measured costs a task as little as can be, and the same in every system that is compared. It needs
nothing beyond the standard library, since other systems' workers use it as well.

The first page of a file says up to where records were written, and from where on they count.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

FOLDER = "BENCH_METER"
_RECORD, _NUMBER = struct.Struct("dd"), struct.Struct("Q")
_END, _BEGIN = 0, 8
#: The length of the first page, and of the part of a file that is mapped at a time.
_HEAD, _PART = mmap.ALLOCATIONGRANULARITY, 16 * mmap.ALLOCATIONGRANULARITY

_head: mmap.mmap | None = None
_part: mmap.mmap | None = None
#: The file, where in ``_part`` the next record goes, and what lies before that part.
_file, _at, _before = -1, _PART, _HEAD - _PART


def hit(asked_at: float | None = None) -> None:
    """Note that a task started now; ``asked_at``: epoch seconds it was asked for, or was due."""
    global _at
    if _at == _PART:
        _turn_over()
    _RECORD.pack_into(_part, _at, asked_at or 0.0, time.time())  # type: ignore[arg-type]
    _at += _RECORD.size
    # After the record: who reads meanwhile never sees half of one.
    _NUMBER.pack_into(_head, _END, _before + _at)  # type: ignore[arg-type]


def _turn_over() -> None:
    """Map the next part of the file; the file itself at first."""
    global _head, _part, _file, _at, _before
    if _head is None:
        path = os.path.join(os.environ[FOLDER], str(os.getpid()))
        _file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(_file, _HEAD)
        _head = mmap.mmap(_file, _HEAD)
        _NUMBER.pack_into(_head, _END, _HEAD)
        _NUMBER.pack_into(_head, _BEGIN, _HEAD)
        os.register_at_fork(after_in_child=_forget)
    _before += _PART
    os.ftruncate(_file, _before + _PART)
    _part, _at = mmap.mmap(_file, _PART, offset=_before), 0


def _forget() -> None:
    """In a child: the file is its parent's."""
    global _head, _part, _file, _at, _before
    _head, _part, _file, _at, _before = None, None, -1, _PART, _HEAD - _PART


def count(folder: Path) -> int:
    """How many tasks started so far."""
    return sum(end - begin for begin, end in map(_bounds, folder.iterdir())) // _RECORD.size


def read(folder: Path) -> list[tuple[float, float]]:
    """(asked for, started), epoch seconds, in the order of the starts; asked for is 0 where nobody
    said."""
    records: list[tuple[float, float]] = []
    for path in folder.iterdir():
        begin, end = _bounds(path)
        records += _RECORD.iter_unpack(path.read_bytes()[begin:end])
    return sorted(records, key=lambda record: record[1])


def reset(folder: Path) -> None:
    """Forget all of it; only while no task runs."""
    for path in folder.iterdir():
        end = _bounds(path)[1]
        with path.open("r+b", buffering=0) as file:
            file.seek(_BEGIN)
            file.write(_NUMBER.pack(end))


def _bounds(path: Path) -> tuple[int, int]:
    """From where to where the records of a file stand."""
    with path.open("rb", buffering=0) as file:
        head = file.read(2 * _NUMBER.size)
    if len(head) < 2 * _NUMBER.size:
        return _HEAD, _HEAD  # it is being made
    begin, end = _NUMBER.unpack_from(head, _BEGIN)[0], _NUMBER.unpack_from(head, _END)[0]
    return max(begin, _HEAD), max(end, begin, _HEAD)


def rate(folder: Path) -> float:
    """Tasks a second between the first and the last start."""
    starts = [started for _, started in read(folder)]
    passed = starts[-1] - starts[0] if len(starts) > 1 else 0.0
    return (len(starts) - 1) / passed if passed > 0 else 0.0


def waits_ms(folder: Path) -> list[float]:
    """From when each was asked for to its start, milliseconds, in the order of the starts."""
    return [1000 * (started - asked) for asked, started in read(folder) if asked]

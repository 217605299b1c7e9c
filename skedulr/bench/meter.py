"""What measured tasks write and their measurer reads: when each was asked for and when it started.

Each process appends records of 16 bytes to a file of its own, in the folder that the environment
variable ``BENCH_METER`` names: one small write a task, the same in every system that is compared.
It needs nothing beyond the standard library, since other systems' workers use it as well.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import IO

FOLDER = "BENCH_METER"
_RECORD = struct.Struct("dd")
_file: IO[bytes] | None = None
_pid = 0


def hit(asked_at: float | None = None) -> None:
    """Note that a task started now; ``asked_at``: epoch seconds it was asked for, or was due."""
    global _file, _pid
    if _file is None or _pid != os.getpid():
        _pid = os.getpid()
        path = os.path.join(os.environ[FOLDER], str(_pid))
        _file = open(path, "ab", buffering=0)  # noqa: SIM115 - open as long as the process lives
    _file.write(_RECORD.pack(asked_at or 0.0, time.time()))


def count(folder: Path) -> int:
    """How many tasks started so far."""
    return sum(path.stat().st_size for path in folder.iterdir()) // _RECORD.size


def read(folder: Path) -> list[tuple[float, float]]:
    """(asked for, started), epoch seconds, in the order of the starts; asked for is 0 where nobody
    said."""
    records: list[tuple[float, float]] = []
    for path in folder.iterdir():
        records += _RECORD.iter_unpack(path.read_bytes())
    return sorted(records, key=lambda record: record[1])


def reset(folder: Path) -> None:
    """Forget all of it; only while no task runs."""
    for path in folder.iterdir():
        os.truncate(path, 0)


def rate(folder: Path) -> float:
    """Tasks a second between the first and the last start."""
    starts = [started for _, started in read(folder)]
    passed = starts[-1] - starts[0] if len(starts) > 1 else 0.0
    return (len(starts) - 1) / passed if passed > 0 else 0.0


def waits_ms(folder: Path) -> list[float]:
    """From when each was asked for to its start, milliseconds, in the order of the starts."""
    return [1000 * (started - asked) for asked, started in read(folder) if asked]

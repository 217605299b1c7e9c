"""What benchmark tasks write and their driver reads: start times, in one shared file.

Each process appends 16-byte records (seconds it was asked for, seconds it started) to a file of its
own in the folder METER, so that counting costs a task the same small write in every system.
"""

import os
import struct
import time
from pathlib import Path

_RECORD = struct.Struct("dd")
_file = None
_pid = 0


def hit(asked_at=0.0):
    """Note that a task started now."""
    global _file, _pid
    if _pid != os.getpid():
        _pid = os.getpid()
        path = os.path.join(os.environ["METER"], str(_pid))
        _file = open(path, "ab", buffering=0)  # noqa: SIM115  # open as long as the process lives
    _file.write(_RECORD.pack(asked_at or 0.0, time.time()))


def count(folder):
    """How many tasks started so far."""
    return sum(path.stat().st_size for path in Path(folder).iterdir()) // _RECORD.size


def read(folder):
    """[(asked, started), ...] in order of start."""
    records = []
    for path in Path(folder).iterdir():
        records += _RECORD.iter_unpack(path.read_bytes())
    return sorted(records, key=lambda record: record[1])


def reset(folder):
    """Forget everything; only while nothing writes."""
    for path in Path(folder).iterdir():
        path.unlink()

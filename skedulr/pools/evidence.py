"""Evidence about a SIGKILL: nobody inside the process can say where it came from.

A task is charged with one only where something shows that it brought it about: it sent the signal
to its own process, the kernel killed for memory meanwhile, or the process had grown to a large part
of what there is. Any other SIGKILL came from outside, and could have hit whatever ran just then.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import psutil

from .board import Board

#: A process that held this part of all memory may have been killed for it, also by programs that
#: leave no trace in the kernel's counters.
LARGE = 0.5
_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_LIMITS = ("memory.max", "memory.limit_in_bytes")
_EVENTS = ("memory.events", "memory.oom_control")


class MemoryWatch:
    """Whether processes here are killed for want of memory. ``root`` is the root of the files that
    the kernel shows; ``total`` bytes of memory the machine has (None: as it says)."""

    def __init__(self, root: Path = Path("/"), total: int | None = None) -> None:
        self._proc = root / "proc"
        self._groups = _groups(root)
        limits = [limit for folder in self._groups for limit in _limits(folder)]
        self.limit = min([*limits, total or psutil.virtual_memory().total])
        self._kills = self._count()

    def is_to_blame(self, peak_bytes: int) -> bool:
        """Whether a SIGKILL found just now, of a process that held so much at most, may have come
        for its memory."""
        before, self._kills = self._kills, self._count()
        return self._kills != before or peak_bytes >= LARGE * self.limit

    def _count(self) -> int | None:
        """The kernel's count of processes it killed for memory: in our group, or of the machine."""
        own = [folder / name for folder in self._groups[:1] for name in _EVENTS]
        for file in [*own, self._proc / "vmstat"]:
            found = _OOM_KILL.search(_text(file))
            if found:
                return int(found[1])
        return None


def _groups(root: Path) -> list[Path]:
    """The folders of this process's memory control group and those above it, innermost first.

    In a container the path may be one that is seen from outside only: its own root stands in.
    """
    found: list[Path] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers not in ("", "memory"):
            continue
        base = root / "sys/fs/cgroup" / controllers
        own = base / path.lstrip("/")
        own = own if own.is_dir() else base
        found += [folder for folder in (own, *own.parents) if folder.is_relative_to(base)]
    return found


def _limits(folder: Path) -> list[int]:
    texts = (_text(folder / name).strip() for name in _LIMITS)
    return [int(text) for text in texts if text.isdigit() and int(text) > 0]


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def peak_bytes(usage: Any) -> int:
    """The most memory a process held that has been waited for (``os.wait4``)."""
    return int(usage.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def note_own_kills(board: Board) -> None:
    """In a child, before its modules are imported: note on the board when this process sends
    SIGKILL to itself, since nobody could tell afterwards."""
    own, group = os.getpid(), os.getpgrp()

    def noting(send: Callable[[int, int], None], hits: tuple[int, ...]) -> Callable[..., None]:
        @wraps(send)
        def noted(target: int, number: int) -> None:
            board.own_kill = number == signal.SIGKILL and target in hits
            try:
                send(target, number)
            finally:
                board.own_kill = 0

        return noted

    os.kill = noting(os.kill, (own, 0, -1, -group))
    os.killpg = noting(os.killpg, (0, group))

"""Vitals: what a node has free, cores and memory, and what its children use of a core.

The node's record says it to the leader, which shares workers out by it.

In a container with a limit of memory the limit counts (control groups, version 2), not the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import psutil

#: Memory is short below the first part that is free, until the second is free again.
SHORT, ENOUGH = 0.10, 0.15
#: A child at this part of --max-rss gets no more workers.
NEAR_MAX_RSS = 0.85
_GROUP = Path("/sys/fs/cgroup")


class Vitals:
    """Looks at the machine. Each look at the cores is of the time since the one before."""

    def __init__(self, group: Path = _GROUP) -> None:
        self._group = group
        self.short_of_memory = False
        psutil.cpu_percent(None)
        #: The part of a core that each child has used lately, by its pid.
        self.cpu: dict[int, float] = {}
        self._used: dict[int, tuple[float, float]] = {}

    def look(self, pids: Iterable[int]) -> None:
        """Note what these processes have used since the last look; the others are forgotten."""
        cpu, used = {}, {}
        for pid in pids:
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.Error:
                continue
            now, spent = time.monotonic(), times.user + times.system
            then, before = self._used.get(pid, (now, spent))
            used[pid] = now, spent
            lately = (spent - before) / (now - then) if now > then else 0.0
            # Half of it new: one busy second among idle ones does not make a process full.
            cpu[pid] = (self.cpu.get(pid, 0.0) + lately) / 2
        self.cpu, self._used = cpu, used

    def free_cores(self) -> float:
        """Cores that nothing used, since the last look."""
        cores, used = psutil.cpu_count() or 1, float(psutil.cpu_percent(None)) / 100
        return round(cores * (1 - used), 2)

    def free_memory(self) -> float:
        """The part of the memory that is free."""
        free = self._free_in_group()
        if free is None:
            memory = psutil.virtual_memory()
            free = float(memory.available / memory.total)
        self.short_of_memory = free < (ENOUGH if self.short_of_memory else SHORT)
        return round(free, 3)

    def _free_in_group(self) -> float | None:
        try:
            limit = int((self._group / "memory.max").read_text())
            used = int((self._group / "memory.current").read_text())
            # Files that were read lie in memory as long as nobody needs it.
            for line in (self._group / "memory.stat").read_text().splitlines():
                if line.startswith("inactive_file "):
                    used -= int(line.split()[1])
        except (OSError, ValueError):
            return None  # no group of ours, or "max"
        return max(0.0, 1 - used / limit) if limit else None

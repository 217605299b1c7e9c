"""The hang watch: children whose hub has been silent for too long are killed, stack first.

A handler that computes keeps its whole child waiting; one that never comes back keeps it for ever.
Past ``timeout_s`` the child gets ABRT, at which its stack is dumped (by C code, so that a held GIL
does not matter), and KILL if that was not enough. What it held is released like any dead child's.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable

from .children import Process

log = logging.getLogger("skedulr.master")

#: From ABRT to KILL, seconds.
KILL_AFTER_S = 2.0
#: A heart that beats at least once a second and has not for this long is silent, seconds; with
#: a short lease sooner, a sixth of it, but not before it could have beaten.
SILENT_S, SOONEST_S = 1.5, 0.3
#: A child that has not booted by then is mentioned in the log, seconds.
SLOW_BOOT_S = 30.0
#: The master itself was held up when its looks, one a second or more, are so far apart, seconds, or
#: half of a short ``timeout_s``; then nobody is judged before the children had as much time again.
LATE_S, SOONEST_LATE_S = 3.0, 1.0


class HangWatch:
    """Watches by ``look``; ``renew(process)`` is called for a living child with a silent heart,
    three times a lease. ``now`` is when it began, monotonic seconds."""

    def __init__(
        self, *, timeout_s: float, lease_s: float, renew: Callable[[Process], None], now: float
    ) -> None:
        self._timeout_s, self._lease_s, self._renew = timeout_s, lease_s, renew
        self._late_s = max(SOONEST_LATE_S, min(LATE_S, timeout_s / 2))
        self._silent_s = max(SOONEST_S, min(SILENT_S, lease_s / 6))
        self._looked_at = now
        self._excused_until = 0.0

    def look(self, processes: Iterable[Process], now: float) -> None:
        """Look at every child; ``now`` is monotonic seconds."""
        if now - self._looked_at > self._late_s:
            # We did not run ourselves (the machine slept, or has too much to do; a debugger,
            # Ctrl-Z): nor did they.
            self._excused_until = now + self._late_s
        self._looked_at = now
        for process in processes:
            if not process.ready:
                self._watch_boot(process, now)
                continue
            self._watch(process, now)
            silent_s = now - process.board.heart_beat
            if silent_s > self._silent_s and now - process.renewed_at > self._lease_s / 3:
                process.renewed_at = now
                self._renew(process)

    def _watch_boot(self, process: Process, now: float) -> None:
        """A module may take its time to import, so it is not killed for that; but it is said."""
        if not process.slow and now - process.started_at > SLOW_BOOT_S:
            process.slow = True
            log.warning("pool %s: pid %d is not ready after %g s: it still imports its modules",
                        process.slot.pool.name, process.pid, SLOW_BOOT_S)

    def _watch(self, process: Process, now: float) -> None:
        if process.hung_s is not None:
            if now - process.aborted_at > KILL_AFTER_S:
                process.send(signal.SIGKILL)
            return
        silent_s = now - process.board.hub_beat
        if silent_s <= self._timeout_s or now < self._excused_until:
            return
        process.hung_s, process.aborted_at = silent_s, now
        uid = process.board.culprit().decode()
        log.error(
            "pool %s: pid %d has not yielded for %.1f s%s: it is killed and replaced "
            "(a handler that computes for so long needs a larger --hang-timeout)",
            process.slot.pool.name, process.pid, silent_s,
            f", task {process.slot.pool.name}/{uid} has the CPU" if uid else "",
        )
        process.send(signal.SIGABRT)

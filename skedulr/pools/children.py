"""The children of a master: forked, watched, reaped, replaced.

Everything here happens on the master's main greenlet. Each child of each pool has a slot; the
process in a slot changes (an incarnation each), the slot stays.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from gevent import monkey

from ..config import Config, PoolSpec
from .board import Board
from .child import CANNOT_BOOT, DRAINED, GONE, Child, ChildSpec, leave_parent_behind
from .signals import blocked

log = logging.getLogger("skedulr.master")

_fork = monkey.get_original("os", "fork")
_waitpid = monkey.get_original("os", "waitpid")

#: A child that lived this long was well: its successor comes at once, seconds.
WELL_S = 5.0
#: Between two tries with a child that dies young, seconds: the first, doubled up to the second.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 15.0
#: Workers a board has room for, so that a pool can grow without a new child.
MOST_WORKERS = 10_000


@dataclass(slots=True)
class Slot:
    """A place for one child of a pool, and the process that is in it."""

    number: int
    pool: PoolSpec
    workers: int
    pid: int | None = None
    owner: str = ""
    board: Board | None = None
    started_at: float = 0.0
    incarnation: int = 0
    failures: int = 0
    #: Monotonic seconds at which the next process may be forked.
    due_at: float = 0.0
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Death:
    """A child that ended: its slot, owner and board, and how."""

    slot: Slot
    pid: int
    owner: str
    board: Board | None
    status: int
    lived_s: float

    @property
    def how(self) -> str:
        """The end in words."""
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


@dataclass
class Children:
    """Forks and reaps. ``node`` names the master, ``url`` the server the children use."""

    config: Config
    url: str
    node: str
    slots: list[Slot] = field(default_factory=list)

    def plan(self, pools: Iterable[PoolSpec]) -> None:
        """Make the slots; forks nothing."""
        for pool in pools:
            for _ in range(pool.processes):
                self.slots.append(Slot(len(self.slots), pool, pool.minimum))

    def alive(self) -> list[Slot]:
        """Slots with a process in them."""
        return [slot for slot in self.slots if slot.pid is not None]

    def spawn_missing(self) -> None:
        """Fork for every wanted slot that is empty and due."""
        now = time.monotonic()
        for slot in self.slots:
            if slot.wanted and slot.pid is None and now >= slot.due_at:
                self._spawn(slot)

    def signal_all(self, number: int) -> None:
        """Send a signal to every child."""
        for slot in self.alive():
            self._kill(slot, number)

    def reap(self) -> list[Death]:
        """Those that ended since the last look. Only known pids are waited for."""
        deaths = []
        for slot in self.alive():
            assert slot.pid is not None
            try:
                pid, status = _waitpid(slot.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = slot.pid, 0  # someone else reaped it: gone all the same
            if pid:
                deaths.append(self._bury(slot, os.waitstatus_to_exitcode(status)))
        return deaths

    def _bury(self, slot: Slot, status: int) -> Death:
        assert slot.pid is not None
        now = time.monotonic()
        death = Death(slot, slot.pid, slot.owner, slot.board, status, now - slot.started_at)
        slot.pid = None
        if status in (DRAINED, GONE) or death.lived_s >= WELL_S:
            slot.failures = 0
            slot.due_at = now
        else:
            # The first successor comes at once; only a series of early deaths waits.
            slot.failures += 1
            pause_s = 0.0 if slot.failures == 1 else min(
                LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(slot.failures - 2, 10)
            )
            slot.due_at = now + pause_s
        return death

    def _spawn(self, slot: Slot) -> None:
        slot.incarnation += 1
        slot.owner = f"{self.node}.{slot.number}.{slot.incarnation}"
        slot.board = Board(MOST_WORKERS)
        spec = ChildSpec(slot.pool, slot.workers, slot.owner, self.node, self.url)
        master_pid = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        with blocked():
            pid = _fork()
            if pid == 0:
                self._become(spec, slot.board, master_pid)
        slot.pid, slot.started_at = pid, time.monotonic()
        slot.board.hub_beat = slot.board.heart_beat = slot.started_at
        log.debug("forked pid %d for pool %s", pid, slot.pool.name)

    def _become(self, spec: ChildSpec, board: Board, master_pid: int) -> None:
        """In the new process: be the child, and never come back."""
        status = CANNOT_BOOT
        try:
            leave_parent_behind()
            silence_sockets()
            child = Child(spec=spec, config=self.config, board=board, master_pid=master_pid)
            status = child.run()
        except BaseException:
            logging.getLogger("skedulr").exception("the child ended by a fault of Skedulr")
            status = 1
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            except OSError:
                pass  # nobody reads our output any more
            os._exit(status)

    @staticmethod
    def _kill(slot: Slot, number: int) -> None:
        if slot.pid is not None:
            try:
                os.kill(slot.pid, number)
            except ProcessLookupError:
                pass  # it is dead; the next reap will tell


def silence_sockets() -> None:
    """In a child: turn every inherited socket into /dev/null, keeping its number.

    Closing would free the number for the child's own connections, and the inherited socket object
    would close those when it is collected.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        descriptor = int(name)
        try:
            if descriptor > 2 and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.dup2(nothing, descriptor, inheritable=False)
        except OSError:
            pass  # it was the listing's own
    os.close(nothing)

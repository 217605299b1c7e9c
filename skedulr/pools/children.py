"""The children of a master: forked, replaced, resized, reaped.

Everything here happens on the master's main greenlet. Each child of each pool has a slot; the
processes in a slot change, the slot stays. At most one process serves a slot; beside it there may
be one that comes (forked to take its place, still importing) and some that leave (draining).
"""

from __future__ import annotations

import logging
import os
import random
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import gevent
from gevent import monkey
from gevent.hub import get_hub

from ..config import Config, PoolSpec
from .board import Board
from .child import CANNOT_BOOT, DRAINED, GONE, Child, ChildSpec, leave_parent_behind
from .evidence import MemoryWatch, peak_bytes
from .signals import blocked

log = logging.getLogger("skedulr.master")

#: The system's own: gevent's would make a hub and watch the child.
system_fork = monkey.get_original("os", "fork")
#: Not patched; beside the status it tells how much memory the process held.
_wait4 = os.wait4

#: A child that lived this long was well: its successor comes at once, seconds.
WELL_S = 5.0
#: Between two tries with a child that dies young, seconds: the first, doubled up to the second.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 15.0
#: A slot none of whose last processes became ready is given up after so many.
HOPELESS = 3
#: Workers a board has room for, so that a pool can grow without a new child.
MOST_WORKERS = 10_000
#: How long a fork waits for look-ups of host names in the master's thread pool, seconds.
QUIET_S = 5.0
#: The most of a stack dump that is kept, bytes.
MOST_DUMP = 65_536


@dataclass(slots=True, eq=False)
class Process:
    """One child process. Its ``owner`` names it in Redis; no other process ever has that name."""

    slot: Slot
    owner: str
    board: Board
    dump: int
    started_at: float
    pid: int = 0
    #: Monotonic seconds at which it was told to drain.
    leaving_since: float | None = None
    #: Whether it was said that it takes long to boot.
    slow: bool = False
    #: Seconds its hub had been silent when it was told to abort, and when that was.
    hung_s: float | None = None
    aborted_at: float = 0.0
    #: When the master last renewed in its place.
    renewed_at: float = 0.0
    #: Why it is to be replaced, if it is; and the part of --max-tasks after which that is so, drawn
    #: anew for each, so that children forked together do not go together.
    tired: str | None = None
    patience: float = field(default_factory=lambda: random.uniform(0.9, 1.1))

    @property
    def ready(self) -> bool:
        """Whether it has imported its modules and takes work."""
        return bool(self.board.ready)

    def send(self, number: int) -> None:
        """Send it a signal; nothing happens where it is dead already."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass  # the next reap will tell

    def last_words(self) -> str:
        """The stack that was dumped when it was killed by a signal, or an empty text."""
        return os.pread(self.dump, MOST_DUMP, 0).decode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class Slot:
    """A place for one child of a pool, and the processes in it."""

    number: int
    pool: PoolSpec
    workers: int
    serving: Process | None = None
    coming: Process | None = None
    leaving: list[Process] = field(default_factory=list)
    incarnation: int = 0
    #: Deaths in a row of processes that were young; and of those, before one was ever ready.
    failures: int = 0
    stillborn: int = 0
    #: Monotonic seconds at which the next process may be forked.
    due_at: float = 0.0
    wanted: bool = True

    def processes(self) -> Iterator[Process]:
        """All of them."""
        for process in (self.serving, self.coming, *self.leaving):
            if process is not None:
                yield process


@dataclass(frozen=True, slots=True)
class Death:
    """A child that ended, and how. ``was`` is the place it had: serving, coming or leaving.
    ``from_outside``: it was killed, and nothing shows that what it ran brought that about."""

    process: Process
    status: int
    lived_s: float
    was: str
    last_words: str
    from_outside: bool = False

    @property
    def slot_is_hopeless(self) -> bool:
        """Whether the slot's processes have died too often without ever being ready."""
        return self.process.slot.stillborn >= HOPELESS

    @property
    def how(self) -> str:
        """The end in words."""
        if self.process.hung_s is not None:
            return f"killed, since its hub had been silent for {self.process.hung_s:.0f} s"
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


class Children:
    """Forks and reaps. ``node`` names the master, ``url`` the server the children use.

    ``kept`` are descriptors that the master keeps for itself, no child may hold them.
    """

    def __init__(self, *, config: Config, url: str, node: str) -> None:
        self._config, self._url, self._node = config, url, node
        self.slots: list[Slot] = []
        self.kept: list[int] = []
        self._numbers = 0
        self._memory = MemoryWatch()

    # Which there should be

    def plan(self, pools: Iterable[PoolSpec]) -> None:
        """Make slots for these pools; forks nothing."""
        for pool in pools:
            for _ in range(pool.processes):
                self.slots.append(Slot(self._numbers, pool, pool.minimum))
                self._numbers += 1

    def pools(self) -> list[PoolSpec]:
        """The pools there are slots for."""
        return list({slot.pool.name: slot.pool for slot in self.slots if slot.wanted}.values())

    def resize(self, pool: str, workers: int | Sequence[int]) -> None:
        """Have so many workers in each child of a pool, or in its first, second, ... one; and tell
        the children."""
        slots = [slot for slot in self.slots if slot.pool.name == pool]
        each = [workers] * len(slots) if isinstance(workers, int) else workers
        for slot, wanted in zip(slots, each, strict=False):
            if slot.workers != wanted:
                slot.workers = wanted
                for process in slot.processes():
                    process.board.wanted = wanted
                    if process.ready:
                        process.send(signal.SIGTTIN)

    def retire(self, pool: str) -> None:
        """The pool is not served here any more: its children drain and go."""
        for slot in self.slots:
            if slot.pool.name == pool:
                slot.wanted = False
                self._dismiss(slot.serving)
                self._dismiss(slot.coming)
                slot.serving = slot.coming = None

    # Looking at them

    def alive(self) -> list[Process]:
        """Every process there is."""
        return [process for slot in self.slots for process in slot.processes()]

    def serving(self) -> list[Process]:
        """Those that take work, or will when they have booted."""
        return [slot.serving for slot in self.slots if slot.serving is not None]

    def coming(self) -> list[Process]:
        """Those that will take over from one that serves."""
        return [slot.coming for slot in self.slots if slot.coming is not None]

    def all_ready(self) -> bool:
        """Whether every slot is served by a process that takes work."""
        return all(
            slot.serving is not None and slot.serving.ready for slot in self.slots if slot.wanted
        )

    # Changing them

    def spawn_missing(self) -> None:
        """Fork for every wanted slot that is empty and due."""
        now = time.monotonic()
        for slot in self.slots:
            serving = slot.serving
            if serving is not None and serving.board.draining:
                # Somebody sent it a TERM, or it found out that it was taken for dead.
                self._dismiss(serving)
                slot.serving = None
            if slot.wanted and slot.serving is None and slot.coming is None and now >= slot.due_at:
                slot.serving = self._spawn(slot)

    def replace(self, slot: Slot) -> None:
        """Fork the successor of a slot's process, which goes on until that one is ready."""
        if slot.wanted and slot.coming is None and slot.serving is not None:
            slot.coming = self._spawn(slot)

    def settle(self) -> bool:
        """Let those that have come take over; whether none is on its way any more."""
        for slot in self.slots:
            if slot.coming is not None and (slot.coming.ready or slot.serving is None):
                self._dismiss(slot.serving)
                slot.serving, slot.coming = slot.coming, None
        return all(slot.coming is None for slot in self.slots)

    def signal_all(self, number: int) -> None:
        """Send a signal to every child."""
        for process in self.alive():
            process.send(number)

    def _dismiss(self, process: Process | None) -> None:
        if process is not None:
            process.leaving_since = time.monotonic()
            process.slot.leaving.append(process)
            process.send(signal.SIGTERM)

    # Reaping

    def reap(self) -> list[Death]:
        """Those that ended since the last look.

        Only known pids are waited for: others may be somebody's who waits for them himself. As
        the first process of a container it gets everyone's orphans, and buries them too.
        """
        ended = self._orphans() if os.getpid() == 1 else {}
        deaths = []
        for process in self.alive():
            end = ended.get(process.pid)
            if end is None:
                try:
                    pid, raw, usage = _wait4(process.pid, os.WNOHANG)
                except ChildProcessError:
                    # Someone else reaped it: gone all the same.
                    pid, raw, usage = process.pid, 0, None
                if not pid:
                    continue
                end = os.waitstatus_to_exitcode(raw), peak_bytes(usage) if usage else 0
            deaths.append(self._bury(process, *end))
        self.slots = [slot for slot in self.slots if slot.wanted or any(slot.processes())]
        return deaths

    def _orphans(self) -> dict[int, tuple[int, int]]:
        ended: dict[int, tuple[int, int]] = {}
        while True:
            try:
                pid, raw, usage = _wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            ended[pid] = os.waitstatus_to_exitcode(raw), peak_bytes(usage)

    def _bury(self, process: Process, status: int, peak: int) -> Death:
        slot, now = process.slot, time.monotonic()
        lived_s = now - process.started_at
        if process is slot.serving:
            was, slot.serving = "serving", None
            slot.stillborn = 0 if process.ready else slot.stillborn + 1
            self._pause(slot, status, lived_s)
        elif process is slot.coming:
            was, slot.coming = "coming", None
        else:
            was = "leaving"
            slot.leaving.remove(process)
        from_outside = (
            status == -signal.SIGKILL and process.hung_s is None and not process.board.own_kill
            and not self._memory.is_to_blame(peak)
        )
        death = Death(process, status, lived_s, was, process.last_words(), from_outside)
        os.close(process.dump)
        return death

    def _pause(self, slot: Slot, status: int, lived_s: float) -> None:
        """When the next one may come: at once, unless they die young one after the other."""
        slot.due_at = time.monotonic()
        if status in (DRAINED, GONE) or lived_s >= WELL_S:
            slot.failures = 0
            return
        slot.failures += 1
        if slot.failures > 1:
            slot.due_at += min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(slot.failures - 2, 10))

    # Forking

    def _spawn(self, slot: Slot) -> Process:
        slot.incarnation += 1
        owner = f"{self._node}.{slot.number}.{slot.incarnation}"
        process = Process(slot, owner, Board(MOST_WORKERS), _dump_file(), time.monotonic())
        process.board.wanted = slot.workers
        spec = ChildSpec(slot.pool, slot.workers, owner, self._node, self._url)
        master_pid = os.getpid()
        prepare_fork()
        with blocked():
            process.pid = system_fork()
            if process.pid == 0:
                self._become(spec, process, master_pid)
        process.board.hub_beat = process.board.heart_beat = process.started_at
        log.debug("forked pid %d for pool %s", process.pid, slot.pool.name)
        return process

    def _become(self, spec: ChildSpec, process: Process, master_pid: int) -> None:
        """In the new process: be the child, and never come back."""
        status = CANNOT_BOOT
        try:
            leave_parent_behind()
            others = [other.dump for other in self.alive() if other is not process]
            let_go([*self.kept, *others])
            child = Child(
                spec=spec, config=self._config, board=process.board, dump=process.dump,
                master_pid=master_pid,
            )
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


def prepare_fork() -> None:
    """Wait until no thread of ours holds a lock; leave no output that would be written twice."""
    _wait_for_threads()
    sys.stdout.flush()
    sys.stderr.flush()


def let_go(descriptors: Iterable[int]) -> None:
    """In a child: turn these and every inherited socket into /dev/null, keeping the numbers.

    Closing would free a number for the child's own connections, and the inherited socket object
    would close those when it is collected.
    """
    given = set(descriptors)
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        descriptor = int(name)
        try:
            if descriptor > 2 and (
                descriptor in given or stat.S_ISSOCK(os.fstat(descriptor).st_mode)
            ):
                os.dup2(nothing, descriptor, inheritable=False)
        except OSError:
            pass  # it was the listing's own
    os.close(nothing)


def _dump_file() -> int:
    """A file without a name, which the child writes and the master reads."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("skedulr-stack")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _wait_for_threads() -> None:
    """A look-up of a host name under way holds locks of the C library, which a child would find
    held for ever. The master's thread pool does nothing else."""
    pool = get_hub().threadpool if get_hub()._threadpool is not None else None
    if pool is not None:
        with gevent.Timeout(QUIET_S, False):
            pool.join()

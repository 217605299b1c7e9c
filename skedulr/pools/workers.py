"""The workers: greenlets that take claimed tasks and run them one after the other.

A worker gives the hub its turn only after a slice of time; the next one is woken when the running
one blocks. So tasks that never wait run on one greenlet without a switch, and tasks that wait
spread over all of them. At each switch the board is told whose task has the CPU.

What a task leaves behind in its greenlet must not reach the next one: greenlet-locals, or a
``gevent.Timeout`` that was never cancelled and is thrown into whatever runs there by then. So a
greenlet ends after a run that left something behind which holds on to it. A new one for each run
would do as well, and took twice as long for tasks that wait.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from functools import partial
from sys import getrefcount
from typing import Any

import gevent
from gevent.hub import get_hub
from greenlet import greenlet, settrace

from .board import NOBODY, ON_CPU, Board
from .holdings import Holdings
from .runs import Claimed, Run

#: A worker gives the hub its turn after running this long without a pause, seconds.
SLICE_S = 0.0015


class Worker:
    """A slot with the greenlet that works in it."""

    __slots__ = ("greenlet", "run", "slot", "weakrefs")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.greenlet: Any = None
        self.run: Run | None = None
        self.weakrefs = 0


class Workers:
    """Up to ``size`` workers. ``run_one(worker, claimed)`` runs a task; it gives False where the
    run was abandoned and its greenlet must not work on."""

    def __init__(
        self, *, holdings: Holdings, board: Board, run_one: Callable[[Worker, Claimed], bool]
    ) -> None:
        self._holdings, self._board, self._run_one = holdings, board, run_one
        self._idle: list[Worker] = []
        self._slots: dict[Any, int] = {}
        self._waking = False
        self._switches = 0
        self.size = 0
        #: Called on the hub when a worker became free, or a slice of work was done.
        self.on_room: Callable[[], None] = _nobody

    def start(self, size: int) -> None:
        """Make ``size`` workers, and tell the board of every switch from now on."""
        self._hub = get_hub()
        settrace(self._trace)
        self.resize(size)

    def resize(self, size: int) -> None:
        """Have ``size`` workers. Those too many leave when they have nothing to run."""
        before, self.size = self.size, size
        self._board.workers = size
        self._idle += [Worker(slot) for slot in range(before, size)]
        if size < before:
            self._idle = [worker for worker in self._idle if worker.slot < size]
        self.wake()

    def wake(self) -> None:
        """Let idle workers look for pending tasks."""
        if self._holdings.pending and self._idle and not (self._waking or self._holdings.in_doubt):
            self._waking = True
            self._hub.loop.run_callback(self._wake_one)

    def throw(self, run: Run, error: BaseException) -> None:
        """Raise ``error`` in a run, if it is still under way when the hub gets to it."""
        self._hub.loop.run_callback(self._deliver, run, error)

    def spawn(self, run: Run, function: Callable[[], Any]) -> gevent.Greenlet:
        """Start a greenlet of a run: its time on the CPU is charged to the run's slot."""
        if run.worker.run is not run:
            raise RuntimeError("the task has ended: nothing can be spawned in it any more")
        spawned = gevent.Greenlet(function)
        self._slots[spawned] = run.worker.slot
        run.spawned = run.spawned or set()
        run.spawned.add(spawned)
        spawned.rawlink(partial(self._forget_spawned, run.spawned))
        spawned.start()
        return spawned

    def end_spawned(self, run: Run, wait_s: float) -> None:
        """Kill what a run has spawned; waits for it up to ``wait_s``."""
        gevent.killall(list(run.spawned or ()), block=wait_s > 0, timeout=wait_s or None)

    def _forget_spawned(self, those: set[Any], spawned: gevent.Greenlet) -> None:
        those.discard(spawned)
        self._slots.pop(spawned, None)

    @staticmethod
    def _deliver(run: Run, error: BaseException) -> None:
        # In the hub. The run may have ended since; its worker then has another one.
        if run.worker.run is run:
            run.worker.greenlet.throw(error)

    def _wake_one(self) -> None:
        """In the hub: let one idle worker run until it blocks, then look again."""
        self._waking = False
        if not self._holdings.pending or not self._idle:
            return
        worker = self._idle.pop()
        self.wake()
        if worker.greenlet is None:
            self._hire(worker)
        worker.greenlet.switch()

    def _hire(self, worker: Worker) -> None:
        worker.greenlet = greenlet(partial(self._work, worker), self._hub)
        self._slots[worker.greenlet] = worker.slot
        worker.weakrefs = weakref.getweakrefcount(worker.greenlet)

    def _dismiss(self, worker: Worker) -> None:
        """The greenlet ends; where the slot is still wanted it gets another one."""
        self._slots.pop(worker.greenlet, None)
        worker.greenlet = None
        if worker.slot < self.size:
            self._idle.append(worker)
            self.on_room()
            self.wake()

    def _work(self, worker: Worker) -> None:
        own = worker.greenlet
        alone = self._holders_after_a_turn(own)
        now = time.monotonic()
        slice_ends = now + SLICE_S
        while worker.slot < self.size:
            claimed = self._holdings.take(now)
            if claimed is None:
                self.on_room()
                self._idle.append(worker)
                self._hub.switch()
                now = time.monotonic()
                slice_ends = now + SLICE_S
                continue
            switches, holders = self._switches, getrefcount(own)
            if not self._run_one(worker, claimed):
                # Abandoned: the slot is lost, and this process will be replaced.
                self._slots.pop(own, None)
                return
            if weakref.getweakrefcount(own) != worker.weakrefs:
                # The task left greenlet-locals behind.
                break
            if switches == self._switches:
                if holders != getrefcount(own):
                    break
            elif self._holders_after_a_turn(own) != alone:
                # Whoever woke it last holds it as well, and that differs: hence the turn.
                break
            now = time.monotonic()
            if now >= slice_ends:
                self.on_room()
                self._hub.loop.run_callback(own.switch)
                self._hub.switch()
                now = time.monotonic()
                slice_ends = now + SLICE_S
        self._dismiss(worker)

    def _holders_after_a_turn(self, own: Any) -> int:
        """Give the hub its turn; how many references to this greenlet there are then."""
        self._hub.loop.run_callback(own.switch)
        try:
            self._hub.switch()
        except BaseException:
            return 0  # what the task left behind came just now
        return getrefcount(own)

    def _trace(self, event: str, between: tuple[Any, Any]) -> None:
        """At each switch: note on the board whose worker has the CPU, so that a death is charged
        to the task that was running and to no other."""
        self._board.numbers[ON_CPU] = self._slots.get(between[1], NOBODY)
        self._switches += 1


def _nobody() -> None:
    """Until someone listens."""

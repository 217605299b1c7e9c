"""A child: the process of one pool. Puts its parts together, runs, and ends in good order.

It is forked by the master and first of all leaves behind what it inherited: the hub with all the
master's greenlets, its sockets, its signal handlers. Then it imports the tasks' modules, claims and
runs until it is told to drain, its master is gone, or its owner was released behind its back.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import logging
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import gevent
from gevent import _hub_local, monkey
from gevent.event import Event
from gevent.hub import get_hub

from .. import app as application
from ..clock import Clock
from ..codecs import codec_of
from ..config import Config, PoolSpec
from ..delivery import Delivery
from ..errors import ConfigError
from ..hub.driver import Driver
from ..hub.monitor import Monitor, greenlet_stacks, stack_of_greenlet
from ..keys import PoolKeys, SpaceKeys
from ..lead import LeadStore
from ..schedule_records import Definition
from ..schedule_store import Directory, ScheduleStore
from ..storage import BATCH, Lane
from ..transports import open_storage, settle
from ..wire import Wire, WireError
from ..wires import SharedWire
from . import poison
from .board import Board
from .control import Control
from .deliverer import Deliverer
from .evidence import note_own_kills
from .executor import Executor, Limits
from .fetcher import Fetcher
from .heart import Heart
from .listener import Listener
from .modules import load_modules, print_error
from .mourner import Mourner
from .mover import Mover
from .patience import Patience
from .plainwire import PlainWire
from .progress import Progress
from .publisher import Publisher
from .recorder import Recorder
from .runs import CANCELLED, LOST, SHUTDOWN
from .signals import Signals, unblock
from .sweeper import Keep, Sweeper
from .ticker import Ticker, definitions_of

#: Exit statuses of a child, as the master reads them.
DRAINED, CANNOT_BOOT, GONE = 0, 3, 75
#: After an interruption at the end of the grace time, handlers get this long to clean up, seconds.
LAST_WORDS_S = 1.0
#: When a drain first says what still runs, and then how often, seconds; and how many it names.
FIRST_SAY_S, SAY_S, MOST_SHOWN = 1.0, 5.0, 10
#: How long a stack that somebody asked for is kept for them, seconds.
STACK_KEPT_S = 10
_PR_SET_PDEATHSIG = 1

_signal = monkey.get_original("signal", "signal")


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What the master decides before the fork."""

    pool: PoolSpec
    workers: int
    owner: str
    node: str
    url: str


def leave_parent_behind() -> None:
    """The first act after the fork, before anything can switch greenlets.

    A forked gevent process otherwise goes on running copies of its parent's greenlets. The
    inherited loop is destroyed and forgotten, and a new hub will be made at first use; destroying
    the hub itself would run the copies once more. So would collecting them (their ``finally``
    blocks run then): the old hub is kept, and everything of before the fork is taken from the
    collector, which leaves its pages shared with the master, too.
    """
    hub = get_hub()
    _left_behind.append(hub)
    hub.loop.destroy()
    _hub_local.set_hub(None)
    _hub_local.set_loop(None)
    gc.freeze()
    random.seed()


#: Hubs of the processes this one was forked from.
_left_behind: list[Any] = []


class Child:
    """One child process, from boot to exit status."""

    def __init__(
        self, *, spec: ChildSpec, config: Config, board: Board, dump: int, master_pid: int
    ) -> None:
        self.spec, self.config, self.board = spec, config, board
        self._dump, self._master_pid = dump, master_pid
        self.log = logging.getLogger(f"skedulr.pool.{spec.pool.name}")
        self._ending = Event()
        self._status = DRAINED
        self._signals = Signals()

    def run(self) -> int:
        """Boot, work, drain; the exit status."""
        self._listen_to_signals()
        # Nothing is claimed yet: while it imports, it may end at any moment.
        _signal(signal.SIGTERM, lambda number, frame: os._exit(DRAINED))
        unblock()
        _die_with_parent()
        # In C, so that it works when nothing else does; to where the master reads it.
        faulthandler.enable(file=self._dump)
        # A greenlet of a task that ends by sys.exit() or KeyboardInterrupt ends alone: gevent would
        # raise it in the main one, which is this process's own.
        get_hub().SYSTEM_ERROR = ()
        try:
            note_own_kills(self.board)
            self.app = load_modules(self.config.modules)
            self._codec = self.app.codec or codec_of(self.config.codec)
            declared = definitions_of(
                self.app, self.spec.pool.name, self.config.payload_limit,
                [pool.name for pool in self.config.pools], self._codec,
            )
        except BaseException as error:
            print_error(error)
            return CANNOT_BOOT
        # Once more: a module may have set handlers of its own.
        self._listen_to_signals()
        self._point_at_own_server()
        try:
            self._compose(declared)
        except ConfigError as error:
            self.log.error("pool %s: %s", self.spec.pool.name, error)
            return CANNOT_BOOT
        # What was loaded stays: the collector need not look through all of it again and again
        # while tasks wait for that.
        gc.collect()
        gc.freeze()
        self._start()
        self._ending.wait()
        return self._drain()

    # Boot

    def _listen_to_signals(self) -> None:
        self._signals.listen(
            (signal.SIGTERM, signal.SIGUSR1, signal.SIGTTIN),
            ignored=(signal.SIGINT, signal.SIGHUP, signal.SIGTTOU),
        )
        _signal(signal.SIGCHLD, signal.SIG_DFL)

    def _point_at_own_server(self) -> None:
        """What a task submits goes where the task came from, whatever its module configured: a
        flag is stronger. Modules may also use the default app beside the one that is served."""
        # 0 is no wish: what the module configured stays.
        most = self.config.wait_replicas
        replicas: dict[str, Any] = {"wait_replicas": most} if most else {}
        for app in {self.app, application.default}:
            if app is self.app or "redis" not in app.settings:
                app.configure(
                    self.spec.url, namespace=self.config.namespace, codec=self.config.codec,
                    **replicas,
                )

    def _compose(self, declared: list[Definition]) -> None:
        spec, config = self.spec, self.config
        pool, owner = spec.pool.name, spec.owner
        keys = PoolKeys(config.namespace, pool)
        store = self._store = open_storage(keys, spec.pool.transport)
        self.patience = Patience(f"pool {pool}", self.log)
        space = SpaceKeys(config.namespace)
        name = f"skedulr:{spec.node}:{pool}"
        self.driver = Driver(monotonic_ms=_monotonic_ms)
        self.monitor = Monitor(self.driver, on_beat=self.board.note_life)
        clock = Clock()
        self.recorder = Recorder(
            store=store, on_gone=self._gone,
            lane=Lane(Wire(spec.url, name=f"{name}:finish"), owner, self.patience.ride_out),
        )
        self.executor = Executor(
            pool=pool, owner=owner, app=self.app, recorder=self.recorder, driver=self.driver,
            clock=clock, board=self.board,
            limits=Limits(spec.workers, config.lease, config.result_limit, config.unknown_after),
            codec=self._codec,
        )
        self.recorder.on_recorded = self.executor.holdings.forget_all
        self.recorder.started = self.executor.holdings.started
        side = self._side = SharedWire(spec.url, name=f"{name}:sweep")
        self.fetcher = Fetcher(
            store=store, promoter=side,
            lane=Lane(Wire(spec.url, name=f"{name}:claim"), owner, self.patience.ride_out),
            executor=self.executor, board=self.board, driver=self.driver, clock=clock,
            lease_s=config.lease, patience=self.patience, on_gone=self._gone,
            aging_s=config.aging_of(pool),
            settle=lambda wire: settle(wire, keys, spec.pool.transport, config.lease),
            on_refused=self._refused, on_unread=lambda pairs: self.heart.give_back(pairs),
        )
        self.recorder.on_retry = self.fetcher.due_in
        self.recorder.relocate = Mover(store=store, lane=self.recorder.lane, space=space).move
        self.mourner = Mourner(store=store, wire=side, app=self.app, codec=self._codec)
        self.publisher = Publisher(
            app=self.app, space=space, wire=side, clock=clock, driver=self.driver
        )
        self.executor.home_of = self.publisher.home_of
        self.executor.on_stuck = self._ending.set
        self.executor.on_progress = Progress(store=store, wire=side, driver=self.driver).report
        self.listener = Listener(
            store=LeadStore(config.namespace), wire=side, hooks=self.app.hooks,
            driver=self.driver, usual_s=config.target_wait[1],
        )
        self.control = Control(
            url=spec.url, channel=space.control, name=f"{name}:control",
            pool=pool, on_change=self._on_change,
            on_cancel=lambda uid: self.executor.interrupt(uid, CANCELLED),
            on_outbox=lambda: self.deliverer.wake(), on_look=self._show_stack,
            on_death=self.mourner.wake,
        )
        self.deliverer = Deliverer(
            namespace=config.namespace, pool=pool, wire=side, driver=self.driver
        )
        store.on_told = self.deliverer.wake
        self.sweeper = Sweeper(
            store=store, wire=side, driver=self.driver, lease_s=config.lease,
            keep=Keep(
                config.keep_records_days * 86400, config.keep_records, config.keep_dead,
                config.keep_records_mb * 1_048_576,
            ),
            judgement=poison.judge_host(),
            needed=Delivery(config.namespace, side).living, on_untold=self.mourner.wake,
            on_undelivered=self.deliverer.wake,
        )
        space = SpaceKeys(config.namespace)
        self.ticker = Ticker(
            store=ScheduleStore(store.keys, space.control),
            store_of=lambda other: ScheduleStore(
                PoolKeys(config.namespace, other), space.control
            ),
            directory=Directory(space), wire=side,
            driver=self.driver, clock=clock, owner=owner, declared=declared,
            codec=self._codec,
        )
        self.heart = Heart(
            store=store, wire=PlainWire(spec.url, name=f"{name}:heart"), owner=owner,
            executor=self.executor, board=self.board, lease_s=config.lease,
            hang_timeout_s=config.hang_timeout, on_word=self._on_word, on_gone=self._gone,
            log=self.log,
        )

    def _refused(self, error: ConfigError) -> None:
        """The pool holds work of another transport: it is not for this process."""
        self.log.error("%s", error)
        self._status = CANNOT_BOOT
        self._ending.set()

    def _start(self) -> None:
        self.driver.start()
        self.monitor.start()
        self.recorder.start()
        self.executor.start()
        self.heart.start()
        # Before anything is claimed: how a task is to be tried again after it hung is published.
        self.publisher.start()
        self.fetcher.start()
        self.sweeper.start()
        self.control.start()
        self.deliverer.start()
        self.mourner.start()
        self.ticker.start()
        self.listener.start()
        # The driver replaces its own greenlet, the heart its own errors; these can not.
        for part in (self.fetcher, self.recorder, self.control):
            for greenlet in part.greenlets:
                greenlet.link(partial(self._lost, type(part).__name__.lower()))
        gevent.spawn(self._listen).link(partial(self._lost, "signals' loop"))
        self.driver.every(1.0, self._look_around, internal=True)
        self.board.ready = 1
        self.log.info("pool %s: %d workers ready, pid %d", self.spec.pool.name,
                      self.spec.workers, os.getpid())
        self.app.hooks.fire("child_start", self.spec.pool.name)

    # Work

    def _listen(self) -> None:
        while True:
            for number in self._signals.wait(3600):
                if number == signal.SIGTERM:
                    self._ending.set()
                elif number == signal.SIGUSR1:
                    self.log.warning("stacks of pool %s, pid %d", self.spec.pool.name, os.getpid(),
                                     extra={"stack": greenlet_stacks()})
                elif number == signal.SIGTTIN:
                    self._resize()

    def _look_around(self) -> None:
        board = self.board
        board.busy, board.pending = len(self.executor.running), len(self.executor.holdings.pending)
        board.lag_ms, board.finished = self.monitor.lag_ms or 0, self.recorder.recorded
        self._resize()
        if os.getppid() != self._master_pid:
            self.log.warning("the master is gone: draining")
            self._ending.set()

    def _resize(self) -> None:
        """Have as many workers as the master wants by now."""
        wanted = int(self.board.wanted)
        if wanted != self.board.workers and not self.board.draining:
            self.log.info("pool %s: %d workers instead of %d", self.spec.pool.name, wanted,
                          self.board.workers)
            fewer = wanted < self.board.workers
            self.executor.workers.resize(wanted)
            if fewer:
                self.fetcher.ask_anew()
            self.fetcher.on_room()

    def _on_word(self, lost: list[tuple[bytes, bytes]], cancelled: list[bytes]) -> None:
        for uid, token in lost:
            # It may have been recorded between the renewal and this word of it, or claimed again.
            if self.executor.holdings.held.get(uid) == token:
                self.executor.interrupt(uid, LOST)
        for uid in cancelled:
            self.executor.interrupt(uid, CANCELLED)

    def _show_stack(self, uid: bytes) -> None:
        """Somebody looks at a task: write down where its greenlets are, if it runs here."""
        run = self.executor.running.get(uid)
        if run is None:
            return
        text = "\n".join(
            stack_of_greenlet(one) for one in (run.worker.greenlet, *(run.spawned or ()))
        )
        key = SpaceKeys(self.config.namespace).stack(f"{self.spec.pool.name}/{uid.decode()}")
        try:
            self._side.call("SET", key, text, "EX", STACK_KEPT_S)
        except WireError:
            pass  # whoever looks is told that nothing came

    def _on_change(self) -> None:
        """Settings of the pool may have changed, or its schedules. What was claimed ahead of a
        pause goes back."""
        self.ticker.on_change()
        if not self.executor.holdings.pending:
            return
        try:
            paused = self._side.call("HGET", self._store.keys.meta, "paused") == b"1"
        except WireError:
            return  # the next claim is told
        if paused:
            self.heart.take_back("the pool is paused")

    def _lost(self, what: str, greenlet: gevent.Greenlet) -> None:
        """A loop that everything here depends on has ended by itself: a successor takes over."""
        if not self.board.draining and not self._ending.is_set():
            self.log.error("the %s of pid %d has ended (%s): this process is replaced", what,
                           os.getpid(), greenlet.exception or "killed")
            self._ending.set()

    def _gone(self) -> None:
        """Our owner was released: whatever we hold belongs to others. Start anew as another."""
        self.log.error("this process was taken for dead and its tasks given to others; restarting")
        self._status = GONE
        for uid in list(self.executor.holdings.held):
            self.executor.interrupt(uid, LOST)
        self._ending.set()

    # The end

    def _drain(self) -> int:
        """Let running tasks finish within the grace time; give the others back, uncounted."""
        self.board.draining = 1
        deadline = time.monotonic() + self.config.grace
        self.executor.close()
        self.ticker.stop()
        self.fetcher.stop()
        self._give_back(self.executor.holdings.take_all_pending())
        self.log.info("pool %s: draining, %d tasks run", self.spec.pool.name,
                      len(self.executor.running))
        say_at = time.monotonic() + FIRST_SAY_S
        while self.executor.running and time.monotonic() < deadline and self._status == DRAINED:
            gevent.sleep(0.02)
            if time.monotonic() >= say_at:
                say_at = time.monotonic() + SAY_S
                self._say_what_runs(deadline)
        for uid in list(self.executor.running):
            self.executor.interrupt(uid, SHUTDOWN)
        last = time.monotonic() + LAST_WORDS_S
        while self.executor.running and time.monotonic() < last:
            gevent.sleep(0.01)
        self.sweeper.stop()
        self.control.stop()
        # Patient to the end: a batch that was given up half way could not be repeated with others
        # under its number.
        self.recorder.flush(2.0)
        self.deliverer.stop()
        self.mourner.stop()
        self.patience.stop()
        self.heart.stop()
        if self._status == DRAINED:
            left = list(self.executor.holdings.held.items())
            if left:
                self.log.warning("grace is over: %d running tasks go back to the queue", len(left))
            self._give_back(left)
        self.board.empty_handed = not self.executor.holdings.held
        return self._status

    def _say_what_runs(self, deadline: float) -> None:
        running = sorted(self.executor.running.values(), key=lambda run: run.started_ms)
        shown = ", ".join(
            f"{self.spec.pool.name}/{run.id} {run.name}"
            for run in running[:MOST_SHOWN]
        )
        more = f" and {len(running) - MOST_SHOWN} more" if len(running) > MOST_SHOWN else ""
        self.log.info("pool %s: %d tasks still run, for %.0f s more at most: %s%s",
                      self.spec.pool.name, len(running), max(0, deadline - time.monotonic()), shown,
                      more)

    def _give_back(self, held: list[tuple[bytes, bytes]]) -> None:
        wire = Wire(self.spec.url, name=f"skedulr:{self.spec.node}:release", timeout_s=2)
        try:
            for at in range(0, len(held), BATCH):
                self._store.release(wire, self.spec.owner, held[at:at + BATCH])
        except WireError as error:
            # The master releases the whole owner once we are gone, and tries until it can.
            self.log.warning("could not give back %d tasks: %s", len(held), error)
            return
        finally:
            wire.close()
        for uid, token in held:
            self.executor.holdings.forget(uid, token)


def _die_with_parent() -> None:
    """Have the kernel tell us when the master dies; ``_look_around`` finds out where it can not."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _monotonic_ms() -> int:
    return int(time.monotonic() * 1000)


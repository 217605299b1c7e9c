"""Driven apps: an app's tasks run in the test's own thread, when the test says so.

One loop, the pump, claims one task after the other, so that priorities and places decide as in
production, and lets the executor run it. A task that waits for another one (``result`` inside of a
task) parks; the pump goes on with other tasks and wakes it when what it waits for has ended. Time
passes only in ``advance``, in a wait of the test's with a time-out, under ``inline()``, and while
a running task waits: always in leaps to the next thing that is due.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from gevent.event import Event
from gevent.exceptions import LoopExit
from greenlet import gettrace, settrace

from .. import config as configuration
from .. import options
from ..app import Skedulr
from ..app import default as default_app
from ..client import Client, ClientConfig, _announce, _Process
from ..codecs import Codec, codec_of
from ..committer import Committer, Parcel
from ..context import Context, task_id
from ..delivery import Delivery
from ..errors import ResultTimeout, SkedulrError
from ..hub.driver import Driver
from ..keys import PoolKeys, SpaceKeys, split_id
from ..pools.ticker import definitions_of
from ..queries import pool_names
from ..store import STORED, TAKEN_MS, Store, Submission
from ..tasks import Call
from ..waiting import Listener, Waiter
from .crew import Crew
from .fake import FakeWire, OneWire
from .kept import kept
from .standing import Clock

#: As many attempts may come out of one call of the test: a task that submits itself never ends.
MOST_ATTEMPTS = 10_000
#: Workers of a pool, unless the test says otherwise.
WORKERS = 10


@contextmanager
def app(
    clock: Clock | None = None, *, served: Skedulr | None = None,
    workers: int | Mapping[str, int] = WORKERS,
) -> Iterator[DrivenApp]:
    """An app on a fake Redis, whose tasks run in ``drain()`` and ``advance(seconds)``.

    For the length of the block ``served`` (the default app, unless another is given) submits to
    the fake. ``clock`` is the time that Redis shows, standing still; by default it begins now.
    ``workers`` bounds how many tasks of a pool may wait at once: one number, or some pools'.

    >>> with app() as driven:                             # doctest: +SKIP
    ...     handle = remind.using(delay=3 * 3600).submit("ann")
    ...     driven.advance(3 * 3600)
    ...     assert handle.state == "succeeded"
    """
    with _driving(served or default_app, clock=clock or Clock(), workers=workers) as driven:
        yield driven


@contextmanager
def inline(
    clock: Clock | None = None, *, served: Skedulr | None = None, raise_errors: bool = False
) -> Iterator[DrivenApp]:
    """Within the block a submit returns after its task has ended, and so have its retries.

    Nothing else differs from ``app``: arguments travel encoded, options count, errors are stored
    and come out of ``handle.result()``. With ``raise_errors`` the submit raises what a dead task's
    handler raised last. Delays and retries take no time: the clock leaps. A task submitted by a
    running task runs after that one, as in production, or when that one waits for it.
    """
    with _driving(
        served or default_app, clock=clock or Clock(), workers=100, at_once=True,
        raise_errors=raise_errors,
    ) as driven:
        yield driven


@contextmanager
def _driving(served: Skedulr, **given: Any) -> Iterator[DrivenApp]:
    with kept(served):
        driven = DrivenApp(served, **given)
        driven.start()
        try:
            yield driven
        finally:
            driven.stop()


class DrivenApp(Skedulr):
    """The served app (its tasks, hooks, middleware, settings), and the reins of its workers.

    Everything a ``Skedulr`` offers works: ``driven.task``, ``driven.submit``, ``driven.stats()``.
    Made by ``app()`` and ``inline()``.
    """

    def __init__(
        self, served: Skedulr, *, clock: Clock, workers: int | Mapping[str, int],
        at_once: bool = False, raise_errors: bool = False,
    ) -> None:
        self._served = served
        super().__init__()
        self.tasks, self.hooks, self.middleware = served.tasks, served.hooks, served.middleware
        self.transactions, self.shared = served.transactions, served.shared
        self.declared = served.declared
        self.clock, self._workers = clock, workers
        self._at_once, self._raise_errors = at_once, raise_errors
        self.wire = FakeWire(clock)
        self._driver = Driver()
        self._crews: dict[tuple[str, str], Crew] = {}
        self._moved = Event()
        self._parked: list[_Parked] = []
        self._pumping = False
        self._left = 0
        #: Tasks submitted under ``inline()`` that are to end before the submit returns.
        self._open: list[str] = []
        self._errors: list[BaseException] = []
        self._trace_before: Any = None
        self._result_limit = self._payload_limit = 0
        self._sealing: Codec | None = None

    # Life

    def start(self) -> None:
        """Take over the served app."""
        settings = configuration.load({}, self._served.settings, os.environ, Path.cwd(), None)
        self._result_limit, self._payload_limit = settings.result_limit, settings.payload_limit
        self._sealing = self._served.codec or codec_of(settings.codec)
        self._served.client_maker = partial(DrivenClient, self)
        self.hooks.on("dead")(self._on_dead)
        self._trace_before = gettrace()
        self._driver.start()

    def stop(self) -> None:
        """Run nothing more. Safe twice."""
        for crew in self._crews.values():
            crew.stop()
        self._crews.clear()
        self._driver.stop()
        settrace(self._trace_before)

    @property
    def client(self) -> Client:
        """The served app's client, on the fake."""
        return self._served.client

    def configure(self, url: str | None = None, **settings: Any) -> None:
        """Configure the served app. An address changes nothing while it is driven."""
        if url is not None or settings:
            self._served.configure(url, **settings)
            self.shared = self._served.shared

    # The reins

    def drain(self, *, raise_errors: bool = False) -> int:
        """Run what is due now, and what that submits, until nothing is; how many attempts ran.

        No time passes: delayed tasks and retries wait for ``advance``. With ``raise_errors`` the
        first error of a task that ended dead is raised again, after everything has run.
        """
        return self._run(self.clock.ms, raise_errors)

    def advance(self, seconds: float | timedelta, *, raise_errors: bool = False) -> int:
        """Let ``seconds`` pass, running each thing at its time; how many attempts ran."""
        until_ms = self.clock.ms + round(options.seconds("seconds", seconds) * 1000)
        return self._run(until_ms, raise_errors)

    def _run(self, until_ms: int, raise_errors: bool) -> int:
        begun = self._begun()
        self._errors.clear()
        self._pump(_never, until_ms)
        if raise_errors and self._errors:
            raise self._errors[0]
        return self._begun() - begun

    def _begun(self) -> int:
        return sum(crew.begun for crew in self._crews.values())

    # What the client needs

    def await_any(self, ids: list[str], deadline_ms: int | None) -> bool:
        """Run tasks until one of ``ids`` has ended; False when the time is over."""
        waiting = task_id()
        if waiting is None:
            self._pump(lambda: self._ended(ids), deadline_ms)
            if deadline_ms is None and not self._ended(ids):
                raise ResultTimeout(f"{', '.join(ids)}: nothing is left to run that would end it")
            return self._ended(ids)
        parked = _Parked(self._crew(split_id(waiting)[0]), ids, deadline_ms)
        self._park(parked)
        try:
            parked.bell.wait()
        finally:
            self._unpark(parked)
        if parked.hopeless:
            raise ResultTimeout(
                f"{', '.join(ids)}: nothing is left to run that would end it, or no worker is free"
            )
        return self._ended(ids)

    def submitted(self, ids: list[str]) -> None:
        """Tasks were stored: under ``inline()`` run them now, to their ends."""
        if not self._at_once:
            return
        self._open += ids
        if self._pumping:
            return  # from inside of a task: once that has ended, or waits
        self._errors.clear()
        try:
            self._pump(self._all_closed, None)
        finally:
            self._open.clear()
        if self._raise_errors and self._errors:
            raise self._errors[0]

    def cancelled(self, id: str) -> None:
        """A task was cancelled: interrupt it, if it runs."""
        pool, uid = split_id(id)
        self._crew(pool).cancel(uid)

    # The pump

    def _pump(self, until: Callable[[], bool], limit_ms: int | None) -> None:
        """Run what is due until ``until()``, and let time pass up to ``limit_ms`` (None: as far
        as something is due)."""
        if self._pumping:
            raise SkedulrError("drain() and advance() are the test's, not for use inside of a task")
        self._pumping, self._left = True, MOST_ATTEMPTS
        try:
            while True:
                stuck = self._settle()
                if self._wake_parked():
                    continue
                if until():
                    return
                if self._deliver() or self._tick() or self._claim():
                    continue
                if stuck:
                    raise SkedulrError(f"{stuck} waits for something that nothing here will do")
                if not self._pass_time(limit_ms):
                    return
        finally:
            self._pumping = False

    def _settle(self) -> str:
        """Let running tasks go on until each has ended or parked; what is stuck, or ''."""
        try:
            while any(crew.busy for crew in self._crews.values()):
                self._moved.clear()
                self._moved.wait()
        except LoopExit:
            return ", ".join(chain.from_iterable(crew.running() for crew in self._crews.values()))
        return ""

    def _park(self, parked: _Parked) -> None:
        self._parked.append(parked)
        parked.crew.waiting += 1
        self._moved.set()

    def _unpark(self, parked: _Parked) -> None:
        """It goes on; safe twice."""
        if parked in self._parked:
            self._parked.remove(parked)
            parked.crew.waiting -= 1
            parked.bell.set()

    def _wake_parked(self) -> bool:
        """Wake the tasks whose waits are over; whether there were any."""
        over = [
            one for one in self._parked
            if self._ended(one.ids)
            or (one.deadline_ms is not None and one.deadline_ms <= self.clock.ms)
        ]
        for one in over:
            self._unpark(one)
        return bool(over)

    def _deliver(self) -> int:
        """Tell waiting tasks what became of those they wait for; how much there was to tell."""
        pools = pool_names(self.wire, SpaceKeys(self._namespace))
        filled = [
            pool for pool in pools
            if self.wire.call("EXISTS", PoolKeys(self._namespace, pool).outbox)
        ]
        # Ahead of its time: nobody else here has it in hand.
        delivery = Delivery(self._namespace, self.wire)
        return delivery.settle(filled, ahead_ms=2 * TAKEN_MS) if filled else 0

    def _tick(self) -> int:
        """Fire the schedules that are due; how many were. Under ``inline()`` none is."""
        if self._at_once:
            return 0
        return sum(self._crew(pool).tick() for pool in self._scheduled_pools())

    def _scheduled_pools(self) -> list[str]:
        declared = {one.pool for one in self._served.declared.values()}
        if not declared and not self.wire.call("EXISTS", SpaceKeys(self._namespace).schedules):
            return []
        return sorted({*declared, *pool_names(self.wire, SpaceKeys(self._namespace))})

    def _claim(self) -> bool:
        """Have one task started; False where none is due, or no worker is free."""
        for pool in pool_names(self.wire, SpaceKeys(self._namespace)):
            if self._crew(pool).claim():
                self._left -= 1
                if self._left < 0:
                    raise SkedulrError(
                        f"{MOST_ATTEMPTS:,} attempts and no end: a task that submits itself?"
                    )
                return True
        return False

    def _pass_time(self, limit_ms: int | None) -> bool:
        """Leap to the next thing that comes; False where there is none within the limit."""
        ahead = [crew.next_due_ms for crew in self._crews.values() if crew.next_due_ms is not None]
        ahead += [one.deadline_ms for one in self._parked if one.deadline_ms is not None]
        if limit_ms is not None and not self._at_once:
            # Without a limit they would go on for ever.
            ahead += [
                next_ms for pool in self._scheduled_pools()
                if (next_ms := self._crew(pool).next_tick_ms) is not None
            ]
        # What is due already and was not claimed finds no free worker.
        next_ms = min((ms for ms in ahead if ms > self.clock.ms), default=None)
        if next_ms is None and self._parked:
            self._parked[0].hopeless = True
            self._unpark(self._parked[0])
            return True
        # A running task that waits takes the time it takes.
        if next_ms is None or (limit_ms is not None and next_ms > limit_ms and not self._parked):
            self.clock.set_ms(max(self.clock.ms, limit_ms or 0))
            return False
        self.clock.set_ms(next_ms)
        return True

    def _ended(self, ids: Iterable[str]) -> bool:
        """Whether any of the tasks has."""
        for id in ids:
            pool, uid = split_id(id)
            if self.wire.call("HEXISTS", PoolKeys(self._namespace, pool).records, uid):
                return True
        return False

    def _all_closed(self) -> bool:
        self._open = [id for id in self._open if not self._ended([id])]
        return not self._open

    def _on_dead(self, context: Context | None, error: BaseException) -> None:
        self._errors.append(error)

    @property
    def _namespace(self) -> str:
        return self.client.config.namespace

    def _workers_of(self, pool: str) -> int:
        if isinstance(self._workers, int):
            return self._workers
        return self._workers.get(pool, WORKERS)

    def _crew(self, pool: str) -> Crew:
        namespace = self._namespace
        known = self._crews.get((namespace, pool))
        if known is None:
            known = self._crews[namespace, pool] = Crew(
                namespace=namespace, pool=pool, app=self._served, wire=self.wire,
                clock=self.clock, driver=self._driver, workers=self._workers_of(pool),
                result_limit=self._result_limit, on_end=self._moved.set,
                declared=() if self._at_once else definitions_of(
                    self._served, pool, self._payload_limit, [pool], self._sealing
                ), codec=self._sealing,
            )
            known.start()
        return known


class _Parked:
    """A running task that waits for the end of one of ``ids``."""

    def __init__(self, crew: Crew, ids: list[str], deadline_ms: int | None) -> None:
        self.crew, self.ids, self.deadline_ms = crew, ids, deadline_ms
        self.bell = Event()
        self.hopeless = False


class DrivenClient(Client):
    """The client of a driven app: everything but waiting is production's."""

    def __init__(self, driven: DrivenApp, config: ClientConfig) -> None:
        super().__init__(config)
        self._driven = driven
        self._one_process = _DrivenProcess(driven, config)

    def start_workflow(
        self, id: str, name: str, steps: Sequence[tuple[str | None, str | None, Call[Any]]],
        *, given: bool = False,
    ) -> None:
        """As ``Client.start_workflow``; under ``inline()`` it has ended then."""
        super().start_workflow(id, name, steps, given=given)
        self._driven.submitted([
            f"{call.task.option('pool', 'default')}/{call.task.own['id']}" for _, _, call in steps
        ])

    def cancel(self, id: str) -> bool:
        """As ``Client.cancel``."""
        was = super().cancel(id)
        self._driven.cancelled(id)
        return was

    def ends(
        self, ids: Iterable[str], timeout: float | timedelta | None
    ) -> Iterator[tuple[str, bytes]]:
        """As ``Client.ends``; waiting means running tasks and letting the clock go on."""
        left = list(dict.fromkeys(ids))
        clock = self._driven.clock
        deadline_ms = None
        if timeout is not None:
            deadline_ms = clock.ms + round(options.seconds("timeout", timeout) * 1000)
        while True:
            for id, record in list(super().ends(left, 0)):
                left.remove(id)
                yield id, record
            if not left or not self._driven.await_any(left, deadline_ms):
                return

    def _process(self) -> _Process:
        return self._one_process


class _DrivenProcess(_Process):
    """Connections to the fake, for all threads."""

    def __init__(self, driven: DrivenApp, config: ClientConfig) -> None:
        super().__init__(config)
        self._driven = driven
        self.wires = OneWire(driven.wire)
        self.listener = _Nobody(self.listener.channel)

    def _new_committer(self, pool: str) -> Committer:
        announce = partial(_announce, self._space.pools, pool)
        return _Direct(
            store=Store(PoolKeys(self._config.namespace, pool)), wire=self._driven.wire,
            timeout_s=self._config.submit_timeout_s, capacity=self._config.capacity,
            announce=announce, on_stored=self._driven.submitted,
        )


class _Direct(Committer):
    """Stores in the caller's thread; ``on_stored(ids)`` is called then."""

    def __init__(self, *, on_stored: Callable[[list[str]], object], **given: Any) -> None:
        super().__init__(**given)
        self._announce(self._wire)
        self._on_stored = on_stored

    def submit(self, submissions: Sequence[Submission]) -> Parcel:
        """As ``Committer.submit``."""
        parcel = Parcel(submissions, time.monotonic() + self._timeout_s)
        self._send([parcel])
        pool = self._store.keys.pool
        self._on_stored([
            f"{pool}/{one.uid}"
            for one, verdict in zip(submissions, parcel.wait(), strict=True) if verdict == STORED
        ])
        return parcel

    def post(self, submissions: Sequence[Submission]) -> Parcel:
        """As ``submit``."""
        return self.submit(submissions)


class _Nobody(Listener):
    """Subscribes nothing: whoever waits here runs the tasks that it waits for."""

    def __init__(self, channel: str) -> None:
        super().__init__(url="", channel=channel, name="")

    def join(self, ids: Iterable[str], waiter: Waiter, timeout_s: float) -> None:
        """Nothing to subscribe."""

    def leave(self, ids: Iterable[str], waiter: Waiter) -> list[str]:
        """Nobody else waits."""
        return list(ids)


def _never() -> bool:
    return False

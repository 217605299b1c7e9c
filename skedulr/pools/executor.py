"""The executor: worker greenlets that run what the fetcher claimed.

Claimed tasks lie in ``pending`` until a worker takes one; taking is one ``dict.pop``, so worker and
heart can never both have it. A worker runs one task after the other and only gives the hub its
turn after a slice of time; the next worker is woken when the running one blocks. So tasks that
never wait run on one greenlet without a switch, and tasks that wait spread over all of them.

Each run goes one way: read the call, check (known, cancelled, expired), run under its time limit,
and hand one outcome to the recorder. What interrupted a run decides its outcome, never what the
handler made of the interruption.
"""

from __future__ import annotations

import logging
import math
import re
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from gevent.hub import get_hub
from greenlet import greenlet, settrace

from .. import message, payload, retries
from ..app import Skedulr
from ..clock import Clock
from ..context import Context, running
from ..errors import PayloadError, Reject, Retry, TaskCancelled, TaskTimeout, nearest
from ..errortext import describe, forget
from ..hub.driver import Driver
from ..middleware import Step, compose
from ..names import Published
from ..store import (
    END_CANCELLED,
    END_DEAD,
    END_EXPIRED,
    END_SUCCEEDED,
    Claims,
    Deferral,
    Ending,
    Failure,
    Relocation,
)
from ..tasks import MAX_RETRIES, Task
from .board import NOBODY, ON_CPU, Board
from .recorder import Recorder

log = logging.getLogger("skedulr.task")

#: A worker gives the hub its turn after running this long without a pause, seconds.
SLICE_S = 0.003
#: The most tasks taken beyond the free workers.
MOST_AHEAD = 400
#: After an interruption a handler gets this long to end, then it is abandoned, seconds.
LAST_WORDS_S = 5.0
#: A task nobody here knows is looked at again after this long, seconds.
UNKNOWN_AGAIN_S = 5.0
#: Why a run was interrupted.
TIMED_OUT, CANCELLED, LOST, SHUTDOWN = "timed out", "cancelled", "lost", "shutdown"

_NOTHING = payload.encode(None)


class Claimed:
    """A task this process holds: its claim's token, its place in the queue, its journal so far."""

    __slots__ = ("body", "header", "place", "token", "uid")

    def __init__(self, uid: bytes, token: bytes, place: int, body: bytes, header: bytes) -> None:
        self.uid, self.token, self.place = uid, token, place
        self.body, self.header = body, header


class Run:
    """One attempt under way."""

    __slots__ = (
        "abandoned", "attempt", "claimed", "context", "entry", "name", "reason", "started_ms",
        "task", "worker",
    )

    def __init__(self, claimed: Claimed, worker: Worker, started_ms: int) -> None:
        self.claimed, self.worker, self.started_ms = claimed, worker, started_ms
        self.attempt = 1
        self.name = ""
        self.task: Task[..., Any] | None = None
        self.context: Context | None = None
        self.reason: str | None = None
        #: Its handler did not end when it was interrupted; whatever it comes to is dropped.
        self.abandoned = False
        self.entry: Any = None


class Worker:
    """A slot with the greenlet that works in it."""

    __slots__ = ("greenlet", "run", "slot", "weakrefs")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.greenlet: Any = None
        self.run: Run | None = None
        self.weakrefs = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """The executor's part of the configuration."""

    workers: int
    lease_s: float
    result_limit: int = 1_048_576
    unknown_after_s: float = 900.0


class Executor:
    """Runs tasks on up to ``limits.workers`` greenlets."""

    def __init__(
        self, *, pool: str, owner: str, app: Skedulr, recorder: Recorder, driver: Driver,
        clock: Clock, board: Board, limits: Limits,
    ) -> None:
        self.pool, self.owner = pool, owner
        self._app, self._recorder, self._driver = app, recorder, driver
        self._clock, self._board, self.limits = clock, board, limits
        self._success_head = message.success_head(owner)
        self._variables: Variables = copy_context()
        self._steps: dict[str, Step] = {}
        self._slots: dict[Any, int] = {}
        self._idle: list[Worker] = []
        self._size = 0
        self._by_place: deque[Claimed] = deque()
        self._waking = False
        #: Whether pending tasks wait for a renewal to tell that they are still ours.
        self.in_doubt = False
        self._taken_since = 0
        self._closed = False
        #: What waits for a worker, by uid. Whoever pops an item has it.
        self.pending: dict[bytes, Claimed] = {}
        #: What runs, by uid.
        self.running: dict[bytes, Run] = {}
        #: Everything this process must renew: pending, running, and not yet recorded.
        self.held: dict[bytes, bytes] = {}
        #: Tasks that began after their claim, for the recorder to note.
        self.started: dict[bytes, bytes] = {}
        #: Uids that are to be cancelled.
        self.cancelled: set[bytes] = set()
        #: When the oldest claim since the last renewal was sent, monotonic seconds.
        self._claimed_at = math.inf
        #: Monotonic seconds from which the lease of everything held counts at the least: when the
        #: last renewal was sent, or a claim that it did not cover.
        self.renewed_at = time.monotonic()
        #: Called on the hub when workers became free.
        self.on_room: Callable[[], None] = _nobody
        #: Called when a handler had to be abandoned: this process should be replaced.
        self.on_stuck: Callable[[], None] = _nobody
        #: Takes what handlers report: uid, token, percent, note.
        self.on_progress: Callable[[bytes, bytes, float, str | None], None] = _nobody_reads

        #: What is known of where a name belongs; asked about names that are not registered here,
        #: and those that were submitted with nothing but a name.
        self.home_of: Callable[[str], Published | None] = _nowhere

    # Taking in

    def start(self) -> None:
        """Make the workers."""
        self._hub = get_hub()
        settrace(self._trace)
        self.resize(self.limits.workers)

    def resize(self, workers: int) -> None:
        """Have ``workers`` workers. Those too many leave when they have nothing to run."""
        before, self._size = self._size, workers
        self._board.workers = workers
        for slot in range(before, workers):
            self._idle.append(Worker(slot))
        if workers < before:
            self._idle = [worker for worker in self._idle if worker.slot < workers]
        self._wake_workers()

    def room(self) -> tuple[int, int]:
        """How many tasks to claim now, and how many of those could start at once.

        Beyond the free workers it asks for twice what was taken since the last claim: fast tasks
        are fetched ahead, so that no worker waits for a round trip; slow ones are left for others.
        """
        if self._closed:
            return 0, 0
        free = max(0, self._size - len(self.running) - len(self.pending))
        ahead = max(0, min(2 * self._taken_since, MOST_AHEAD) - len(self.pending))
        if free == 0 and ahead < min(50, self._taken_since):
            return 0, 0
        self._taken_since = 0
        return min(free + ahead, 500), free

    def has_room(self) -> bool:
        """Whether a worker is free for a task that would be claimed now."""
        return self._size > len(self.running) + len(self.pending)

    def accept(self, claims: Claims, starting: int, sent_at: float | None = None) -> None:
        """Take in what a claim brought; ``rows`` is uid, place, body, header, uid, ...

        ``sent_at``: monotonic seconds when it was sent first; its lease counts from then at the
        earliest, however late the answer came.
        """
        rows, token = claims.rows, claims.token
        for uid in claims.cancelled:
            self.cancelled.add(uid)
        last = self._by_place[-1].place if self._by_place else 0
        ordered = True
        for at in range(0, len(rows), 4):
            claimed = Claimed(rows[at], token, int(rows[at + 1]), rows[at + 2], rows[at + 3])
            if claimed.place < last:
                ordered = False
            last = claimed.place
            self.held[claimed.uid] = token
            self.pending[claimed.uid] = claimed
            self._by_place.append(claimed)
            if at // 4 >= starting:
                self.started[claimed.uid] = token
        # After they stand in ``held``: see begin_renewal.
        if sent_at is not None:
            self._claimed_at = min(self._claimed_at, sent_at)
            self.renewed_at = min(self.renewed_at, sent_at)
        if not ordered:
            # A task of higher priority came after others were fetched ahead.
            self._by_place = deque(sorted(self._by_place, key=_place))
        self._wake_workers()

    def held_pairs(self) -> list[tuple[bytes, bytes]]:
        """What is to be renewed; from any thread."""
        while True:
            try:
                return list(self.held.items())
            except RuntimeError:
                continue  # changed in between by the other thread

    def begin_renewal(self) -> list[tuple[bytes, bytes]]:
        """What is to be renewed. What is claimed from here on may be missing from it, and keeps
        ``end_renewal`` from counting it in. For the heart's thread."""
        self._claimed_at = math.inf
        return self.held_pairs()

    def end_renewal(self, sent_at: float) -> None:
        """All of it was renewed by calls sent at ``sent_at`` or later."""
        self.renewed_at = min(sent_at, self._claimed_at)

    def take_all_pending(self) -> list[tuple[bytes, bytes]]:
        """Everything that has not started, taken away from the workers; from any thread."""
        taken = []
        for uid in list(self.pending):
            claimed = self.pending.pop(uid, None)
            if claimed is not None:
                taken.append((uid, claimed.token))
        return taken

    def forget(self, uid: bytes) -> None:
        """Nothing is owed for this task any more: recorded, given back, or lost."""
        self.held.pop(uid, None)
        self.started.pop(uid, None)
        self.cancelled.discard(uid)

    def close(self) -> None:
        """Take nothing more in; what runs goes on."""
        self._closed = True

    # Interrupting

    def interrupt(self, uid: bytes, reason: str) -> None:
        """End a task early: at once where it runs, before it starts where it is pending."""
        if uid not in self.held:
            return
        if reason == CANCELLED:
            self.cancelled.add(uid)
        run = self.running.get(uid)
        if run is None:
            if reason == LOST and self.pending.pop(uid, None) is not None:
                self.forget(uid)
            return
        if run.reason is None:
            self._throw(run, reason)

    def _time_out(self, run: Run) -> None:
        if run.reason is None:
            self._throw(run, TIMED_OUT)

    def _throw(self, run: Run, reason: str) -> None:
        if self.running.get(run.claimed.uid) is not run:
            return
        run.reason = reason
        if run.context is not None:
            run.context.cancelled = True
        error: BaseException = (
            TaskTimeout(f"ran over its time limit of {run.task.option('timeout')} s")
            if reason == TIMED_OUT and run.task is not None
            else TaskCancelled(reason)
        )
        if run.entry is not None:
            run.entry.cancel()
        run.entry = self._driver.after(LAST_WORDS_S, partial(self._abandon, run), inline=True)
        self._hub.loop.run_callback(self._deliver, run.worker, run, error)

    @staticmethod
    def _deliver(worker: Worker, run: Run, error: BaseException) -> None:
        # In the hub. The run may have ended since; its worker then has another one.
        if worker.run is run:
            worker.greenlet.throw(error)

    def _abandon(self, run: Run) -> None:
        """The handler goes on in spite of its interruption: record the outcome without it.

        Its greenlet can not be ended from outside, so its slot is lost; the process is replaced
        once its other tasks are done.
        """
        uid, worker = run.claimed.uid, run.worker
        if self.running.get(uid) is not run:
            return
        log.error("task %s/%s %s does not end although it was %s; its process will be replaced",
                  self.pool, uid.decode(), run.name, run.reason)
        self._interrupted(run, None)
        run.abandoned = True
        worker.run = None
        del self.running[uid]
        self.on_stuck()

    # Working

    def _wake_workers(self) -> None:
        if self.pending and self._idle and not self._waking and not self.in_doubt:
            self._waking = True
            self._hub.loop.run_callback(self._wake_one)

    def _wake_one(self) -> None:
        """In the hub: let one idle worker run until it blocks, then look again."""
        self._waking = False
        if not self.pending or not self._idle:
            return
        worker = self._idle.pop()
        self._wake_workers()
        if worker.greenlet is None:
            self._hire(worker)
        worker.greenlet.switch()

    def _trace(self, event: str, between: tuple[Any, Any]) -> None:
        """At each switch: note on the board whose worker has the CPU, so that a death is charged
        to the task that was running and to no other."""
        self._board.numbers[ON_CPU] = self._slots.get(between[1], NOBODY)

    def _hire(self, worker: Worker) -> None:
        worker.greenlet = greenlet(partial(self._work, worker), self._hub)
        self._slots[worker.greenlet] = worker.slot
        worker.weakrefs = weakref.getweakrefcount(worker.greenlet)

    def _work(self, worker: Worker) -> None:
        hub_switch = self._hub.switch
        slice_ends = time.monotonic() + SLICE_S
        while True:
            if worker.slot >= self._size:
                self._slots.pop(worker.greenlet, None)
                return
            claimed = self._take()
            if claimed is None:
                self.on_room()
                self._idle.append(worker)
                hub_switch()
                slice_ends = time.monotonic() + SLICE_S
                continue
            if not self._one(worker, claimed):
                return
            if weakref.getweakrefcount(worker.greenlet) != worker.weakrefs:
                # The task left greenlet-locals behind. They end with the greenlet, so that the
                # next task finds none.
                self._slots.pop(worker.greenlet, None)
                worker.greenlet = None
                self._idle.append(worker)
                self.on_room()
                self._wake_workers()
                return
            if time.monotonic() >= slice_ends:
                self.on_room()
                self._hub.loop.run_callback(worker.greenlet.switch)
                hub_switch()
                slice_ends = time.monotonic() + SLICE_S

    def _take(self) -> Claimed | None:
        by_place, pending = self._by_place, self.pending
        if by_place and time.monotonic() - self.renewed_at >= self.limits.lease_s:
            # No renewal got through for a whole lease: what is pending may be another's by now.
            # The next renewal tells; until then nothing is started.
            self.in_doubt = True
            return None
        while by_place:
            claimed = by_place.popleft()
            if pending.pop(claimed.uid, None) is claimed:
                return claimed
        return None

    def resume(self) -> None:
        """A renewal got through: what is still pending is ours."""
        self.in_doubt = False
        self._wake_workers()

    def _one(self, worker: Worker, claimed: Claimed) -> bool:
        """Run one task; False where the run was abandoned and this greenlet is to end."""
        uid = claimed.uid
        run = Run(claimed, worker, self._clock.redis_ms())
        worker.run = run
        self.running[uid] = run
        self._taken_since += 1
        self._board.write_task(worker.slot, uid)
        self._board.on_cpu = worker.slot
        try:
            self._attempt(run)
        except BaseException as error:
            # A fault of ours, or an interruption that came between two steps.
            self._failed(run, error)
        if run.abandoned:
            return False
        if run.entry is not None:
            run.entry.cancel()
        worker.run = None
        del self.running[uid]
        self.started.pop(uid, None)
        self._board.on_cpu = NOBODY
        return True

    def _attempt(self, run: Run) -> None:
        claimed = run.claimed
        header = _read_header(claimed.header)
        run.attempt = header[1] + 1
        try:
            name, args, kwargs, extras = message.read_call(claimed.body)
        except PayloadError as error:
            self._bury(run, "PayloadError", f"the stored call can not be read: {error}")
            return
        run.name = name
        task = self._app.tasks.get(name)
        if task is None or "unplaced" in extras:
            home = self.home_of(name)
            if home is not None and home.pool != self.pool:
                self._move(run, home, extras)
                return
        if task is None:
            self._put_off(run, name, claimed.header)
            return
        if extras:
            task = _with_extras(task, extras)
        run.task = task
        if (most_retries := _retries_of_a_hang(task)) != MAX_RETRIES:
            self._board.allow(run.worker.slot, most_retries)
        if claimed.uid in self.cancelled:
            self._end(run, END_CANCELLED, message.CANCELLED, "cancelled before it started")
            return
        if "expires" in extras and self._is_late(claimed, header[3], extras["expires"]):
            self._end(run, END_EXPIRED, message.EXPIRED, "it was not started in time")
            return
        timeout_s = task.option("timeout")
        run.context = Context(
            uid=claimed.uid.decode(), pool=self.pool, name=name, args=args, kwargs=kwargs,
            attempt=run.attempt, max_retries=task.option("max_retries", MAX_RETRIES),
            token=claimed.token.decode(), due_at=header[3] / 1000 if header[3] else None,
            headers=extras.get("headers") or {},
            tick=extras["tick"] / 1000 if "tick" in extras else None,
            report=partial(self._report, claimed),
        )
        if timeout_s is not None:
            run.context.deadline = time.monotonic() + timeout_s
            run.entry = self._driver.after(timeout_s, partial(self._time_out, run), inline=True)
        self._call(run, task)

    def _step(self, task: Task[..., Any]) -> Step:
        """The task's function with the app's middleware around it, made once a task."""
        step = self._steps.get(task.name)
        if step is None:
            assert task.function is not None
            step = self._steps[task.name] = compose(self._app.middleware, task.function)
        return step

    def _call(self, run: Run, task: Task[..., Any]) -> None:
        assert run.context is not None
        try:
            # A copy per run: what one task sets, the next one does not see.
            result = self._variables.copy().run(_inside, run.context, self._step(task))
        except BaseException as error:
            self._failed(run, error)
            return
        if run.reason is not None:
            self._failed(run, None)
            return
        try:
            encoded = _NOTHING if result is None or task.option("keep_result") is False else (
                payload.encode(result, self.limits.result_limit, "result")
            )
        except PayloadError as error:
            # It would fail again, after doing its work again.
            self._bury(run, "PayloadError", str(error))
            return
        self._recorder.end(Ending(
            run.claimed.uid, run.claimed.token, END_SUCCEEDED,
            message.success(self._success_head, run.attempt, run.started_ms, encoded),
        ))
        if self._app.hooks.has("success"):
            self._app.hooks.fire("success", run.context, result)

    # Outcomes

    def _failed(self, run: Run, error: BaseException | None) -> None:
        if run.abandoned:
            return
        if run.reason is not None or error is None:
            self._interrupted(run, error)
            return
        if isinstance(error, Reject):
            self._bury(run, "Reject", error.reason)
            return
        self._retry_or_bury(run, error)

    def _interrupted(self, run: Run, error: BaseException | None) -> None:
        if run.reason == TIMED_OUT:
            limit = run.task.option("timeout") if run.task else None
            timed_out = TaskTimeout(f"ran over its time limit of {limit} s")
            timed_out.__traceback__ = error.__traceback__ if error is not None else None
            self._retry_or_bury(run, timed_out)
        elif run.reason == CANCELLED:
            self._end(run, END_CANCELLED, message.CANCELLED, "cancelled while it ran")
        elif run.reason == LOST:
            log.warning("task %s/%s lost its claim; its outcome is dropped",
                        self.pool, run.claimed.uid.decode())
            self.forget(run.claimed.uid)
        # SHUTDOWN: the claim is given back by the child; nothing is written.

    def _retry_or_bury(self, run: Run, error: BaseException) -> None:
        described = list(describe(error))
        delay_s = self._delay_s(run, error)
        log.log(
            logging.WARNING if delay_s is not None else logging.ERROR,
            "task %s/%s %s failed on attempt %d: %s: %s; %s",
            self.pool, run.claimed.uid.decode(), run.name, run.attempt, described[0],
            described[1][:200].replace("\n", " "),
            "to the dead-letter queue" if delay_s is None else f"again in {delay_s:.3g} s",
        )
        if delay_s is None:
            self._end(run, END_DEAD, message.DEAD, described)
            self._app.hooks.fire("dead", run.context, error)
            forget(error)
            return
        self._app.hooks.fire("retry", run.context, error, delay_s)
        forget(error)
        self._recorder.fail(Failure(
            run.claimed.uid, run.claimed.token, round(delay_s * 1000),
            message.entry(
                message.FAILED, self.owner, run.attempt, run.started_ms, [*described, delay_s]
            ),
        ))

    def _delay_s(self, run: Run, error: BaseException) -> float | None:
        """Seconds until the next attempt, or None for no more."""
        if run.task is None:
            return None
        option = run.task.option
        never = option("never_retry_on")
        only = option("retry_on")
        if never and isinstance(error, never):
            return None
        if only and not isinstance(error, (*only, Retry)):
            return None
        most = option("max_retries", MAX_RETRIES)
        strategy = option("retry") or retries.DEFAULT
        if isinstance(error, Retry) and error.delay is not None:
            over = most is not None and run.attempt > most
            return None if over else max(0.0, float(error.delay))
        return retries.delay_after(strategy, run.attempt, error, most)

    def _put_off(self, run: Run, name: str, header: bytes) -> None:
        """Nobody here knows the task: let others have it, for a bounded time."""
        since_ms = int(header.split(b" ")[5]) if header.count(b" ") == 5 else 0
        waited_ms = self._clock.redis_ms() - since_ms if since_ms else 0
        if waited_ms >= self.limits.unknown_after_s * 1000:
            self._bury(run, "UnknownTask", f"no task {name!r} is registered in pool {self.pool!r}"
                       f"{nearest(name, (task.name for task in self._app.tasks))}")
            return
        if not since_ms:
            log.warning("task %s/%s: no task %r is registered here; it waits for a process that "
                        "knows it, at most %g s", self.pool, run.claimed.uid.decode(), name,
                        self.limits.unknown_after_s)
        self._recorder.defer(Deferral(
            run.claimed.uid, run.claimed.token, round(UNKNOWN_AGAIN_S * 1000)
        ))

    def _move(self, run: Run, home: Published, extras: dict[str, Any]) -> None:
        """It lies in the wrong pool: its producer knew no better. No attempt is counted."""
        log.info("task %s/%s: %r belongs to pool %r and goes there",
                 self.pool, run.claimed.uid.decode(), run.name, home.pool)
        options = extras.get("placing")
        if options is None:
            priority = home.defaults.get("priority", 0)
            options = f"{priority} - -" if priority else ""
        self._recorder.move(Relocation(
            run.claimed.uid, run.claimed.token, home.pool, message.envelope_of(run.claimed.body),
            # Where the key is taken there, that ends this task, whatever the submit was told to do.
            re.sub(r" ([dsw]):[rp]:", r" \1:x:", options), run.claimed.uid in self.cancelled,
        ))

    def _report(self, claimed: Claimed, percent: float, note: str | None) -> None:
        self.on_progress(claimed.uid, claimed.token, percent, note)

    def _bury(self, run: Run, kind: str, text: str) -> None:
        log.error("task %s/%s is dead: %s", self.pool, run.claimed.uid.decode(), text)
        self._end(run, END_DEAD, message.DEAD, [kind, text, ""])
        self._app.hooks.fire("dead", run.context, Reject(text))

    def _end(self, run: Run, end: str, kind: int, value: Any) -> None:
        self._recorder.end(Ending(
            run.claimed.uid, run.claimed.token, end,
            message.entry(kind, self.owner, run.attempt, run.started_ms, value),
        ))

    def _is_late(self, claimed: Claimed, due_ms: int, expires_s: float) -> bool:
        since = due_ms or message.read_journal(claimed.body).submitted_ms
        return self._clock.redis_ms() > since + expires_s * 1000


def _inside(context: Context, step: Step) -> Any:
    running.set(context)
    return step(context)


def _read_header(header: bytes) -> tuple[int, int, int, int]:
    """Priority, attempts, crashes and due ms of a claimed task."""
    if not header:
        return 0, 0, 0, 0
    parts = header.split(b" ", 4)
    return int(parts[0]), int(parts[1]), int(parts[2]), int(parts[3])


def _with_extras(task: Task[..., Any], extras: dict[str, Any]) -> Task[..., Any]:
    """The task with what this one call said about its run."""
    own = dict(extras)
    if "retry" in own:
        own["retry"] = retries.from_wire(own["retry"])
    return Task(
        app=task.app, name=task.name, function=task.function, defaults=task.defaults, own=own
    )


def _retries_of_a_hang(task: Task[..., Any]) -> int | None:
    """How often it may be tried again after it hung: for the master, which has not its code."""
    never, only = task.option("never_retry_on"), task.option("retry_on")
    if (never and issubclass(TaskTimeout, never)) or (only and not issubclass(TaskTimeout, only)):
        return 0
    most: int | None = task.option("max_retries", MAX_RETRIES)
    return most


def _place(claimed: Claimed) -> int:
    return claimed.place


def _nobody() -> None:
    """Until someone listens."""


def _nowhere(name: str) -> Published | None:
    """Until there is a directory to ask."""
    return None


def _nobody_reads(uid: bytes, token: bytes, percent: float, note: str | None) -> None:
    """Until someone listens."""



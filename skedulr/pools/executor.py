"""The executor: runs what the fetcher claimed.

It puts together the holdings (what is claimed), the workers (greenlets) and the outcomes (what is
written), and takes each run one way: read the call, check (known, cancelled, expired), run it under
its time limit in fresh context variables, hand in one outcome.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import message, payload, spreading
from ..app import Skedulr
from ..clock import Clock
from ..codecs import Codec
from ..context import Context
from ..dependencies import full_id, read_waits
from ..errors import PayloadError, StorageUnavailable, TaskCancelled, TaskFailed, TaskTimeout
from ..hub.driver import Driver
from ..names import Published
from ..payload import NewerRelease
from ..prepare import limits_by_name
from ..store import Claims
from ..tasks import MAX_RETRIES, Task
from .board import Board
from .holdings import Holdings
from .outcomes import Outcomes
from .recipes import Recipe, Recipes
from .recorder import Recorder
from .runs import CANCELLED, LOST, TIMED_OUT, Claimed, Run
from .workers import Worker, Workers

log = logging.getLogger("skedulr.task")

#: The most tasks taken beyond the free workers.
MOST_AHEAD = 400
#: After an interruption a handler gets this long to end, then it is abandoned, seconds.
LAST_WORDS_S = 5.0

#: What an envelope says to readers and to a resubmit: a run asks for none of it.
_FOR_THE_QUEUE = frozenset(("placing", "limits"))
_NOTHING = payload.encode(None)


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
        clock: Clock, board: Board, limits: Limits, codec: Codec | None = None,
    ) -> None:
        self._codec = codec
        self.pool, self.limits = pool, limits
        self._app, self._driver, self._clock, self._board = app, driver, clock, board
        self.holdings = Holdings(limits.lease_s)
        self.workers = Workers(holdings=self.holdings, board=board, run_one=self._run_one)
        self._outcomes = Outcomes(
            pool=pool, owner=owner, app=app, recorder=recorder, clock=clock,
            unknown_after_s=limits.unknown_after_s, on_lost=self.holdings.forget,
        )
        self._variables: Variables = copy_context()
        self._recipes = Recipes(app, pool)
        self._taken_since = 0
        self._closed = False
        #: What runs, by uid.
        self.running: dict[bytes, Run] = {}
        #: Called when a handler had to be abandoned: this process should be replaced.
        self.on_stuck: Callable[[], None] = _nobody
        #: Takes what handlers report: uid, token, percent, note.
        self.on_progress: Callable[[bytes, bytes, float, str | None], None] = _nobody_reads
        #: What is known of where a name belongs; asked about names that are not registered here,
        #: and those that were submitted with nothing but a name.
        self.home_of: Callable[[str], Published | None] = _nowhere

    def start(self) -> None:
        """Make the workers."""
        self.workers.start(self.limits.workers)

    def close(self) -> None:
        """Take nothing more in; what runs goes on."""
        self._closed = True

    # Taking in

    def room(self) -> tuple[int, int]:
        """How many tasks to claim now, and how many of those could start at once.

        Beyond the free workers it asks for twice what was taken since the last claim: fast tasks
        are fetched ahead, so that no worker waits for a round trip; slow ones are left for others.
        """
        if self._closed:
            return 0, 0
        pending = len(self.holdings.pending)
        free = max(0, self.workers.size - len(self.running) - pending)
        ahead = max(0, min(2 * self._taken_since, MOST_AHEAD) - pending)
        if free == 0 and ahead < min(50, self._taken_since):
            return 0, 0
        self._taken_since = 0
        return min(free + ahead, 500), free

    def has_room(self) -> bool:
        """Whether a worker is free for a task that would be claimed now."""
        return self.workers.size > len(self.running) + len(self.holdings.pending)

    def stuck_s(self) -> float:
        """For how long a task has waited here for a worker while all were busy, seconds; from any
        thread. Others may have idle workers for it."""
        return self.holdings.waiting_s() if len(self.running) >= self.workers.size else 0.0

    def accept(self, claims: Claims, starting: int, sent_at: float | None = None) -> None:
        """Take in what a claim brought; see ``Holdings.accept``."""
        for uid in self.holdings.held.keys() & claims.rows[::4]:
            # It was recovered, and came back to us: what runs under the old claim is lost.
            self.interrupt(uid, LOST)
        self.holdings.accept(claims, starting, sent_at)
        # What begins to compute now is silent from now on, not since the last sign of life.
        self._board.note_life()
        self.workers.wake()

    def resume(self) -> None:
        """A renewal got through: what is still pending is ours."""
        self.holdings.in_doubt = False
        self.workers.wake()

    # Interrupting

    def interrupt(self, uid: bytes, reason: str) -> None:
        """End a task early: at once where it runs, before it starts where it is pending."""
        if uid not in self.holdings.held:
            if reason == CANCELLED and self.holdings.heard is not None:
                self.holdings.heard.add(uid)
            return
        if reason == CANCELLED:
            self.holdings.cancelled.add(uid)
        run = self.running.get(uid)
        if run is not None:
            self._stop(run, reason)
        elif reason == LOST and (claimed := self.holdings.pending.pop(uid, None)) is not None:
            self.holdings.forget(uid, claimed.token)

    def _stop(self, run: Run, reason: str) -> None:
        """Interrupt a run; the first reason counts."""
        if run.reason is not None or self.running.get(run.uid) is not run:
            return
        run.interrupt(reason)
        error: BaseException = TaskCancelled(reason)
        if reason == TIMED_OUT and run.task is not None:
            error = TaskTimeout(f"ran over its time limit of {run.task.option('timeout')} s")
        if run.limit is not None:
            run.limit.cancel()
        run.limit = self._driver.after(LAST_WORDS_S, partial(self._abandon, run), inline=True)
        self.workers.throw(run, error)

    def _abandon(self, run: Run) -> None:
        """The handler goes on in spite of its interruption: record the outcome without it.

        Its greenlet can not be ended from outside, so its slot is lost; the process is replaced
        once its other tasks are done.
        """
        uid = run.uid
        if self.running.get(uid) is not run:
            return
        log.error("task %s/%s %s does not end although it was %s; its process will be replaced",
                  self.pool, run.id, run.name, run.reason)
        self._outcomes.interrupted(run, None)
        run.abandoned = True
        self.workers.end_spawned(run, 0)
        run.worker.run = None
        del self.running[uid]
        self.on_stuck()

    # Running

    def _run_one(self, worker: Worker, claimed: Claimed) -> bool:
        """Run one task; False where the run was abandoned and this greenlet is to end."""
        uid = claimed.uid
        run = worker.run = Run(claimed, worker, self._clock.redis_ms(), self._context)
        self.running[uid] = run
        self._taken_since += 1
        self._board.begin_task(worker.slot, uid)
        if not claimed.starting:
            self.holdings.started[uid] = claimed.token
        try:
            self._attempt(run)
        except BaseException as error:
            # A fault of ours, or an interruption that came between two steps.
            self._came_to(run, error)
        if run.abandoned:
            return False
        if run.limit is not None:
            run.limit.cancel()
        worker.run = None
        if self.running.get(uid) is run:
            # Else it runs here under a newer claim already.
            del self.running[uid]
            self.holdings.started.pop(uid, None)
        self._board.end_task()
        return True

    def _attempt(self, run: Run) -> None:
        claimed = run.claimed
        if claimed.header:
            attempts, run.due_ms = claimed.counters()
            run.attempt = attempts + 1
        try:
            run.name, run.args, run.kwargs, run.extras = message.read_call(
                claimed.body, self._codec
            )
        except NewerRelease as error:
            # Others may be newer: while a release is rolled out, both run side by side.
            self._outcomes.put_off(
                run, "PayloadError", f"the stored call can not be read: {error}"
            )
            return
        except PayloadError as error:
            self._outcomes.bury(run, "PayloadError", f"the stored call can not be read: {error}")
            return
        recipe = self._recipes.of(run.name)
        if recipe is None or run.extras or self.holdings.cancelled:
            recipe = self._prepare(run, recipe)
            if recipe is None:
                return
        run.task, run.began = recipe.task, True
        self._limit(run, recipe)
        self._call(run, recipe)

    def _prepare(self, run: Run, recipe: Recipe | None) -> Recipe | None:
        """All that is not so for most tasks. None where the run has come to its outcome by it, and
        its handler is not to be begun."""
        extras, outcomes = run.extras, self._outcomes
        cancelled = run.uid in self.holdings.cancelled
        if spreading.is_planned(extras):
            self._plan(run, cancelled)
            return None
        if recipe is None or "unplaced" in extras:
            home = self.home_of(run.name)
            if home is not None and home.pool != self.pool:
                if "placing" not in extras:
                    extras["placing"] = self._placing(run.name, home, run.args, run.kwargs)
                outcomes.move(run, home, extras["placing"], cancelled)
                return None
        if recipe is None:
            outcomes.put_off(run)
            return None
        if extras and not _FOR_THE_QUEUE.issuperset(extras):
            recipe = self._recipes.for_call(recipe, extras)
        run.task = recipe.task
        if cancelled:
            outcomes.cancel(run, "cancelled before it started")
        elif "expires" in extras and self._is_late(run):
            outcomes.expire(run)
        elif "fill" not in extras or self._was_filled(run):
            return recipe
        return None

    def _context(self, run: Run) -> Context:
        task, extras, due_ms = run.task, run.extras, run.due_ms
        assert task is not None
        return Context(
            uid=run.id, pool=self.pool, name=run.name, args=run.args, kwargs=run.kwargs,
            attempt=run.attempt, max_retries=task.option("max_retries", MAX_RETRIES),
            token=run.claimed.token.decode(), due_at=due_ms / 1000 if due_ms else None,
            headers=extras.get("headers") or {}, deadline=run.deadline,
            cancelled=run.reason is not None,
            tick=extras["tick"] / 1000 if "tick" in extras else None,
            report=partial(self._report, run.claimed), spawn=partial(self.workers.spawn, run),
            inputs=partial(self._inputs, extras) if "parents" in extras else None,
        )

    def _inputs(self, extras: dict[str, Any]) -> list[Any]:
        waits = read_waits(extras)
        return [] if waits is None else self._app.client.results(waits.inputs)

    def _was_filled(self, run: Run) -> bool:
        """Whether the run has got the results that stand among its arguments; where it has not, it
        has come to its outcome."""
        try:
            why_not = self._fill(run)
        except StorageUnavailable as error:
            self._try_later(run, error)
            return False
        if why_not:
            self._outcomes.bury(run, "InputMissing", why_not)
            return False
        if not self.holdings.is_surely_ours(run.uid, run.claimed.token):
            # This process was stopped meanwhile, or Redis was: another may run it by now.
            self._outcomes.try_later(
                run, "its lease may have run out while its arguments were read"
            )
            return False
        return True

    def _fill(self, run: Run) -> str | None:
        """Put the results of steps where they stand as arguments; or why that can not be."""
        places, workflow = run.extras["fill"], run.extras.get("workflow")
        try:
            results = self._app.client.results([full_id(id, workflow) for _, id in places])
        except PayloadError as error:
            return str(error)
        for (at, _), result in zip(places, results, strict=True):
            if isinstance(result, TaskFailed):
                return f"an argument is the result of a task that gave none: {result}"
            if isinstance(at, str):
                run.kwargs[at] = result
            else:
                run.args[at] = result
        return None

    def _plan(self, run: Run, cancelled: bool) -> None:
        """Run a task that is Skedulr's own: one that makes others, or sees how they ended."""
        outcomes = self._outcomes
        # Never by its name's function: that is for the tasks it makes.
        run.task = Task(
            app=self._app, name=run.name, function=None, defaults={}, own={"pool": self.pool}
        )
        if cancelled:
            outcomes.cancel(run, "cancelled before it started")
            return
        journal = message.read_journal(run.claimed.body)
        try:
            step = spreading.next_step(
                self._app.client, f"{self.pool}/{run.id}", journal
            )
        except StorageUnavailable as error:
            self._try_later(run, error)
            return
        if run.reason is not None:
            self._came_to(run, None)
        elif isinstance(step, spreading.WaitFor):
            outcomes.suspend(run, journal, step)
        elif isinstance(step, spreading.Skip):
            outcomes.skip(run, step.reason)
        elif isinstance(step, spreading.Fault):
            outcomes.bury(run, step.type, step.text)
        else:
            self._gathered(run, step.value)

    def _try_later(self, run: Run, error: StorageUnavailable) -> None:
        """Redis was away when the task was to be given what others had made: no fault of its own,
        so it counts no attempt, or a step without retries would be dead of it."""
        if run.reason is not None:
            self._came_to(run, error)
        else:
            self._outcomes.try_later(run, str(error))

    def _gathered(self, run: Run, result: Any) -> None:
        try:
            encoded = payload.encode(result, spreading.MOST_MAPPED_BYTES, "result")
            if self._codec is not None:
                encoded = message.seal_result(run.name, encoded, self._codec)
        except PayloadError as error:
            self._outcomes.bury(run, type(error).__name__, str(error))
            return
        self._outcomes.gathered(run, encoded)

    def _limit(self, run: Run, recipe: Recipe) -> None:
        """Set the run's time limit, and tell the master what a hang of it would count."""
        if not recipe.usual:
            self._board.allow(run.worker.slot, recipe.hang_retries)
        if recipe.timeout_s is not None:
            run.deadline = time.monotonic() + recipe.timeout_s
            run.limit = self._driver.after(
                recipe.timeout_s, partial(self._stop, run, TIMED_OUT), inline=True
            )

    def _call(self, run: Run, recipe: Recipe) -> None:
        try:
            # A copy per run: what one task sets, the next one does not see.
            try:
                result = self._variables.copy().run(recipe.enter, run, recipe.call)
            finally:
                if run.spawned:
                    self.workers.end_spawned(run, LAST_WORDS_S)
        except BaseException as error:
            self._came_to(run, error)
            return
        if run.reason is not None:
            self._came_to(run, None)
            return
        try:
            encoded = _NOTHING if result is None or not recipe.keeps_result else (
                payload.encode(result, self.limits.result_limit, "result")
            )
            if self._codec is not None:
                encoded = message.seal_result(run.name, encoded, self._codec)
        except PayloadError as error:
            # It would fail again, after doing its work again.
            self._outcomes.bury(run, type(error).__name__, str(error))
            return
        self._outcomes.succeed(run, result, encoded)

    def _came_to(self, run: Run, error: BaseException | None) -> None:
        """The run ended in an error, or was interrupted."""
        if run.abandoned:
            return
        if run.reason is not None or error is None:
            self._outcomes.interrupted(run, error)
        else:
            self._outcomes.fail(run, error)

    def _placing(
        self, name: str, home: Published, args: list[Any], kwargs: dict[str, Any]
    ) -> str:
        """The options under which a call goes to its pool, of which its producer knew nothing."""
        task, priority = self._app.tasks.get(name), home.defaults.get("priority", 0)
        limited = limits_by_name(
            name, None if task is None else task.function, home.defaults.get("limit") or (),
            args, kwargs,
        )
        return f"{priority} - -{limited}" if priority or limited else ""

    def _is_late(self, run: Run) -> bool:
        since_ms = run.due_ms or message.read_journal(run.claimed.body).submitted_ms
        late_ms: float = since_ms + run.extras["expires"] * 1000
        return self._clock.redis_ms() > late_ms

    def _report(self, claimed: Claimed, percent: float, note: str | None) -> None:
        self.on_progress(claimed.uid, claimed.token, percent, note)


def _nobody() -> None:
    """Until someone listens."""


def _nowhere(name: str) -> Published | None:
    """Until there is a directory to ask."""
    return None


def _nobody_reads(uid: bytes, token: bytes, percent: float, note: str | None) -> None:
    """Until someone listens."""

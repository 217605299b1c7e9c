"""Outcomes: what a run came to, as the recorder is to write it.

Succeeded, to be tried again, dead, cancelled, expired; or, for a task that is not for this process,
put off or moved. What interrupted a run decides its outcome, never what the handler made of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from .. import message, retries
from ..app import Skedulr
from ..clock import Clock
from ..errors import Reject, Retry, TaskTimeout, nearest
from ..errortext import describe, forget
from ..names import Published
from ..spreading import WaitFor, waiting_text
from ..statistics import UNKNOWN
from ..store import (
    END_CANCELLED,
    END_DEAD,
    END_EXPIRED,
    END_SKIPPED,
    END_SUCCEEDED,
    Deferral,
    Ending,
    Failure,
    Relocation,
    Suspension,
)
from ..tasks import MAX_RETRIES, Task
from .recorder import Recorder
from .runs import CANCELLED, LOST, TIMED_OUT, Run

log = logging.getLogger("skedulr.task")

_new = tuple.__new__
#: A task nobody here knows is looked at again after this long, seconds.
UNKNOWN_AGAIN_S = 5.0
#: And one that could not be given its parents' results, as Redis was away.
TRY_LATER_S = 1.0


class Outcomes:
    """Hands one outcome of each run to the recorder, and tells the app's hooks.

    ``on_lost(uid, token)`` is called where nothing may be written, because the claim is another's.
    """

    def __init__(
        self, *, pool: str, owner: str, app: Skedulr, recorder: Recorder, clock: Clock,
        unknown_after_s: float, on_lost: Callable[[bytes, bytes], object],
    ) -> None:
        self._pool, self._owner = pool, owner
        self._app, self._hooks, self._recorder, self._clock = app, app.hooks, recorder, clock
        self._unknown_after_s, self._on_lost = unknown_after_s, on_lost
        self._success_head = message.success_head(owner)

    def succeed(self, run: Run, result: Any, encoded: bytes) -> None:
        """The handler returned ``result``."""
        # As Ending(...), without a step in Python: there is one for each task.
        self._recorder.end(_new(Ending, (
            run.uid, run.claimed.token, END_SUCCEEDED + self._sample(run),
            message.success(self._success_head, run.attempt, run.started_ms, encoded),
        )))
        if self._hooks.has("success"):
            self._hooks.fire("success", run.context, result)

    def fail(self, run: Run, error: BaseException) -> None:
        """The handler raised, and nothing had interrupted it."""
        if isinstance(error, Reject):
            # As text that is bounded and can be stored, whatever was given for a reason.
            self.bury(run, "Reject", describe(error)[1])
        else:
            self._retry_or_bury(run, error)

    def interrupted(self, run: Run, error: BaseException | None) -> None:
        """The run was interrupted; ``error`` is what came out of the handler, if anything did."""
        if run.reason == TIMED_OUT:
            limit = run.task.option("timeout") if run.task else None
            timed_out = TaskTimeout(f"ran over its time limit of {limit} s")
            timed_out.__traceback__ = error.__traceback__ if error is not None else None
            self._retry_or_bury(run, timed_out)
        elif run.reason == CANCELLED:
            self.cancel(run, "cancelled while it ran")
        elif run.reason == LOST:
            log.warning("%s lost its claim; its outcome is dropped", self._called(run))
            self._on_lost(run.uid, run.claimed.token)
        # SHUTDOWN: the claim is given back by the child; nothing is written.

    def cancel(self, run: Run, reason: str) -> None:
        """It ends as cancelled."""
        self._end(run, END_CANCELLED, message.CANCELLED, reason)

    def expire(self, run: Run) -> None:
        """It ends as expired."""
        self._end(run, END_EXPIRED, message.EXPIRED, "it was not started in time")

    def bury(self, run: Run, kind: str, text: str) -> None:
        """It can never succeed: dead at once."""
        log.error("%s is dead: %s", self._called(run), text)
        self._end(run, END_DEAD, message.DEAD, [kind, text, ""])
        self._hooks.fire("dead", run.context, Reject(text))

    def suspend(self, run: Run, journal: message.Journal, wait: WaitFor) -> None:
        """It waits for others from now on; no attempt is counted."""
        letters = "S" * wait.many if wait.many is not None else str(journal.extras["letters"])
        self._recorder.suspend(Suspension(
            run.uid, run.claimed.token,
            message.entry(message.SPREAD, self._owner, 0, run.started_ms, wait.many),
            waiting_text(journal, letters),
        ))

    def gathered(self, run: Run, encoded: bytes) -> None:
        """A task that Skedulr runs itself has its result; no hook hears of it."""
        self._recorder.end(Ending(
            run.uid, run.claimed.token, END_SUCCEEDED,
            message.success(self._success_head, run.attempt, run.started_ms, encoded),
        ))

    def skip(self, run: Run, reason: str) -> None:
        """Its trigger can not happen any more."""
        self._end(run, END_SKIPPED, message.SKIPPED, reason)

    def put_off(self, run: Run, kind: str = "UnknownTask", why: str = "") -> None:
        """Nobody here can run the task, as its name is not known or ``why`` says: let others have
        it, for a bounded time; then it is dead by an error of that ``kind``."""
        since_ms = run.claimed.unknown_since_ms()
        waited_ms = self._clock.redis_ms() - since_ms if since_ms else 0
        if waited_ms >= self._unknown_after_s * 1000:
            known = nearest(run.name, (task.name for task in self._app.tasks))
            self.bury(run, kind, why or (
                f"no task {run.name!r} is registered in pool {self._pool!r}{known}"
            ))
            return
        if not since_ms:
            if why:
                log.warning("%s: %s; it waits for a newer process, at most %g s",
                            self._called(run), why, self._unknown_after_s)
            else:
                log.warning("%s: no task %r is registered here; it waits for a process that knows "
                            "it, at most %g s", self._called(run), run.name, self._unknown_after_s)
        self._recorder.defer(Deferral(
            run.uid, run.claimed.token,
            round(min(UNKNOWN_AGAIN_S, self._unknown_after_s) * 1000),
        ))

    def try_later(self, run: Run, why: str) -> None:
        """It could not begin, through no fault of its own; no attempt is counted."""
        log.warning("%s is put off for %g s: %s", self._called(run), TRY_LATER_S, why)
        self._recorder.defer(Deferral(
            run.uid, run.claimed.token, round(TRY_LATER_S * 1000)
        ))

    def move(self, run: Run, home: Published, placing: str, cancelled: bool) -> None:
        """It lies in the wrong pool: its producer knew no better. No attempt is counted."""
        log.info("%s: %r belongs to pool %r and goes there", self._called(run), run.name,
                 home.pool)
        self._recorder.move(Relocation(
            run.uid, run.claimed.token, home.pool, message.envelope_of(run.claimed.body),
            # Where the key is taken there, that ends this task, whatever the submit was told to do.
            re.sub(r" ([dsw]):[rp]:", r" \1:x:", placing), cancelled,
        ))

    def _retry_or_bury(self, run: Run, error: BaseException) -> None:
        described = list(describe(error))
        delay_s = _delay_s(run, error)
        log.log(
            logging.WARNING if delay_s is not None else logging.ERROR,
            "%s %s failed on attempt %d: %s: %s; %s", self._called(run), run.name, run.attempt,
            described[0], described[1][:200].replace("\n", " "),
            "to the dead-letter queue" if delay_s is None else f"again in {delay_s:.3g} s",
        )
        if delay_s is None:
            self._end(run, END_DEAD, message.DEAD, described)
            self._hooks.fire("dead", run.context, error)
        else:
            self._recorder.fail(Failure(
                run.uid, run.claimed.token, round(delay_s * 1000),
                message.entry(message.FAILED, self._owner, run.attempt, run.started_ms,
                              [*described, delay_s]),
                self._sample(run)[1:],
            ))
            self._hooks.fire("retry", run.context, error, delay_s)
        # What its frames hold would otherwise live as long as whoever keeps the error.
        forget(error)

    def _end(self, run: Run, end: str, kind: int, value: Any) -> None:
        self._recorder.end(Ending(
            run.uid, run.claimed.token, end + self._sample(run),
            message.entry(kind, self._owner, run.attempt, run.started_ms, value),
        ))

    def _sample(self, run: Run) -> str:
        """What the statistics count of it, as finish.lua reads it behind the kind of end: how long
        it waited, how long it ran, its name. What its handler never saw is no run."""
        if not run.began:
            # A name that nobody knows takes no place among those that are counted.
            name = run.name if run.task is not None else UNKNOWN
            return f" - - {name}"
        started_ms, due_ms = run.started_ms, run.due_ms
        ran_ms = self._clock.redis_ms() - started_ms
        # It could have been started when the last happened that is in its journal (it was
        # submitted, or given back), or what it was due at by then.
        ready_ms = int.from_bytes(run.claimed.body[-8:], "big")
        if due_ms > ready_ms:
            ready_ms = due_ms
        if not due_ms and "parents" in run.extras:
            waited: int | str = "-"  # when the last of its parents ended, nobody has written down
        else:
            # Below 0 where the server's clock was set back, or its time became known better.
            waited = started_ms - ready_ms if started_ms > ready_ms else 0
        return f" {waited} {ran_ms if ran_ms > 0 else 0} {run.name}"

    def _called(self, run: Run) -> str:
        return f"task {self._pool}/{run.id}"


def retries_of_a_hang(task: Task[..., Any]) -> int | None:
    """How often it may be tried again after it hung: for the master, which has not its code."""
    if not _may_retry(task, TaskTimeout):
        return 0
    most: int | None = task.option("max_retries", MAX_RETRIES)
    return most


def _delay_s(run: Run, error: BaseException) -> float | None:
    """Seconds until the next attempt, or None for no more."""
    task = run.task
    if task is None or not _may_retry(task, type(error)):
        return None
    most = task.option("max_retries", MAX_RETRIES)
    strategy = task.option("retry") or retries.DEFAULT
    if isinstance(error, Retry) and error.delay is not None:
        strategy = _Asked(error.delay)
    return retries.delay_after(strategy, run.attempt, error, most)


class _Asked:
    """What a handler asked for by ``Retry(delay=)``: checked and bounded as what a strategy says,
    for a due time that Redis can not count would stop the recorder."""

    def __init__(self, delay: Any) -> None:
        self._delay = delay

    def next_delay(self, attempt: int, error: BaseException | None) -> Any:
        """The time that is left until then: none, where it has passed."""
        return max(self._delay, type(self._delay)(0))


def _may_retry(task: Task[..., Any], kind: type[BaseException]) -> bool:
    """Whether an error of this kind is one the task is retried on; a ``Retry`` asks for it."""
    never, only = task.option("never_retry_on"), task.option("retry_on")
    if never and issubclass(kind, never):
        return False
    return not only or issubclass(kind, (*only, Retry))

"""The running task, as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .errors import ConfigError

if TYPE_CHECKING:
    from gevent import Greenlet


class Running(Protocol):
    """A run under way, which makes its context when it is asked for."""

    @property
    def context(self) -> Context | None: ...


#: Set by the executor, for the length of a run.
running: ContextVar[Running | Context | None] = ContextVar("skedulr_task", default=None)


class Context:
    """What a handler may know of its own run; ``skedulr.current_task()`` gives it.

    ``attempt`` counts from 1. ``token`` names this claim: later writes of the run are fenced by it,
    and a handler can fence its own with it. ``due_at`` is epoch seconds, or None for a task without
    a delay; ``deadline`` is monotonic seconds, or None without a time limit. ``tick`` is the due
    time of its schedule that the run stands for, epoch seconds; None without a schedule.
    """

    __slots__ = (
        "_inputs", "_report", "_spawn", "args", "attempt", "cancelled", "deadline", "due_at",
        "headers", "kwargs", "max_retries", "name", "pool", "tick", "token", "uid",
    )

    def __init__(
        self, *, uid: str, pool: str, name: str, args: list[Any], kwargs: dict[str, Any],
        attempt: int, max_retries: int | None, token: str, due_at: float | None,
        headers: dict[str, Any], deadline: float | None = None, tick: float | None = None,
        report: Callable[[float, str | None], object] | None = None,
        spawn: Callable[[Callable[[], Any]], Greenlet] | None = None,
        inputs: Callable[[], list[Any]] | None = None, cancelled: bool = False,
    ) -> None:
        self.uid, self.pool, self.name = uid, pool, name
        self.args, self.kwargs, self.headers = args, kwargs, headers
        self.attempt, self.max_retries, self.token = attempt, max_retries, token
        self.due_at, self.deadline, self.tick = due_at, deadline, tick
        self.cancelled = cancelled
        self._report, self._spawn, self._inputs = report, spawn, inputs

    def __repr__(self) -> str:
        return f"<Context of {self.name} {self.id} attempt {self.attempt}>"

    @property
    def id(self) -> str:
        """``"<pool>/<uid>"``."""
        return f"{self.pool}/{self.uid}"

    def inputs(self) -> list[Any]:
        """What the tasks that this one waited for came to, in their order: ``depends_on``,
        ``on_success``, ``on_failure``, ``after``.

        A result each; for one that did not succeed, has not ended yet or was removed, the
        ``TaskFailed`` that says so (not raised). Asks Redis at each call. Raises PayloadTooLarge
        where all of them together have more than 16 MiB, StorageUnavailable.
        """
        return [] if self._inputs is None else self._inputs()

    def spawn(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Greenlet:
        """Start ``function`` in a greenlet of this task; its ``get()`` waits for what it returns.

        It sees the task's context (``current_task()``, context variables), its time on the CPU
        counts as the task's, and it ends with it: what still runs when the handler returns, fails
        or is interrupted is killed (``GreenletExit``). Wait for it if that matters.

        >>> @skedulr.task                                       # doctest: +SKIP
        ... def fetch_both(a, b):
        ...     other = skedulr.current_task().spawn(fetch, b)
        ...     return [fetch(a), other.get()]
        """
        if self._spawn is None:
            raise RuntimeError("spawn() is for code that runs inside a task")
        return self._spawn(partial(copy_context().run, function, *args, **kwargs))

    def report_progress(self, percent: float, note: str | None = None) -> None:
        """Say how far the run is; at most five times a second it is written where others see it.

        ``percent`` is 0 to 100. Raises ConfigError for anything else.
        """
        if isinstance(percent, bool) or not isinstance(percent, (int, float)) or not (
            0 <= percent <= 100
        ):
            raise ConfigError(f"percent={percent!r} is not usable: a number from 0 to 100")
        if self._report is not None:
            self._report(float(percent), note)


def current_task() -> Context:
    """The context of the task that runs here; RuntimeError outside of a task."""
    context = running_context()
    if context is None:
        raise RuntimeError("current_task() is for code that runs inside a task")
    return context


def task_id() -> str | None:
    """The id of the task that runs here, or None outside of a task."""
    context = running_context()
    return None if context is None else context.id


def running_context() -> Context | None:
    """The context of the task that runs here, or None outside of a task."""
    found = running.get()
    return found if found is None or isinstance(found, Context) else found.context


def report_progress(percent: float, note: str | None = None) -> None:
    """Say how far the running task is; see ``Context.report_progress``."""
    current_task().report_progress(percent, note)


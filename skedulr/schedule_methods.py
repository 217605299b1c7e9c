"""The part of an app that is about schedules: once, every so often, by a cron line.

``every`` and ``cron`` declare: nothing is stored until a node with this code boots. The
``schedule_...`` functions store at once, from wherever they are called.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from . import options, scheduling
from .cronline import CronLine, check_zone, zone_info
from .errors import ConfigError
from .scheduling import Declaration, Plan
from .tasks import Call, Task, same_function

if TYPE_CHECKING:
    from typing import Unpack

    from .client import Client
    from .handles import Handle
    from .schedule_client import Schedule, ScheduleList, Schedules
    from .scheduling import CronOptions, ScheduleOptions

P = ParamSpec("P")
R = TypeVar("R")


class ScheduleMethods:
    """What ``Skedulr`` can do about schedules. Its options are those of ``ScheduleOptions``:

    ``name`` (default: the task's), ``start``, ``end``, ``jitter=0`` (each tick up to so much later,
    never earlier), ``catch_up="latest"`` (of ticks that nobody was there for, the last one runs),
    ``"none"`` or ``"all"`` (each of them, as far back as ``catch_up_window``, an hour),
    ``overlap="allow"``, ``"skip"`` (no run while the one before goes on), ``"queue_one"`` (one
    waits for its end), ``"cancel_previous"``; and for cron lines ``tz="UTC"`` and
    ``seconds="first"|"last"``, where the line has a sixth field.
    """

    #: What ``every`` and ``cron`` declared, by name.
    declared: dict[str, Declaration]

    @property
    def client(self) -> Client:
        """The app's client."""
        raise NotImplementedError

    # In code

    def every(
        self, every: float | timedelta, **given: Unpack[ScheduleOptions]
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """A decorator above ``@task``: run it every so many seconds.

        >>> @skedulr.every(10, overlap="skip")     # doctest: +SKIP
        ... @skedulr.task
        ... def poll() -> None: ...
        """
        # At once, so that a bare @every does not go unnoticed.
        options.seconds("every", every, least=scheduling.SHORTEST_S)

        def declare(task: Task[P, R]) -> Task[P, R]:
            self._check_order(task, "every")
            self._declare(scheduling.recurring(task, every, given))
            return task

        return declare

    def cron(
        self, line: str, **given: Unpack[CronOptions]
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """A decorator above ``@task``: run it when a cron line says.

        >>> @skedulr.cron("0 9 * * mon-fri", tz="Europe/Paris")     # doctest: +SKIP
        ... @skedulr.task
        ... def digest() -> None: ...
        """
        if not isinstance(line, str):
            raise ConfigError(f"@cron takes a line, such as @cron('*/5 * * * *'), not {line!r}")

        def declare(task: Task[P, R]) -> Task[P, R]:
            self._check_order(task, "cron")
            self._declare(scheduling.cron(task, line, given))
            return task

        return declare

    def _check_order(self, task: object, decorator: str) -> None:
        if not isinstance(task, Task):
            raise ConfigError(
                f"@{decorator} goes above @task, on the task that it makes: write @{decorator}(...)"
                f" first and @task below it (got {task!r})"
            )
        if cast(object, task.app) is not self:
            raise ConfigError(
                f"task {task.name!r} belongs to another app: use that app's {decorator}"
            )

    def _declare(self, declared: Declaration) -> None:
        known = self.declared.get(declared.name)
        if known is not None:
            before, now = known.call.task, declared.call.task
            # A module that is imported twice declares the same again, with new tasks.
            if before is now or not same_function(before.function, now.function):
                raise ConfigError(
                    f"two schedules are called {declared.name!r}: give one of them another name="
                )
        self.declared[declared.name] = declared

    # At once

    def schedule_once(self, what: Call[R] | Task[..., R], when: float | datetime) -> Handle[R]:
        """Run a call once, at ``when``: an aware datetime or epoch seconds. Its handle.

        >>> skedulr.schedule_once(send_email.bind("a@example.com"), when)     # doctest: +SKIP
        """
        call = what.bind() if isinstance(what, Task) else what
        if not isinstance(call, Call):
            raise ConfigError(f"{what!r} can not be scheduled: give a task or task.bind(...)")
        options.moment("when", when)
        return call.task.app.submit_call(Call(call.task.using(at=when), call.args, call.kwargs))

    def schedule_recurring(
        self, what: Task[..., Any] | Call[Any], every: float | timedelta,
        **given: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Store a schedule that runs a task or a bound call every so many seconds, from now on.

        One of the same name is replaced, and keeps its counts; one that is the same stays as it
        is. Ticks are whole periods apart, however long a run takes.

        >>> skedulr.schedule_recurring(poll, 10, name="poll")     # doctest: +SKIP
        """
        return self._schedules().put(scheduling.recurring(what, every, given))

    def schedule_cron(
        self, what: Task[..., Any] | Call[Any], line: str, **given: Unpack[CronOptions]
    ) -> Schedule:
        """Store a schedule that runs a task or a bound call when a cron line says.

        >>> skedulr.schedule_cron(digest.bind("all"), "0 9 * * mon-fri", name="digest",
        ...                       tz="Europe/Paris")     # doctest: +SKIP
        """
        return self._schedules().put(scheduling.cron(what, line, given))

    def unschedule(self, name: str) -> bool:
        """Remove a schedule; False where there is none of that name. Runs that were enqueued stay.

        One that code declares comes back with the next deployment of that code.
        """
        return self._schedules().remove(name)

    def schedules(self) -> ScheduleList:
        """All schedules, sorted by name and read as they are needed: iterate, ``len``, by place
        or by name (``skedulr.schedules()["digest"].pause()``)."""
        from .schedule_client import ScheduleList

        return ScheduleList(self._schedules())

    def preview(
        self, line: str, count: int = 5, *, tz: str = "UTC", start: float | datetime | None = None,
        seconds: str | None = None,
    ) -> list[datetime]:
        """The first ``count`` times of a cron line after ``start`` (default: now), as aware
        datetimes in its zone; ConfigError for a line that would be refused."""
        plan = Plan(line=CronLine.parse(line, seconds), zone=check_zone(tz))
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1000:
            raise ConfigError(f"count={count!r} is not usable: 1 to 1,000")
        start_s = time.time() if start is None else options.moment("start", start)
        return [
            datetime.fromtimestamp(tick_ms / 1000, zone_info(plan.zone))
            for tick_ms in plan.upcoming(int(start_s * 1000), 0, count)
        ]

    def _schedules(self) -> Schedules:
        # Here and not above: redis must not be loaded by importing a module with tasks.
        from .schedule_client import Schedules

        return Schedules(self.client)

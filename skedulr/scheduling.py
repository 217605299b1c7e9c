"""What a schedule is, as pure arithmetic: when it ticks, and what becomes of what was missed.

A ``Plan`` says when: every so many milliseconds, or by a cron line in a zone, between a start and
an end. A ``Policy`` says what happens with ticks that nobody fired in time, and with one that comes
while the run before still goes on. ``decide`` puts the two together. Time is an argument, in epoch
milliseconds of Redis time.

An interval has a lattice: all its ticks are whole periods apart, however late each was fired. The
lattice hangs on ``start``, or else on the tick that is stored, so nothing drifts::

    every 10 s, stored tick 12:00:07, now 12:00:31   latest 12:00:27, next 12:00:37
"""

from __future__ import annotations

import inspect
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict, cast

from .cronline import CronLine, check_zone
from .errors import ConfigError, nearest
from .options import FAR_S, moment, seconds
from .tasks import Call, Task

#: What a schedule may be called: with ``@<tick>`` behind it, it is a task's id.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@=+-]{0,169}")
#: The shortest interval, seconds: the precision of the wheel.
SHORTEST_S = 0.01
#: Where ``catch_up="all"`` is not told how far back, seconds.
WINDOW_S = 3600.0
#: A tick this late was not missed, if someone was there when it came due: a stall, a short outage.
LATE_MS = 10_000
#: One that came due before this process began to look, and that nobody else fired in this time.
UNSEEN_MS = 250

CATCH_UP = ("latest", "none", "all")
OVERLAP = ("allow", "skip", "queue_one", "cancel_previous")


class ScheduleOptions(TypedDict, total=False):
    """The keyword options of recurring and cron schedules. Times are seconds or timedelta,
    ``start`` and ``end`` aware datetimes or epoch seconds."""

    name: str
    start: float | datetime
    end: float | datetime
    jitter: float | timedelta
    catch_up: str
    catch_up_window: float | timedelta
    overlap: str


class CronOptions(ScheduleOptions, total=False):
    """Those, and what only a cron line needs: its zone, and where its seconds stand."""

    tz: str
    seconds: str


@dataclass(frozen=True, slots=True)
class Plan:
    """When a schedule ticks. ``line`` or ``every_ms`` is given; see the module for the lattice."""

    every_ms: int = 0
    line: CronLine | None = None
    zone: str = "UTC"
    start_ms: int | None = None
    end_ms: int | None = None
    jitter_ms: int = 0

    @property
    def kind(self) -> str:
        """``"cron"`` or ``"recurring"``."""
        return "recurring" if self.line is None else "cron"

    @property
    def spec(self) -> str:
        """The cron line, or the seconds between two ticks."""
        return f"{self.every_ms / 1000:g}" if self.line is None else self.line.text

    def next_after(self, instant_ms: int, anchor_ms: int) -> int | None:
        """The first tick after an instant; None if there is none. ``anchor_ms`` is any tick of an
        interval, or the time of its making, which the first one follows by a period."""
        if self.start_ms is not None:
            instant_ms = max(instant_ms, self.start_ms - 1)
        if self.line is None:
            origin = anchor_ms if self.start_ms is None else self.start_ms
            tick = origin + ((instant_ms - origin) // self.every_ms + 1) * self.every_ms
        else:
            found = self.line.next_after(instant_ms // 1000, self.zone)
            if found is None:
                return None
            tick = found * 1000
        return None if self.end_ms is not None and tick > self.end_ms else tick

    def upcoming(self, instant_ms: int, anchor_ms: int, count: int) -> list[int]:
        """The first ``count`` ticks after an instant, or as many as there are."""
        found: list[int] = []
        tick = self.next_after(instant_ms, anchor_ms)
        while tick is not None and len(found) < count:
            found.append(tick)
            tick = self.next_after(tick, anchor_ms)
        return found

    def latest(self, tick_ms: int, until_ms: int) -> int:
        """The last tick up to ``until_ms``, given one; by halving, however many lie between."""
        low, high = tick_ms, until_ms
        while high - low > 1:
            middle = (low + high) // 2
            tick = self.next_after(middle, tick_ms)
            if tick is None or tick > until_ms:
                high = middle
            else:
                low = tick
        tick = self.next_after(low, tick_ms)
        return low if tick is None or tick > until_ms else tick

    def fires_at(self, name: str, tick_ms: int) -> int:
        """When a tick is fired: up to ``jitter_ms`` after it, the same for everyone who asks."""
        if not self.jitter_ms:
            return tick_ms
        return tick_ms + zlib.crc32(f"{name}@{tick_ms}".encode()) % (self.jitter_ms + 1)


@dataclass(frozen=True, slots=True)
class Policy:
    """What becomes of missed ticks (``catch_up``, as far back as ``window_ms``; None: any time
    back), and of a tick that comes while the run before goes on (``overlap``)."""

    catch_up: str = "latest"
    window_ms: int | None = None
    overlap: str = "allow"


@dataclass(frozen=True, slots=True)
class Decision:
    """The tick to fire now (None: it is passed over), and the one to store (None: no more)."""

    fire_ms: int | None
    next_ms: int | None


def decide(
    plan: Plan, policy: Policy, *, name: str, tick_ms: int, now_ms: int, watching_since_ms: int,
    held: bool = False,
) -> Decision:
    """What is to be done about a stored tick that is due.

    ``watching_since_ms`` is when this process began to look: what came due before may have been
    missed. ``held`` ticks were not missed, they waited for the run before. With ``"all"`` the next
    tick may be due as well; ask again.

    Nothing here grows with the number of ticks that were missed.
    """
    until_ms = max(tick_ms, now_ms - plan.jitter_ms)
    if policy.catch_up == "all" and not held:
        fire = _inside_window(plan, policy, tick_ms, until_ms, now_ms)
        passed = until_ms if fire is None else fire
        return Decision(fire, plan.next_after(passed, tick_ms))
    latest = plan.latest(tick_ms, until_ms)
    following = plan.next_after(latest, tick_ms)
    if not held and _too_old(plan, policy, name, latest, now_ms, watching_since_ms):
        return Decision(None, following)
    return Decision(latest, following)


def _inside_window(
    plan: Plan, policy: Policy, tick_ms: int, until_ms: int, now_ms: int
) -> int | None:
    first = now_ms - (round(WINDOW_S * 1000) if policy.window_ms is None else policy.window_ms)
    if tick_ms >= first:
        return tick_ms
    fire = plan.next_after(first - 1, tick_ms)
    return None if fire is None or fire > until_ms else fire


def _too_old(
    plan: Plan, policy: Policy, name: str, tick_ms: int, now_ms: int, watching_since_ms: int
) -> bool:
    if policy.window_ms is not None and tick_ms < now_ms - policy.window_ms:
        return True
    if policy.catch_up != "none":
        return False
    due_ms = plan.fires_at(name, tick_ms)
    late_ms = now_ms - due_ms
    return late_ms > LATE_MS or (due_ms < watching_since_ms and late_ms > UNSEEN_MS)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A schedule as the user gave it, checked: not stored anywhere yet."""

    name: str
    call: Call[Any]
    plan: Plan
    policy: Policy

    @property
    def pool(self) -> str:
        """The pool its runs go to."""
        return cast(str, self.call.task.option("pool", "default"))


def recurring(
    what: Task[..., Any] | Call[Any], every: float | timedelta, given: Mapping[str, Any]
) -> Declaration:
    """A schedule every ``every`` seconds; ConfigError for what can not be used."""
    every_s = seconds("every", every, least=SHORTEST_S)
    checked = _check(given, ScheduleOptions)
    return _declare(what, checked, Plan(every_ms=round(every_s * 1000), **_bounds(checked)))


def cron(what: Task[..., Any] | Call[Any], line: str, given: Mapping[str, Any]) -> Declaration:
    """A schedule by a cron line; ConfigError for what can not be used."""
    checked = _check(given, CronOptions)
    plan = Plan(
        line=CronLine.parse(line, checked.get("seconds")),
        zone=check_zone(checked.get("tz", "UTC")), **_bounds(checked),
    )
    return _declare(what, checked, plan)


def check_name(name: Any) -> str:
    """A usable name of a schedule; ConfigError."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"schedule name {name!r} is not usable: name= 1 to 170 of letters, digits and "
            "'_.:@=+-', beginning with a letter or digit"
        )
    return name


def _declare(
    what: Task[..., Any] | Call[Any], given: Mapping[str, Any], plan: Plan
) -> Declaration:
    if plan.start_ms is not None and plan.end_ms is not None and plan.end_ms < plan.start_ms:
        raise ConfigError("end= is before start=: it would never fire")
    if not isinstance(what, (Task, Call)):
        raise ConfigError(
            f"{what!r} can not be scheduled: give a task, or a call that task.bind(...) made"
        )
    call = what if isinstance(what, Call) else what.bind()
    for option in ("id", "at"):
        if option in call.task.own:
            raise ConfigError(f"{option}= belongs to one call, and a schedule makes many")
    catch_up, overlap = given.get("catch_up", "latest"), given.get("overlap", "allow")
    for option, value, choices in (
        ("catch_up", catch_up, CATCH_UP), ("overlap", overlap, OVERLAP)
    ):
        if value not in choices:
            raise ConfigError(
                f"{option}={value!r} is not usable: {', '.join(map(repr, choices))}"
            )
    window = given.get("catch_up_window")
    window_ms = None if window is None else round(seconds("catch_up_window", window) * 1000)
    name = check_name(given.get("name") or call.task.name)
    _check_arguments(name, call)
    return Declaration(name, call, plan, Policy(catch_up, window_ms, overlap))


def _check_arguments(name: str, call: Call[Any]) -> None:
    """A call that its function would not take must not wait for its first tick to fail."""
    function = call.task.function
    if function is None:
        return
    try:
        inspect.signature(function).bind(*call.args, **call.kwargs)
    except TypeError as error:
        raise ConfigError(
            f"schedule {name!r}: {call.task.name} can not be called like this: {error}; "
            f"give its arguments with schedule_recurring or schedule_cron and task.bind(...)"
        ) from None


def _check(given: Mapping[str, Any], known: Any) -> dict[str, Any]:
    names = known.__annotations__
    for name in given:
        if name not in names:
            raise ConfigError(f"unknown option {name!r}{nearest(name, names)}")
    return {name: value for name, value in given.items() if value is not None}


def _bounds(given: Mapping[str, Any]) -> dict[str, Any]:
    start, end, jitter = given.get("start"), given.get("end"), given.get("jitter", 0)
    return {
        "start_ms": None if start is None else round(moment("start", start) * 1000),
        "end_ms": None if end is None else round(moment("end", end) * 1000),
        "jitter_ms": round(min(seconds("jitter", jitter), FAR_S / 1000) * 1000),
    }

"""Schedules as an application sees them: made, listed, paused, resumed, run, removed.

``Schedules`` speaks to Redis through the client's shared connections, ``Schedule`` is one of them
as it was when it was looked at, ``ScheduleList`` all of them, read page by page. What code declares
is not written here: a node's children register it when they boot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .cronline import zone_info
from .errors import ConfigError, DuplicateTask, PayloadError, ScheduleNotFound, StorageUnavailable
from .keys import PoolKeys
from .queries import PoolQueries
from .schedule_records import (
    ENDED,
    ERROR,
    NOBODY,
    PAUSED,
    Definition,
    define,
    read_definition,
)
from .schedule_store import (
    DECLARED_IN_CODE,
    FIRED,
    IN_ORDER,
    NEW,
    TAKEN,
    Directory,
    ScheduleStore,
    Stored,
    place,
)
from .scheduling import Declaration
from .storage import without_priorities

if TYPE_CHECKING:
    from .client import Client
    from .handles import Handle
    from .wire import Wire

T = TypeVar("T")

#: The most schedules one page has.
MOST_ITEMS = 500
#: How often a step is tried again because a tick came between looking and acting.
TRIES = 20


class Schedules:
    """The schedules of a client's namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._directory = Directory(client.space)

    def put(self, declared: Declaration) -> Schedule:
        """Store a schedule, or replace the one of its name; one that is the same stays as it is.

        Raises ConfigError where code declares one of that name, or where it asks for a priority or
        limits in a pool that has none; PayloadError for arguments that can not travel,
        StorageUnavailable.
        """
        pool, definition = define(
            declared, self._client.config.payload_limit, self._client.config.codec
        )
        facts = self._ask(lambda wire: self._put(wire, pool, definition))
        return self.get(declared.name) if facts is None else Schedule(self, pool, definition, facts)

    def _put(self, wire: Wire, pool: str, definition: Definition) -> dict[str, Any] | None:
        """What is known of one that is new; None where it must be read."""
        name = definition.name
        if definition.ranked and self._store(pool).runs_in_order(wire):
            raise ConfigError(without_priorities(pool))
        found, _, _, now = wire.calls([
            self._directory.question(name), self._directory.addition(pool, [name]),
            # The pool is known from now on, as after a submit.
            ("HSETNX", self._client.space.pools, pool, int(time.time() * 1000)), ("TIME",),
        ])
        for other in self._directory.answer(found):
            if other != pool:
                self._leave(wire, other, name, pool)
        placed = place(definition, _ms(now))
        verdict = self._store(pool).put(wire, [placed])
        if verdict == DECLARED_IN_CODE:
            raise _declared(name)
        if verdict != NEW or placed.tick_ms is None:
            return None
        return {"next_due": placed.fires_ms / 1000, "tick_ms": placed.tick_ms}

    def _leave(self, wire: Wire, pool: str, name: str, new_pool: str) -> None:
        """The schedule moves to another pool: take it out of this one first."""
        stored = self._store(pool).get(wire, [name])[0]
        if stored is not None and stored.state.by != NOBODY:
            self._directory.drop(wire, new_pool, [name])
            raise _declared(name)
        self._store(pool).remove(wire, [name])
        self._directory.drop(wire, pool, [name])

    def get(self, name: str) -> Schedule:
        """The schedule of that name; ScheduleNotFound."""
        pool, stored = self._ask(lambda wire: self._find(wire, name))
        return self._schedule(name, pool, stored)

    def remove(self, name: str) -> bool:
        """Remove a schedule; False where there is none of that name."""
        return self._ask(lambda wire: self._remove(wire, name))

    def _remove(self, wire: Wire, name: str) -> bool:
        removed = False
        for pool in self._directory.pools_of(wire, name):
            removed |= self._store(pool).remove(wire, [name])[0]
            self._directory.drop(wire, pool, [name])
        return removed

    def pause(self, name: str) -> Schedule:
        """No more ticks until it is resumed; ScheduleNotFound."""
        def pause(wire: Wire, pool: str, stored: Stored) -> bool:
            if stored.why in (PAUSED, ENDED):
                return True
            return self._store(pool).rest(wire, name, stored.state, PAUSED)

        self._change(name, pause)
        return self.get(name)

    def resume(self, name: str) -> Schedule:
        """Go on with the first tick from now on: those of the pause are not made up.

        Raises ScheduleNotFound, and ConfigError as ``put`` does.
        """
        def resume(wire: Wire, pool: str, stored: Stored) -> bool:
            if not stored.why:
                return True
            definition = read_definition(stored.packed)
            if definition.ranked and self._store(pool).runs_in_order(wire):
                raise ConfigError(without_priorities(pool))
            now_ms = _ms(wire.call("TIME"))
            placed = place(definition, now_ms, stored.state.tick_ms)
            return self._store(pool).resume(
                wire, name, stored.state, placed.tick_ms, placed.fires_ms
            )

        self._change(name, resume)
        return self.get(name)

    def run(self, name: str) -> Handle[Any]:
        """Run it now, beside its ticks; the run's handle.

        Raises ScheduleNotFound, DuplicateTask where its unique key is taken, and ConfigError where
        it asks for a priority or limits in a pool that has none.
        """
        found: list[str] = []

        def run(wire: Wire, pool: str, stored: Stored) -> bool:
            definition = read_definition(stored.packed)
            now_ms = _ms(wire.call("TIME"))
            submission = definition.submission(now_ms, now_ms, self._client.config.codec)
            verdict = self._store(pool).run_now(wire, definition, submission)
            if verdict == TAKEN:
                raise DuplicateTask(f"another run of schedule {name!r} holds its unique key")
            if verdict == IN_ORDER:
                raise ConfigError(without_priorities(pool))
            found.append(f"{pool}/{submission.uid}")
            return verdict == FIRED

        self._change(name, run)
        return self._client.handle(found[-1])

    def page(self, *, limit: int = 50, cursor: str | None = None) -> dict[str, Any]:
        """``{"items": [schedule, ...], "cursor": text or None}``, sorted by name, at most 500."""
        found, following = self.read_page(limit, cursor)
        return {"items": [schedule.info() for schedule in found], "cursor": following}

    def read_page(self, limit: int, cursor: str | None) -> tuple[list[Schedule], str | None]:
        """The schedules of a page, and where the next one begins."""
        if isinstance(limit, bool) or not 1 <= limit <= MOST_ITEMS:
            raise ConfigError(f"limit={limit!r} is not usable: 1 to {MOST_ITEMS}")
        found = self._ask(lambda wire: self._read(
            wire, self._directory.page(wire, cursor or "", limit + 1)
        ))
        return found[:limit], found[limit - 1].name if len(found) > limit else None

    def now_ms(self) -> int:
        """Redis time."""
        return self._ask(lambda wire: _ms(wire.call("TIME")))

    def count(self) -> int:
        """How many there are."""
        return self._ask(self._directory.count)

    def names(self, first: int, count: int) -> list[Schedule]:
        """Those from one place on, sorted by name."""
        return self._ask(lambda wire: self._read(
            wire, self._directory.slice(wire, first, first + count - 1)
        ))

    def runs(self, schedule: Schedule) -> list[dict[str, Any]]:
        """Its last runs that are still known, newest first, as the HTTP interface shows tasks."""
        return self.runs_of([schedule])[0]

    def runs_of(self, schedules: Sequence[Schedule]) -> list[list[dict[str, Any]]]:
        """The same of each of them, in a few round trips a pool."""
        uids: dict[str, list[str]] = {}
        for one in schedules:
            uids.setdefault(one.pool, []).extend(_runs(one))

        def look(wire: Wire) -> dict[tuple[str, str], dict[str, Any]]:
            found = {}
            for pool, theirs in uids.items():
                queries = PoolQueries(PoolKeys(self._client.config.namespace, pool))
                for at in range(0, len(theirs), MOST_ITEMS):
                    for task in queries.tasks(wire, theirs[at:at + MOST_ITEMS]):
                        found[pool, task["uid"]] = task
            return found

        found = self._ask(look)
        return [
            [found[one.pool, uid] for uid in _runs(one) if (one.pool, uid) in found]
            for one in schedules
        ]

    # Inside

    def _read(self, wire: Wire, entries: Sequence[tuple[str, str]]) -> list[Schedule]:
        """The schedules of a page; names whose schedule is gone are left out."""
        by_pool: dict[str, list[str]] = {}
        for name, pool in entries:
            by_pool.setdefault(pool, []).append(name)
        found: dict[tuple[str, str], Stored] = {}
        for pool, names in by_pool.items():
            for name, stored in zip(names, self._store(pool).get(wire, names), strict=True):
                if stored is not None:
                    found[name, pool] = stored
        return [
            self._schedule(name, pool, found[name, pool])
            for name, pool in entries if (name, pool) in found
        ]

    def _schedule(self, name: str, pool: str, stored: Stored) -> Schedule:
        try:
            definition = read_definition(stored.packed)
        except PayloadError as error:
            return Schedule(self, pool, None, {"name": name, "error": str(error)})
        return Schedule(self, pool, definition, _facts(pool, name, stored))

    def _find(self, wire: Wire, name: str) -> tuple[str, Stored]:
        for pool in self._directory.pools_of(wire, name):
            stored = self._store(pool).get(wire, [name])[0]
            if stored is not None:
                return pool, stored
        raise ScheduleNotFound(f"no schedule is called {name!r}")

    def _change(self, name: str, change: Callable[[Wire, str, Stored], bool]) -> None:
        """Look and act until nothing came between the two."""
        def attempt(wire: Wire) -> bool:
            return change(wire, *self._find(wire, name))

        for _ in range(TRIES):
            if self._ask(attempt):
                return
        raise StorageUnavailable(f"schedule {name!r} changes faster than it can be changed")

    def _store(self, pool: str) -> ScheduleStore:
        keys = PoolKeys(self._client.config.namespace, pool)
        return ScheduleStore(keys, self._client.space.control)

    def _ask(self, look: Callable[[Wire], T]) -> T:
        return self._client.ask(look)


class Schedule:
    """One schedule as it was when it was looked at; ``skedulr.schedules()`` gives them.

    Times are epoch seconds or None. ``next_due`` is when it fires next, ``last_due`` the tick that
    its last run stands for and ``last_id`` that run; ``error`` says why it stopped by itself.
    """

    def __init__(
        self, schedules: Schedules, pool: str, definition: Definition | None,
        facts: dict[str, Any],
    ) -> None:
        self._schedules, self._definition, self.pool = schedules, definition, pool
        self.name: str = definition.name if definition else facts["name"]
        self.next_due: float | None = facts.get("next_due")
        self.last_due: float | None = facts.get("last_due")
        self.last_id: str | None = facts.get("last_id")
        self.paused: bool = facts.get("paused", False)
        self.ended: bool = facts.get("ended", False)
        self.error: str | None = facts.get("error")
        #: Whether code declares it, and how many ticks were fired and were not.
        self.declared: bool = facts.get("declared", False)
        self.fired: int = facts.get("fired", 0)
        self.skipped: int = facts.get("skipped", 0)
        #: What follows ``<name>@`` in the uids of the last runs, newest first.
        self.last_runs: tuple[str, ...] = facts.get("runs", ())
        self._tick_ms: int | None = facts.get("tick_ms")

    def __repr__(self) -> str:
        what = self._definition.plan.spec if self._definition else "unreadable"
        return f"<Schedule {self.name} {what}>"

    @property
    def task(self) -> str | None:
        """The name of the task that it runs."""
        return self._definition.task if self._definition else None

    @property
    def kind(self) -> str | None:
        """``"cron"`` or ``"recurring"``."""
        return self._definition.plan.kind if self._definition else None

    @property
    def spec(self) -> str | None:
        """The cron line, or the seconds between two ticks."""
        return self._definition.plan.spec if self._definition else None

    @property
    def tz(self) -> str | None:
        """The zone of a cron line."""
        if self._definition is None or self._definition.plan.line is None:
            return None
        return self._definition.plan.zone

    def info(self) -> dict[str, Any]:
        """The form that the HTTP interface calls "schedule", and what else is known, as a dict."""
        shown: dict[str, Any] = {
            "name": self.name, "task": self.task, "pool": self.pool, "kind": self.kind,
            "spec": self.spec, "tz": self.tz, "next_due": self.next_due,
            "last_due": self.last_due, "last_id": self.last_id, "paused": self.paused,
            "error": self.error, "ended": self.ended, "declared": self.declared,
            "fired": self.fired, "skipped": self.skipped,
        }
        definition = self._definition
        if definition is not None:
            plan, policy = definition.plan, definition.policy
            args, kwargs, options = definition.call()
            shown |= {
                "start": _epoch(plan.start_ms), "end": _epoch(plan.end_ms),
                "jitter": plan.jitter_ms / 1000, "catch_up": policy.catch_up,
                "catch_up_window": _epoch(policy.window_ms), "overlap": policy.overlap,
                "seconds": plan.line.seconds if plan.line else None,
                "args": args, "kwargs": kwargs, "options": options,
            }
        return shown

    def runs(self) -> list[dict[str, Any]]:
        """The last ten runs, newest first, as dicts; those forgotten are left out."""
        return self._schedules.runs(self)

    def preview(self, count: int = 5) -> list[datetime]:
        """The ticks after now, as aware datetimes in the schedule's zone, paused or not."""
        if self._definition is None:
            return []
        plan = self._definition.plan
        now_ms = self._schedules.now_ms()
        anchor_ms = now_ms if self._tick_ms is None else self._tick_ms
        return [
            datetime.fromtimestamp(tick_ms / 1000, zone_info(plan.zone))
            for tick_ms in plan.upcoming(now_ms, anchor_ms, count)
        ]

    def pause(self) -> Schedule:
        """No more ticks until it is resumed; the schedule as it is then."""
        return self._schedules.pause(self.name)

    def resume(self) -> Schedule:
        """Go on from now; ticks of the pause are not made up."""
        return self._schedules.resume(self.name)

    def run(self) -> Handle[Any]:
        """Run it now, beside its ticks."""
        return self._schedules.run(self.name)

    def remove(self) -> bool:
        """Remove it. One that code declares comes back with the next deployment of that code."""
        return self._schedules.remove(self.name)


class ScheduleList(Sequence[Schedule]):
    """All schedules, sorted by name, read from Redis page by page as they are needed.

    ``for one in schedules``, ``schedules[0]``, ``schedules["digest"]``, ``len(schedules)``.
    """

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    def __repr__(self) -> str:
        return f"<{len(self)} schedules>"

    def __len__(self) -> int:
        return self._schedules.count()

    def __iter__(self) -> Iterator[Schedule]:
        first = 0
        while True:
            page = self._schedules.names(first, MOST_ITEMS)
            yield from page
            if len(page) < MOST_ITEMS:
                return
            first += MOST_ITEMS

    def __contains__(self, name: object) -> bool:
        if isinstance(name, Schedule):
            name = name.name
        try:
            return isinstance(name, str) and bool(self._schedules.get(name))
        except ScheduleNotFound:
            return False

    @overload
    def __getitem__(self, which: int | str) -> Schedule: ...

    @overload
    def __getitem__(self, which: slice) -> list[Schedule]: ...

    def __getitem__(self, which: int | str | slice) -> Schedule | list[Schedule]:
        """By place or by name; ScheduleNotFound (a LookupError) or IndexError."""
        if isinstance(which, str):
            return self._schedules.get(which)
        if isinstance(which, slice):
            return [self[at] for at in range(*which.indices(len(self)))]
        at = which + len(self) if which < 0 else which
        found = self._schedules.names(at, 1) if at >= 0 else []
        if not found:
            raise IndexError(f"there is no schedule at place {which}")
        return found[0]


def _facts(pool: str, name: str, stored: Stored) -> dict[str, Any]:
    state = stored.state
    last = state.runs[0] if state.runs else None
    return {
        "next_due": _epoch(stored.fires_ms), "paused": stored.why == PAUSED,
        "ended": stored.why == ENDED,
        "last_due": None if last is None else int(last.partition("+")[0]) / 1000,
        "last_id": None if last is None else f"{pool}/{name}@{last}",
        "error": stored.why[len(ERROR) + 1:] if stored.why.startswith(ERROR) else None,
        "declared": state.by != NOBODY, "fired": state.fired, "skipped": state.skipped,
        "runs": state.runs, "tick_ms": state.tick_ms,
    }


def _declared(name: str) -> ConfigError:
    return ConfigError(
        f"schedule {name!r} is declared in code by @every or @cron: change it there, or take "
        "another name"
    )


def _runs(schedule: Schedule) -> list[str]:
    """The uids of its last runs, newest first."""
    return [f"{schedule.name}@{run}" for run in schedule.last_runs]


def _epoch(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _ms(answer: Any) -> int:
    """Milliseconds from the answer of TIME."""
    return int(answer[0]) * 1000 + int(answer[1]) // 1000

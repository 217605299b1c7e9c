"""The schedules of one pool in Redis: one method per script, and the few plain reads.

Each method may run twice without harm, so whoever gets no answer asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .keys import PoolKeys, SpaceKeys
from .redis_scripts import script
from .schedule_records import NOBODY, Definition, State, read_state
from .store import Submission
from .wire import Runner

#: The most ticks one call fires.
PAGE = 100
#: The most schedules one call stores.
MOST_PUT = 500
#: The most due ticks one look gives, and the most states one step of a scan does.
MOST_DUE = 500

FIRED, SKIPPED, HELD, TAKEN, KNOWN, PASSED, EARLY, PAUSED_POOL, LATE, IN_ORDER = "fshukpnxlo"
NEW, CHANGED, SAME, DECLARED_IN_CODE = "ncsd"
#: Verdicts of ``declare``: all is well, or register (again).
ALIVE = "k"

_OVERLAP = {"allow": "a", "skip": "s", "queue_one": "q", "cancel_previous": "c"}


class Placed(NamedTuple):
    """A schedule with its first tick (None: it has none) and when that fires."""

    definition: Definition
    tick_ms: int | None
    fires_ms: int


class Firing(NamedTuple):
    """A due tick and what becomes of it: ``run`` is its task, or None to pass it over."""

    definition: Definition
    tick_ms: int
    next_ms: int | None
    next_fires_ms: int
    run: Submission | None


class Due(NamedTuple):
    """A schedule whose tick is due, when it was, and its state."""

    name: str
    due_ms: int
    state: State


class Look(NamedTuple):
    """What is due now, and when the first tick that is not yet will be. ``unreadable`` names what
    is due and has no state that can be read: it stays so, until the doctor removes it."""

    now_ms: int
    paused: bool
    next_due_ms: int | None
    due: list[Due]
    unreadable: tuple[str, ...] = ()


class Stored(NamedTuple):
    """A schedule as Redis holds it; ``why`` is the reason for which it rests, or ''."""

    packed: bytes
    state: State
    why: str
    fires_ms: int | None


class ScheduleStore:
    """The schedules of a pool. ``control`` is the channel on which its children are told."""

    def __init__(self, keys: PoolKeys, control: str) -> None:
        self.keys, self._control = keys, control
        self._told = f"schedules {keys.pool}"

    def _run(self, wire: Runner, name: str, *args: Any) -> Any:
        called = script(name)
        return wire.run(called, self.keys.of(called.keys), list(args))

    def put(self, wire: Runner, placed: Sequence[Placed], by: str = NOBODY) -> str:
        """Store up to MOST_PUT schedules; a verdict letter each."""
        args: list[Any] = [self._control, self._told, by]
        for definition, tick_ms, fires_ms in placed:
            args += [definition.name, definition.revision, definition.packed,
                     _tick(tick_ms), fires_ms]
        verdicts: bytes = self._run(wire, "schedule_put", *args)[1]
        return verdicts.decode()

    def look(self, wire: Runner, offset: int = 0, limit: int = MOST_DUE) -> Look:
        """A page of what is due."""
        now_ms, paused, ahead_ms, *rows = self._run(wire, "schedule_due", offset, limit)
        due, unreadable = [], []
        for raw, tick_ms, text in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
            found = _read(raw, text)
            if found is None:
                unreadable.append(raw.decode("utf-8", "backslashreplace"))
            else:
                due.append(Due(found[0], tick_ms, found[1]))
        next_due_ms = None if ahead_ms < 0 else ahead_ms
        return Look(now_ms, bool(paused), next_due_ms, due, tuple(unreadable))

    def fire(
        self, wire: Runner, firings: Iterable[Firing], entry: bytes, again: str = ""
    ) -> str:
        """Fire or pass over up to PAGE due ticks; a verdict letter each. ``entry`` is the journal
        entry of runs that are cancelled, ``again`` goes behind ids that were used already."""
        args: list[Any] = [self._control, entry, again]
        for definition, tick_ms, next_ms, next_fires_ms, run in firings:
            args += [
                definition.name, definition.revision, tick_ms, _tick(next_ms), next_fires_ms,
                _OVERLAP[definition.policy.overlap],
            ]
            args += ["", "", ""] if run is None else run[:3]
        verdicts: bytes = self._run(wire, "fire", *args)[1]
        return verdicts.decode()

    def run_now(self, wire: Runner, definition: Definition, run: Submission) -> str:
        """Enqueue a run beside the ticks: FIRED, KNOWN, TAKEN, LATE or IN_ORDER."""
        verdict: bytes = self._run(
            wire, "schedule_run", definition.name, definition.revision, *run[:3]
        )[1]
        return verdict.decode()

    def runs_in_order(self, wire: Runner) -> bool:
        """Whether the pool has no priorities and no limits: its ready work is a stream."""
        return bool(wire.call("HGET", self.keys.meta, "transport") == b"streams")

    def rest(self, wire: Runner, name: str, state: State, why: str) -> bool:
        """Stop a schedule, if its state is still this one."""
        return self._move(wire, name, state, "rest", why)

    def retire(self, wire: Runner, name: str, state: State, silent_ms: int) -> bool:
        """Stop a schedule whose code was not heard for so long, if it does not rest already."""
        return self._move(wire, name, state, "retire", silent_ms)

    def resume(
        self, wire: Runner, name: str, state: State, tick_ms: int | None, fires_ms: int
    ) -> bool:
        """Have a schedule go on with this tick, if its state is still this one."""
        return self._move(wire, name, state, "resume", _tick(tick_ms), fires_ms)

    def replan(
        self, wire: Runner, name: str, state: State, tick_ms: int | None, fires_ms: int
    ) -> bool:
        """The same for one that does not rest."""
        return self._move(wire, name, state, "replan", _tick(tick_ms), fires_ms)

    def _move(self, wire: Runner, name: str, state: State, what: str, *args: Any) -> bool:
        return bool(self._run(
            wire, "schedule_move", self._control, self._told, name, state.revision,
            _tick(state.tick_ms), what, *args,
        )[1])

    def remove(
        self, wire: Runner, names: Sequence[str], by: str = "", silent_ms: int = 0
    ) -> list[bool]:
        """Remove schedules, or those of them that ``by`` declares, which was not heard for so
        long; which were."""
        verdicts: bytes = self._run(wire, "schedule_remove", by, silent_ms, *names)[1]
        return [letter == "r" for letter in verdicts.decode()]

    def declare(
        self, wire: Runner, set: str, silent_ms: int, what: str = "look"
    ) -> tuple[int, str, dict[str, int]]:
        """Redis ms, a verdict about this set of declarations, and the silent ones with when they
        were heard last. ``what`` is "registering" before it is stored, "registered" after."""
        now_ms, verdict, *gone = self._run(
            wire, "schedule_declare", set, what, silent_ms
        )
        return now_ms, verdict.decode(), {
            gone[i].decode(): gone[i + 1] for i in range(0, len(gone), 2)
        }

    def forget(self, wire: Runner, set: str) -> None:
        """A silent set declares nothing any more."""
        wire.call("ZREM", self.keys.declared, set)
        wire.call("ZREM", self.keys.declarers, set)

    # Reading

    def get(self, wire: Runner, names: Sequence[str]) -> list[Stored | None]:
        """Schedules as they are stored, in order; up to MOST_DUE. None for one that is not there,
        or whose state can not be read."""
        if not names:
            return []
        k = self.keys
        definitions = wire.call("HMGET", k.schedules, *names)
        states = wire.call("HMGET", k.planned, *names)
        reasons = wire.call("HMGET", k.resting, *names)
        times = wire.call("ZMSCORE", k.ticks, *names)
        return [
            None if packed is None or state is None else Stored(
                packed, state[1], (why or b"").decode("utf-8", "replace"),
                None if fires is None else int(float(fires)),
            )
            for packed, state, why, fires in zip(
                definitions, (_read(b"", text) for text in states), reasons, times, strict=True
            )
        ]

    def definitions(self, wire: Runner, names: Sequence[str]) -> list[bytes | None]:
        """The packed definitions of up to MOST_DUE schedules."""
        found: list[bytes | None] = wire.call("HMGET", self.keys.schedules, *names)
        return found

    def is_whole(self, wire: Runner) -> bool:
        """Whether every schedule has a next tick or a reason to rest."""
        k = self.keys
        return bool(
            wire.call("HLEN", k.schedules)
            == wire.call("ZCARD", k.ticks) + wire.call("HLEN", k.resting)
        )

    def scan(self, wire: Runner, cursor: int) -> tuple[int, list[tuple[str, State]]]:
        """A part of all states that can be read, and where to go on (0: that was all)."""
        follow, flat = wire.call("HSCAN", self.keys.planned, cursor, "COUNT", MOST_DUE)
        found = (_read(*pair) for pair in zip(flat[::2], flat[1::2], strict=True))
        return int(follow), [one for one in found if one is not None]


def _read(name: bytes, text: bytes | None) -> tuple[str, State] | None:
    """A schedule's name and its state; None where one of them can not be read, which must not keep
    the others from ticking."""
    try:
        return None if not text else (name.decode(), read_state(text))
    except ValueError:
        return None


def place(definition: Definition, now_ms: int, anchor_ms: int | None = None) -> Placed:
    """A schedule with its first tick from now on; ``anchor_ms`` is any tick it had before."""
    plan = definition.plan
    tick_ms = plan.next_after(now_ms, now_ms if anchor_ms is None else anchor_ms)
    return Placed(
        definition, tick_ms, 0 if tick_ms is None else plan.fires_at(definition.name, tick_ms)
    )


class Directory:
    """Which pool a schedule is in, for a whole namespace: sorted by name.

    ``question``, ``answer`` and ``addition`` are for callers that send several commands at once.
    """

    def __init__(self, space: SpaceKeys) -> None:
        self._key = space.schedules

    def question(self, name: str) -> tuple[Any, ...]:
        """The command that asks for the pools of a name."""
        return ("ZRANGEBYLEX", self._key, f"[{name} ", f"({name}!", "LIMIT", 0, 10)

    def answer(self, found: Iterable[bytes]) -> list[str]:
        """The pools from what ``question`` brought."""
        return [member.decode().partition(" ")[2] for member in found]

    def addition(self, pool: str, names: Iterable[str]) -> tuple[Any, ...]:
        """The command that notes where schedules are; at least one."""
        return ("ZADD", self._key, *(part for name in names for part in (0, f"{name} {pool}")))

    def pools_of(self, wire: Runner, name: str) -> list[str]:
        """The pools that have a schedule of that name: none or one, more only for a moment."""
        return self.answer(wire.call(*self.question(name)))

    def drop(self, wire: Runner, pool: str, names: Iterable[str]) -> None:
        """Forget that these schedules are in ``pool``."""
        members = [f"{name} {pool}" for name in names]
        if members:
            wire.call("ZREM", self._key, *members)

    def count(self, wire: Runner) -> int:
        """How many there are."""
        return int(wire.call("ZCARD", self._key))

    def page(self, wire: Runner, after: str, limit: int) -> list[tuple[str, str]]:
        """(name, pool) of the schedules behind the name ``after``, sorted."""
        start = f"({after}!" if after else "-"
        found = wire.call("ZRANGEBYLEX", self._key, start, "+", "LIMIT", 0, limit)
        return [_entry(member) for member in found]

    def slice(self, wire: Runner, first: int, last: int) -> list[tuple[str, str]]:
        """(name, pool) of the schedules from one place to another, sorted by name."""
        return [_entry(member) for member in wire.call("ZRANGE", self._key, first, last)]


def _entry(member: bytes) -> tuple[str, str]:
    name, _, pool = member.decode().partition(" ")
    return name, pool


def _tick(tick_ms: int | None) -> str | int:
    return "-" if tick_ms is None else tick_ms

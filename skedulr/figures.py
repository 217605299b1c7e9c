"""Figures: what the scripts counted of runs, read from Redis.

- ``Recent``: the last quarter of an hour of a pool by minute, for rates and predictions.
- ``series``: tallies of a pool or of one task's name over time, by minutes, tens or days.
- ``totals``: what was counted of each name since ever; never goes down.

A minute that is over is added to all that is longer by a sweep (fold.lua), at some moment within
the next minutes; until then it is "open", and whoever reads adds it. Nothing here scans: names are
at most some ninety a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .errors import ConfigError
from .keys import PoolKeys
from .statistics import Tally, read_failures, sliding_rate, utilisation

#: Minutes that are looked at for rates, beside the one under way.
RECENT = 15
#: Over so many of them the service time is taken; all of them, where nothing ran in these.
SERVICE = 5
#: Spans by letter: seconds of one, and for how many seconds they are kept.
SPANS = {"m": (60, 8 * 3600), "t": (600, 3 * 86400), "d": (86400, 366 * 86400)}
#: The most points of a series.
MOST_POINTS = 1_500
#: How often a look is taken again because a minute was added meanwhile.
TRIES = 5


class Asker(Protocol):
    """What reading needs of a connection."""

    def call(self, *command: Any) -> Any: ...

    def calls(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Known:
    """What has to be known of a pool before its figures can be asked for: the minutes that are
    open, as their text, and the names that are counted."""

    open: bytes = b"0"
    names: tuple[bytes, ...] = ()

    @property
    def minutes(self) -> list[int]:
        """The open minutes."""
        return [int(part) for part in self.open.split()[1:]]

    @staticmethod
    def questions(keys: PoolKeys) -> list[tuple[Any, ...]]:
        """The commands whose answers ``read`` takes."""
        return [("HGET", keys.history, "open"), ("HKEYS", keys.stats)]

    @classmethod
    def read(cls, open: bytes | None, fields: Iterable[bytes]) -> Known:
        """From the answers."""
        return cls(open or b"0", tuple(one[1:] for one in fields if one.startswith(b" ")))

    def fields_of(self, minute: int) -> list[bytes]:
        """The fields of an open minute: what was submitted, then each name's tally."""
        head = b"m%d" % minute
        return [head + b"+", *(head + b" " + name for name in self.names)]

    def tally_of(self, texts: Sequence[bytes | None]) -> Tally:
        """The pool's tally of an open minute from the values of those fields."""
        total = Tally.sum(map(Tally.read, filter(None, texts[1:])))
        total.submitted = int(texts[0] or 0)
        return total


@dataclass(slots=True)
class Recent:
    """The last minutes of a pool: ``minutes[0]`` is under way, since ``elapsed_s`` seconds."""

    elapsed_s: float = 0.0
    minutes: list[Tally] = field(default_factory=lambda: [Tally() for _ in range(RECENT + 1)])

    @staticmethod
    def fields(known: Known, now_s: float) -> list[bytes]:
        """The fields of ``history`` whose values ``read`` takes."""
        minute = int(now_s // 60)
        fields = [b"m%d" % (minute - ago) for ago in range(RECENT + 1)]
        for one in known.minutes:
            fields += known.fields_of(one)
        return fields

    @classmethod
    def read(cls, known: Known, texts: Sequence[bytes | None], now_s: float) -> Recent:
        """From the values of those fields."""
        minute, size = int(now_s // 60), 1 + len(known.names)
        recent = cls(now_s % 60)
        for ago in range(RECENT + 1):
            recent.minutes[ago] = Tally.read(texts[ago])
        for n, one in enumerate(known.minutes):
            if 0 <= minute - one <= RECENT:
                at = RECENT + 1 + n * size
                recent.minutes[minute - one] = known.tally_of(texts[at:at + size])
        return recent

    def rate(self, minutes: int, what: str = "ended") -> float | None:
        """Per second over the last ``minutes`` (1 to 15): of tasks that "ended" or were
        "submitted"; see ``statistics.sliding_rate``."""
        counts = [getattr(one, what) for one in self.minutes[:minutes + 1]]
        return sliding_rate(counts, self.elapsed_s)

    def summed(self, minutes: int = SERVICE) -> Tally:
        """The minute under way and so many before it, in one."""
        return Tally.sum(self.minutes[:minutes + 1])

    @property
    def service_s(self) -> float | None:
        """The mean time of a run, seconds, over the last minutes; None where nothing ran."""
        for minutes in (SERVICE, RECENT):
            mean_ms = self.summed(minutes).ran.mean_ms
            if mean_ms is not None:
                return mean_ms / 1000
        return None

    def utilisation(self, workers: int, minutes: int = SERVICE) -> float | None:
        """The share of their time that ``workers`` spent in runs, 0 to 1."""
        busy_s = self.summed(minutes).ran.sum_ms / 1000
        return utilisation(busy_s, workers, self.elapsed_s + 60 * minutes)


def recent(wire: Asker, keys: PoolKeys, now_s: float) -> Recent:
    """The last quarter of an hour of a pool, in two round trips."""
    known = Known.read(*wire.calls(Known.questions(keys)))
    texts = wire.call("HMGET", keys.history, *Recent.fields(known, now_s))
    return Recent.read(known, texts, now_s)


# Since ever


@dataclass(slots=True)
class Totals:
    """What was counted of a pool since ever: by state (and "failed", "crashed"), and by name."""

    states: dict[str, int]
    names: dict[str, Tally]


def totals(wire: Asker, keys: PoolKeys) -> Totals:
    """What was counted since ever, the open minutes with it; all of one moment."""
    known = Known.read(*wire.calls(Known.questions(keys)))
    for _ in range(TRIES):
        fields = [one for minute in known.minutes for one in known.fields_of(minute)]
        flat, now_open, *texts = _together(wire, [
            ("HGETALL", keys.stats), ("HGET", keys.history, "open"),
            *([("HMGET", keys.history, *fields)] if fields else []),
        ])
        held = _pairs(flat)
        if (now_open or b"0") == known.open:
            break
        # A minute was added to the totals, or has begun.
        known = Known.read(now_open, held)
    names = {
        name.decode("utf-8", "replace"): Tally.read(held.get(b" " + name)) for name in known.names
    }
    size = 1 + len(known.names)
    for n in range(len(known.minutes)):
        for at, name in enumerate(names, n * size + 1):
            names[name].add(Tally.read(texts[0][at]))
    states = {
        name.decode(): int(count) for name, count in held.items()
        if not name.startswith(b" ") and count.isdigit()
    }
    return Totals(states, names)


def _together(wire: Asker, commands: list[tuple[Any, ...]]) -> list[Any]:
    answers: list[Any] = wire.calls([("MULTI",), *commands, ("EXEC",)])[-1]
    return answers


def _pairs(flat: Any) -> dict[bytes, bytes]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


def rows(pool: str, names: dict[str, Tally]) -> list[dict[str, Any]]:
    """The "names" of the statistics: runs, failures and times of each task."""
    return [
        {
            "pool": pool, "name": name, "runs": tally.runs, "failed": tally.failed,
            "mean_ms": tally.ran.mean_ms, "p50_ms": tally.ran.quantile(0.5),
            "p95_ms": tally.ran.quantile(0.95), "p99_ms": tally.ran.quantile(0.99),
        }
        for name, tally in sorted(names.items())
    ]


# Over time


@dataclass(frozen=True, slots=True)
class Plan:
    """Which spans make up the points of a series: ``kind`` of span, ``per`` spans a point."""

    kind: str
    per: int
    points: int

    @property
    def span_s(self) -> int:
        """Seconds of a span."""
        return SPANS[self.kind][0]

    @property
    def step_s(self) -> int:
        """Seconds of a point."""
        return self.span_s * self.per


def plan(period_s: float, step_s: float | None = None) -> Plan:
    """How to show the last ``period_s`` in points of ``step_s`` seconds (None: what suits it).

    Minutes are kept for 8 hours, tens of minutes for 3 days, days for a year; so a step is a
    multiple of 60, 600 or 86,400 seconds, as the period is. ConfigError for anything else.

    >>> plan(3600), plan(86400)
    (Plan(kind='m', per=1, points=60), Plan(kind='t', per=1, points=144))
    """
    if not _is_number(period_s) or not 60 <= period_s <= SPANS["d"][1]:
        raise ConfigError(f"period={period_s!r}: seconds, from 60 to {SPANS['d'][1]:,}")
    for kind, (span_s, kept_s) in SPANS.items():
        if period_s > kept_s:
            continue
        wanted = span_s if step_s is None else step_s
        if not _is_number(wanted) or wanted < span_s or wanted % span_s:
            raise ConfigError(
                f"step={step_s!r}: for a period of {period_s:g} s a multiple of {span_s} s"
            )
        points = -(-period_s // wanted)
        return Plan(kind, int(wanted // span_s), int(points))
    raise AssertionError(period_s)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def series(
    wire: Asker, namespace: str, pools: Iterable[str], how: Plan, now_s: float,
    name: str | None = None,
) -> list[Tally | None]:
    """A tally for each point, the oldest first; None before anything was counted.

    The last point ends now; it began at a whole multiple of the step. With ``name`` only the runs
    of that task, whose ``submitted`` is 0.
    """
    last = int(now_s // how.step_s)
    points: list[Tally | None] = [None] * how.points
    for keys in (PoolKeys(namespace, pool) for pool in pools):
        spans, first = _spans(wire, keys, how, now_s, name)
        for at in range(how.points):
            begins = (last - how.points + 1 + at) * how.per
            known = range(max(begins, first), begins + how.per)
            if not known:
                continue
            point = points[at] or Tally()
            for span in known:
                if span in spans:
                    point.add(spans[span])
            points[at] = point
    return points


def _spans(
    wire: Asker, keys: PoolKeys, how: Plan, now_s: float, name: str | None
) -> tuple[dict[int, Tally], int]:
    """The spans of a pool that anything was counted in, and the first one since it is counted."""
    known = Known.read(*wire.calls(Known.questions(keys)))
    last = int(now_s // how.step_s) * how.per + how.per - 1
    wanted = range(last - how.points * how.per + 1, last + 1)
    behind = b"" if name is None else b" " + name.encode()
    for _ in range(TRIES):
        fields = [b"open", how.kind.encode() + b" kept"]
        fields += [b"%s%d%s" % (how.kind.encode(), span, behind) for span in wanted]
        for minute in known.minutes:
            fields += known.fields_of(minute) if name is None else [b"m%d%s" % (minute, behind)]
        now_open, kept, *texts = wire.call("HMGET", keys.history, *fields)
        if (now_open or b"0") == known.open:
            break
        known = Known.read(*wire.calls(Known.questions(keys)))
    spans = {
        span: Tally.read(text) for span, text in zip(wanted, texts, strict=False) if text
    }
    minutes = SPANS[how.kind][0] // 60
    size = 1 if name is not None else 1 + len(known.names)
    for n, minute in enumerate(known.minutes):
        part = texts[len(wanted) + n * size:len(wanted) + (n + 1) * size]
        tally = known.tally_of(part) if name is None else Tally.read(part[0])
        if how.kind == "m":
            spans[minute] = tally
        else:
            spans.setdefault(minute // minutes, Tally()).add(tally)
    begun = [int(part) for part in (kept or b"").split()]
    begun += [minute // minutes for minute in known.minutes]
    return spans, min(begun, default=wanted.stop)


def failures(
    wire: Asker, namespace: str, names: Sequence[tuple[str, str]], now_s: float, minutes: int = 60,
) -> list[list[tuple[int, int]]]:
    """Of tasks, by pool and name, (runs, failed attempts) of each of the last minutes, the oldest
    first. One round trip, and no histogram is read."""
    last = int(now_s // 60)
    spans = [b"m%d " % minute for minute in range(last - minutes + 1, last + 1)]
    texts = wire.calls([
        # Under the same field whether the minute is open or was added to what is longer.
        ("HMGET", PoolKeys(namespace, pool).history, *(span + name.encode() for span in spans))
        for pool, name in names
    ]) if names else []
    return [[read_failures(text) for text in one] for one in texts]


#: What is shown of a point, by name: from its tally and its seconds.
_LINES: dict[str, Callable[[Tally, float], float | None]] = {
    "submitted": lambda one, seconds: one.submitted / seconds,
    "throughput": lambda one, seconds: one.ended / seconds,
    "succeeded": lambda one, seconds: one.succeeded / seconds,
    "failed": lambda one, seconds: one.failed / seconds,
    "dead": lambda one, seconds: one.dead / seconds,
    "wait_mean_ms": lambda one, seconds: one.waited.mean_ms,
    "wait_p50_ms": lambda one, seconds: one.waited.quantile(0.5),
    "wait_p95_ms": lambda one, seconds: one.waited.quantile(0.95),
    "run_mean_ms": lambda one, seconds: one.ran.mean_ms,
    "run_p50_ms": lambda one, seconds: one.ran.quantile(0.5),
    "run_p95_ms": lambda one, seconds: one.ran.quantile(0.95),
}


def lines(points: Sequence[Tally | None], how: Plan, now_s: float) -> dict[str, Any]:
    """A series as lists of one length: ``t`` (when each point ends, epoch seconds), and what
    ``_LINES`` names: rates in tasks/s, times in ms, None where nothing is known."""
    begin_s = int(now_s // how.step_s) * how.step_s
    ends = [begin_s - (how.points - 2 - at) * how.step_s for at in range(how.points)]
    ends[-1] = round(now_s)
    # The point under way is divided by what has passed of it.
    seconds = [float(how.step_s)] * (how.points - 1) + [max(1.0, now_s - begin_s)]
    shown: dict[str, Any] = {"t": ends, "step": how.step_s}
    for line, of in _LINES.items():
        shown[line] = [
            None if one is None else of(one, taken)
            for one, taken in zip(points, seconds, strict=True)
        ]
    return shown

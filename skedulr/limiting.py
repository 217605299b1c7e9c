"""Limits: how many tasks with the same key run at once, or start in a time; and turns between keys.

- ``Limit``: what ``limit=`` takes, checked where it is written.
- ``placing_of``: the limits of a call as the options of submit.lua say them (see limit_text.lua).
- ``rows`` and ``from_rows``: limits as plain values, for the directory of tasks.

Pure. A limit is known by its name and kind within a pool: tasks that name the same one share it.
"""

from __future__ import annotations

import math
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from string import Formatter
from typing import Any, NamedTuple, Never
from urllib.parse import quote, unquote

from .errors import ConfigError, nearest

#: The most limits of one task.
MOST_LIMITS = 4
#: Without a burst of its own a rate lets this many seconds' worth start at once, if that is more
#: than one task: nobody asks Redis a thousand times a second.
BURST_S = 0.05
#: The longest time a rate is for: ten years, seconds.
LONGEST_S = 315_360_000.0

CONCURRENCY, RATE = "c", "r"
_OPTIONS = ("concurrency", "rate", "per", "burst", "key", "name", "fair")


@dataclass(frozen=True, init=False)
class Limit:
    """At most so many tasks of the same key at once, or so many starts in a time.

    ``concurrency`` is how many may run at once, in all processes of the pool together. ``rate`` is
    how many may start in ``per`` seconds (or a timedelta; 1), ``burst`` how many of them at once
    after a pause (1, or what 50 ms bring where that is more): never more than ``rate + burst`` in
    any ``per``. One of the two; a list of limits has both. ``key`` may format arguments, and each
    key has the limit to itself; without it the limit is one for all. ``name`` (else the task's) is
    what ``set_limit`` knows it by; tasks of a pool that give the same name share it. ``fair``: the
    keys take turns, so that one with many tasks does not hold up the others; this needs a ``key``,
    and no other limit. Raises ConfigError.

    >>> Limit(concurrency=3, key="{customer_id}")
    Limit(concurrency=3, key='{customer_id}')
    >>> Limit(rate=10, per=60, key="{host}").burst
    1
    """

    concurrency: int | None
    rate: float | None
    per: float
    burst: int
    key: str | None
    name: str | None
    fair: bool

    def __init__(
        self, *, concurrency: int | None = None, rate: float | None = None,
        per: float | timedelta = 1.0, burst: int | None = None, key: str | None = None,
        name: str | None = None, fair: bool = False, **unknown: Never,
    ) -> None:
        for one in unknown:
            raise ConfigError(f"Limit has no option {one!r}{nearest(one, _OPTIONS)}")
        if concurrency is not None and rate is not None:
            raise ConfigError(
                "a limit has concurrency= or rate=; a list of two limits has both"
            )
        if concurrency is None and rate is None and not fair:
            raise ConfigError("a limit needs concurrency=, rate= or fair=True")
        put = object.__setattr__
        most = None if concurrency is None else _whole("concurrency", concurrency)
        put(self, "concurrency", most)
        put(self, "rate", None if rate is None else _number("rate", rate, 1e6))
        if rate is None and (burst is not None or per != 1.0):
            raise ConfigError("per= and burst= belong to a limit with rate=")
        put(self, "per", _number("per", per, LONGEST_S))
        put(self, "burst", 1)
        if self.rate is not None:
            least = math.ceil(self.rate / self.per * BURST_S)
            put(self, "burst", max(1, least) if burst is None else _whole("burst", burst))
        put(self, "key", _text("key", key))
        put(self, "name", check_limit_name(name))
        if not isinstance(fair, bool):
            raise ConfigError(f"fair={fair!r} is not usable: True or False")
        if fair and not key:
            raise ConfigError("fair=True needs key=: whose turns are they?")
        put(self, "fair", fair)

    def __repr__(self) -> str:
        defaults = {"concurrency": None, "rate": None, "per": 1.0, "key": None, "name": None,
                    "fair": False}
        given = [
            f"{name}={value!r}" for name, default in defaults.items()
            if (value := getattr(self, name)) != default
        ]
        return f"Limit({', '.join(given)})"

    @property
    def kind(self) -> str | None:
        """CONCURRENCY, RATE, or None where it only takes turns."""
        if self.concurrency is not None:
            return CONCURRENCY
        return RATE if self.rate is not None else None

    def definition(self) -> str:
        """As Redis holds it: ``"c:3"``, ``"r:10:60000:1"``."""
        if self.rate is None:
            return f"{CONCURRENCY}:{self.concurrency}"
        return f"{RATE}:{self.rate:.12g}:{max(1, round(self.per * 1000))}:{self.burst}"


class Definition(NamedTuple):
    """What a limit is, as it was declared or set: one of ``concurrency`` and ``rate``."""

    concurrency: int | None
    rate: float | None
    per_s: float | None
    burst: int | None


class Known(NamedTuple):
    """A limit as a pool knows it. ``given`` is what was set in place of what is ``declared``."""

    id: str
    name: str
    declared: Definition
    given: Definition | None

    @property
    def holds(self) -> Definition:
        """What holds now."""
        return self.given or self.declared


def check_limit_name(name: Any) -> str | None:
    """A usable name of a limit, or None: printable text of 1 to 200 characters."""
    if name is None:
        return None
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable():
        raise ConfigError(f"limit name {name!r} is not usable: 1 to 200 printable characters")
    return name


def check_limits(option: str, value: Any) -> tuple[Limit, ...]:
    """What ``limit=`` was given, as a tuple; raises ConfigError."""
    if value is None:
        return ()
    limits = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    # From JSON: what Limit takes, by name.
    limits = tuple(Limit(**one) if isinstance(one, dict) else one for one in limits)
    if len(limits) > MOST_LIMITS:
        raise ConfigError(f"{option}= has {len(limits)} limits; at most {MOST_LIMITS} fit a task")
    for one in limits:
        if not isinstance(one, Limit):
            raise ConfigError(
                f"{option}={one!r} is not usable: Limit(concurrency=3) or Limit(rate=10, per=60), "
                "or a list of them"
            )
    named = [(one.kind, one.name) for one in limits if one.kind is not None]
    if len(set(named)) < len(named):
        raise ConfigError(
            f"{option}= has two limits of a kind and a name: give them names, Limit(name=...)"
        )
    if sum(one.fair for one in limits) > 1:
        raise ConfigError(f"{option}= has fair=True twice: a task takes turns by one key")
    return limits


@lru_cache(maxsize=1024)
def limit_id(kind: str, name: str) -> str:
    """What Redis calls a limit within a pool."""
    return kind + _digest(name, 6)


def names_in(key: str | None) -> set[str]:
    """The arguments that a key formats, by name or position: ``"{to.host}/{0}"`` -> to, 0. None of
    a key that can not be formatted."""
    found: set[str] = set()
    count = 0
    try:
        parts = list(Formatter().parse(key or ""))
    except ValueError:
        return found
    for _, name, _, _ in parts:
        if name is not None:
            root = re.split(r"[.[]", name, maxsplit=1)[0]
            found.add(root or str(count))
            count += not root
    return found


def placing_of(limits: Iterable[Limit], task: str, fill: Callable[[str], str]) -> str:
    """What a submit says of the limits of a call; ``fill`` formats a key. "" for no limits."""
    entries, keys, fair = [], [], ""
    for one in limits:
        filled = None if one.key is None else fill(one.key)
        if one.kind is not None:
            name = one.name or task
            keys.append(f"{limit_id(one.kind, name)}.{_key_digest(filled)}")
            entries.append(f"{keys[-1]}|{one.definition()}|{quote(name, safe='')}")
        if one.fair:
            fair = f"f:{_key_digest(filled)}"
    said = [f"l:{_set_of(keys)}/{','.join(entries)}"] if entries else []
    return " ".join([*said, fair] if fair else said)


def shown(limits: Iterable[Limit], task: str, fill: Callable[[str], str],
          hidden: Sequence[str] = ()) -> list[list[str | None]]:
    """For readers: limit key, name and formatted key of each. A key that names a redacted argument
    is not shown."""
    rows: list[list[str | None]] = []
    for one in limits:
        if one.kind is not None:
            name, key = one.name or task, one.key
            filled = None if key is None else fill(key)
            secret = key is not None and any("{" + arg in key for arg in hidden)
            rows.append([
                f"{limit_id(one.kind, name)}.{_key_digest(filled)}", name,
                None if secret else filled,
            ])
    return rows


def read_known(id: bytes, text: bytes) -> Known | None:
    """A limit from what a pool's ``limits`` holds; None for what this release can not read."""
    try:
        declared, given, name = text.decode().split(" ")
        return Known(id.decode(), unquote(name), _definition(declared),
                     None if given == "-" else _definition(given))
    except (ValueError, UnicodeDecodeError):
        return None


def rows(limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """Limits as plain values."""
    return [
        {name: getattr(one, name) for name in _OPTIONS if one.rate is not None
         or name not in ("per", "burst")}
        for one in limits
    ]


def from_rows(values: Any) -> tuple[Limit, ...]:
    """What ``rows`` made; ConfigError or TypeError for what it did not make."""
    return check_limits("limit", [Limit(**one) for one in values])


def _definition(text: str) -> Definition:
    kind, *numbers = text.split(":")
    if kind == CONCURRENCY:
        return Definition(int(numbers[0]), None, None, None)
    rate, per_ms, burst = numbers
    return Definition(None, float(rate), int(per_ms) / 1000, int(burst))


def _set_of(keys: Sequence[str]) -> str:
    """All tasks of the same keys are one set; that of a single key is called as the key is."""
    return keys[0] if len(keys) == 1 else "=" + _digest(" ".join(sorted(keys)), 12)


def _key_digest(filled: str | None) -> str:
    return "-" if filled is None else _digest(filled, 9)


def _digest(text: str, size: int) -> str:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise ConfigError(f"{name}={value!r} is not usable: a whole number from 1 to 1,000,000")
    return value


def _number(name: str, value: Any, most: float) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or not 0 < value <= most:
        raise ConfigError(f"{name}={value!r} is not usable: a number above 0, at most {most:,.0f}")
    return float(value)


def _text(name: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(f"{name}={value!r} is not usable: a text")
    return value

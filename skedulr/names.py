"""The directory of tasks: what children publish of theirs, for producers without the code.

Redis holds one HASH a namespace: a task's name -> its pool, the defaults that decide how a call is
submitted, when that was published, its parameters, and its retry strategy, for the master: it
speaks for a killed child and has no task's code. Whatever else a task is set to, its worker knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import limiting, payload, retries, signatures
from .errors import ConfigError, PayloadError
from .signatures import Parameter, parameters_of
from .tasks import Task

#: Defaults of a task that a submit of its calls needs.
PRODUCER_OPTIONS = (
    "priority", "delay", "at", "expires", "headers", "tags", "key", "unique", "on_duplicate",
    "redact", "limit",
)
#: An answer is good for this long, seconds; that there is none, for less: a child may just boot.
FRESH_S, FRESH_NOTHING_S = 30.0, 2.0
#: Beyond this many names the oldest answers are dropped: a producer may ask for any name.
MOST_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class Published:
    """What is known of a task by its name. ``at_ms`` is when a child said so, Redis ms; ``retry``
    is its strategy as ``retries.to_wire`` writes it: None for the default one, and for a class of
    your own, which can not travel."""

    pool: str
    defaults: dict[str, Any]
    at_ms: int
    parameters: tuple[Parameter, ...] = field(default=(), compare=False)
    retry: list[Any] | None = field(default=None, compare=False)


def published(task: Task[Any, Any], now_ms: int = 0) -> Published:
    """What a child that has the task's code says of it."""
    said = {name: task.option(name) for name in PRODUCER_OPTIONS}
    defaults = {name: value for name, value in said.items() if value is not None}
    pool = str(task.option("pool", "default"))
    strategy = task.option("retry")
    retry = None if strategy is None else retries.to_wire(strategy)
    return Published(pool, defaults, now_ms, parameters_of(task.function), retry)


def pack(said: Published) -> bytes:
    """An entry of the directory."""
    parameters, defaults = signatures.rows(said.parameters), said.defaults
    if "limit" in defaults:
        defaults = {**defaults, "limit": limiting.rows(defaults["limit"])}
    return payload.encode([said.pool, defaults, said.at_ms, parameters, said.retry])


def unpack(entry: bytes | None) -> Published | None:
    """An entry, read; None where there is none, or none that this release can read."""
    if entry is None:
        return None
    try:
        pool, defaults, at_ms, *more = payload.decode(entry)
    except (PayloadError, TypeError, ValueError):
        return None
    known = {name: defaults[name] for name in PRODUCER_OPTIONS if name in defaults}
    if "limit" in known:
        try:
            known["limit"] = limiting.from_rows(known["limit"])
        except (ConfigError, TypeError):
            # A later release's limits: the pool's own children know them, this producer does not.
            del known["limit"]
    parameters = signatures.read(more[0]) if more else ()
    # An entry of an earlier release ends before the strategy.
    return Published(pool, known, at_ms, parameters, more[1] if len(more) > 1 else None)


class Directory:
    """The directory as one process sees it. ``look(name)`` asks Redis for an entry.

    Answers are kept for 30 s. Where Redis can not be asked, an older answer still counts.
    """

    def __init__(
        self, look: Callable[[str], bytes | None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._look, self._monotonic = look, monotonic
        self._known: dict[str, tuple[float, Published | None]] = {}

    def find(self, name: str) -> Published | None:
        """What is published of a task, or None. Raises what ``look`` raises, where nothing was
        ever heard of the name."""
        now_s = self._monotonic()
        until_s, found = self._known.get(name, (0.0, None))
        if now_s < until_s:
            return found
        try:
            found = unpack(self._look(name))
        except Exception:
            if found is None:
                raise
            return found
        if len(self._known) >= MOST_NAMES:
            self._known.pop(next(iter(self._known)), None)
        self._known[name] = (now_s + (FRESH_NOTHING_S if found is None else FRESH_S), found)
        return found

"""How long to wait before a failed task runs again, and when to stop trying.

- ``LinearRetry`` and ``ExponentialBackoff``: the two strategies there are; ``RetryStrategy`` is
  what one of your own has to be.
- ``delay_after``: the one place that decides whether there is a next attempt and when. A strategy
  that fails costs a longer wait, never the task.
- ``to_wire`` and ``from_wire``: a strategy as plain values, so that it can travel with a task.

Attempts count from 1. ``max_retries=3`` allows four starts: after the attempts 1, 2 and 3 there is
another one. Delays are seconds.
"""

from __future__ import annotations

import logging
import math
import random as random_
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from skedulr.errors import ConfigError

_log = logging.getLogger(__name__)

#: Where a number of seconds is asked for, a timedelta will do.
Seconds: TypeAlias = float | timedelta

#: No delay is longer (ten years), whatever a strategy says: due times must stay exact integers.
LONGEST_S = 315_360_000.0

#: What is waited after a strategy that failed, if it has no cap.
FALLBACK_S = 3600.0


class RetryStrategy(Protocol):
    """What ``retry=`` takes. It may have ``max_attempts`` (retries, or None) and ``cap`` as well.

    >>> class Hourly:
    ...     def next_delay(self, attempt, error):
    ...         return 3600
    """

    def next_delay(self, attempt: int, error: BaseException | None) -> float:
        """Seconds to wait after ``attempt`` (1 is the first) ended with ``error``."""
        ...


@dataclass(frozen=True, init=False)
class LinearRetry:
    """Wait ``base`` seconds after the first attempt, twice that after the second, and so on.

    ``base`` and ``cap`` are seconds or timedelta, from 0 to ten years; no delay is longer than
    ``cap`` (None: ten years). ``max_attempts`` is the most retries (None: what the task says; where
    both say, the smaller). Raises ``ConfigError``.

    >>> retry = LinearRetry(5, cap=12)
    >>> [retry.next_delay(attempt, None) for attempt in (1, 2, 3)]
    [5.0, 10.0, 12.0]
    """

    base: float
    cap: float | None
    max_attempts: int | None

    def __init__(
        self, base: Seconds, *, cap: Seconds | None = None, max_attempts: int | None = None
    ) -> None:
        put = object.__setattr__
        put(self, "base", _seconds("base", base))
        put(self, "cap", None if cap is None else _seconds("cap", cap))
        put(self, "max_attempts", _count("max_attempts", max_attempts))

    def next_delay(self, attempt: int, error: BaseException | None = None) -> float:
        """Seconds to wait after ``attempt`` (1 is the first); ``error`` makes no difference."""
        # Bounded before it multiplies: an int beyond 1e308 can not become a float.
        times = min(max(attempt, 1), 2**53)
        return min(self.base * times, _ceiling(self.cap))


@dataclass(frozen=True, init=False)
class ExponentialBackoff:
    """Wait ``base`` seconds after the first attempt and ``factor`` times longer after each other.

    ``base`` and ``cap`` are seconds or timedelta, from 0 to ten years; no delay is longer than
    ``cap`` (None: ten years). ``jitter`` (0 to 1) spreads tasks that failed together: a delay is
    drawn evenly between ``1 - jitter`` times and once its full length, so never above ``cap``
    and never below ``base * (1 - jitter)`` (or ``cap * (1 - jitter)`` if that is less).
    ``max_attempts`` is the most retries (None: what the task says; where both say, the smaller).
    ``random`` gives numbers from 0 to 1; it does not travel and does not count in comparisons.
    Raises ``ConfigError``.

    >>> retry = ExponentialBackoff(base=0.5, cap=3, jitter=0)
    >>> [retry.next_delay(attempt, None) for attempt in (1, 2, 3, 4, 2000)]
    [0.5, 1.0, 2.0, 3.0, 3.0]
    """

    base: float
    cap: float | None
    jitter: float
    factor: float
    max_attempts: int | None
    random: Callable[[], float] = field(repr=False, compare=False)

    def __init__(
        self,
        base: Seconds = 1.0,
        cap: Seconds | None = 3600.0,
        jitter: float = 0.1,
        factor: float = 2.0,
        *,
        max_attempts: int | None = None,
        random: Callable[[], float] = random_.random,
    ) -> None:
        put = object.__setattr__
        put(self, "base", _seconds("base", base))
        put(self, "cap", None if cap is None else _seconds("cap", cap))
        put(self, "jitter", _number("jitter", jitter, 0, 1))
        put(self, "factor", _number("factor", factor, 1, 1_000_000))
        put(self, "max_attempts", _count("max_attempts", max_attempts))
        put(self, "random", random)

    def next_delay(self, attempt: int, error: BaseException | None = None) -> float:
        """Seconds to wait after ``attempt`` (1 is the first); ``error`` makes no difference."""
        full = min(self.base * self._growth(attempt), _ceiling(self.cap))
        return full * (1.0 - self.jitter * self.random())

    def _growth(self, attempt: int) -> float:
        """``factor ** (attempt - 1)``, with the exponent bounded so that it stays finite.

        The bound is far beyond any cap, and the product of base and growth may be infinite: a
        float does that without an error, and the cap makes it finite again.
        """
        steps = max(attempt, 1) - 1
        if self.factor == 1.0 or steps == 0:
            return 1.0
        return float(self.factor ** min(steps, int(_LARGEST_EXPONENT / math.log(self.factor))))


#: e to this power is a float; e to the power of 710 is an OverflowError.
_LARGEST_EXPONENT = 700.0


def _ceiling(cap: float | None) -> float:
    return LONGEST_S if cap is None else cap


# --- deciding -------------------------------------------------------------------------------------


def delay_after(
    strategy: RetryStrategy, attempt: int, error: BaseException | None, max_retries: int | None
) -> float | None:
    """Seconds until the next attempt, or None if ``attempt`` was the last.

    It was if there have been ``max_retries`` retries (None: no bound), or the strategy's own
    ``max_attempts``. An error in the strategy, or a delay that is none, means waiting as long as
    its cap (an hour without one), and a log line.
    """
    for most in (max_retries, _own_limit(strategy)):
        if most is not None and attempt > most:
            return None
    try:
        delay = strategy.next_delay(attempt, error)
        return min(_delay_s(delay), LONGEST_S)
    except BaseException as problem:  # also its sys.exit(): it would take a worker along
        fallback = _fallback_s(strategy)
        _log.warning(
            "retry strategy %s failed after attempt %d (%s: %s); waiting %.0f s instead",
            type(strategy).__qualname__,
            attempt,
            type(problem).__name__,
            _text(problem),
            fallback,
        )
        return fallback


def _own_limit(strategy: RetryStrategy) -> int | None:
    try:
        return _count("max_attempts", getattr(strategy, "max_attempts", None))
    except Exception:
        _log.warning(
            "max_attempts of retry strategy %s is no count and was ignored",
            type(strategy).__qualname__,
        )
        return None


def _fallback_s(strategy: RetryStrategy) -> float:
    try:
        cap = getattr(strategy, "cap", None)
        return FALLBACK_S if cap is None else min(_delay_s(cap), LONGEST_S)
    except Exception:
        return FALLBACK_S


def _delay_s(delay: Any) -> float:
    """The delay as a float; raises ValueError unless it is a finite number from 0 up."""
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    if isinstance(delay, bool) or not isinstance(delay, (int, float)):
        raise ValueError(f"a delay of type {type(delay).__name__}")
    # Before float(): a huge int has none. Written so that NaN fails, too.
    if not 0 <= delay < math.inf:
        raise ValueError(f"a delay of {delay} s")
    return float(min(delay, LONGEST_S))


def _text(problem: BaseException) -> str:
    try:
        return str(problem)[:200]
    except Exception:
        return "no message"


# --- travelling -----------------------------------------------------------------------------------


def to_wire(strategy: RetryStrategy) -> list[Any] | None:
    """The strategy as a list of plain values, or None for one that is not built in.

    A class of your own is known only where it is defined: then the task's registration there
    supplies it. So it is for a subclass of the two.

    >>> to_wire(LinearRetry(5))
    ['linear', 5.0, None, None]
    """
    if type(strategy) is LinearRetry:
        return ["linear", strategy.base, strategy.cap, strategy.max_attempts]
    if type(strategy) is ExponentialBackoff:
        return [
            "exponential",
            strategy.base,
            strategy.cap,
            strategy.jitter,
            strategy.factor,
            strategy.max_attempts,
        ]
    return None


def from_wire(wire: Any) -> RetryStrategy | None:
    """The strategy that ``to_wire`` wrote; None for None, and for what this release can not read.

    A task whose strategy can not be read is still a task: the caller takes the registered one.
    """
    try:
        match wire:
            case ["linear", base, cap, most]:
                return LinearRetry(base, cap=cap, max_attempts=most)
            case ["exponential", base, cap, jitter, factor, most]:
                return ExponentialBackoff(base, cap, jitter, factor, max_attempts=most)
    except ConfigError as problem:
        _log.warning("a retry strategy that came with a task was ignored: %s", problem)
    return None


# --- checking -------------------------------------------------------------------------------------


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return _number(name, value, 0, LONGEST_S, " seconds or a timedelta")


def _number(name: str, value: Any, low: float, high: float, unit: str = "") -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise ConfigError(f"{name}={value!r} must be a number from {low:,} to {high:,.0f}{unit}")
    return float(value)


def _count(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{name}={value!r} must be a whole number from 0 up, or None")
    return value


#: For tasks that name no strategy: 1 s, 2 s, 4 s, up to ten minutes, each up to a fifth shorter.
DEFAULT = ExponentialBackoff(base=1, cap=600, jitter=0.2)

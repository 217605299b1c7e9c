"""What can be said of a task or of one call: each option's check and its normal form.

``check`` takes what a user wrote and gives it back normalised (times as float seconds, names as
tuples), or raises ConfigError naming the option, the value, and what would do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from .dependencies import check_parents, short_id
from .errors import ConfigError, nearest
from .keys import UID, check_name
from .limiting import Limit, check_limits
from .retries import RetryStrategy, to_wire

#: Redis and Lua count milliseconds exactly only below 2^53, and a delay is added to the time.
FAR_S = 2**52 / 1000
#: The end of the year 9999, epoch seconds. Later ones are milliseconds by mistake.
LAST_MOMENT_S = 253_402_300_800


class Options(TypedDict, total=False):
    """The keyword options of ``using``; ``@task`` takes them too, save ``id``."""

    pool: str
    priority: int
    delay: float | timedelta
    at: float | datetime
    timeout: float | timedelta | None
    max_retries: int | None
    retry: RetryStrategy
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    never_retry_on: type[BaseException] | tuple[type[BaseException], ...]
    expires: float | timedelta
    id: str
    key: str
    unique: Literal["until_done", "until_start"] | float | timedelta
    on_duplicate: Literal["raise", "return", "replace"]
    limit: Limit | tuple[Limit, ...] | list[Limit] | None
    keep_result: float | timedelta | bool
    headers: Mapping[str, Any]
    tags: tuple[str, ...] | list[str]
    redact: tuple[str, ...] | list[str]
    on_commit: bool | str
    depends_on: Any
    on_success: Any
    on_failure: Any
    after: Any
    allow_missing: bool


def check(given: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of ``given`` checked and normalised; raises ConfigError."""
    checked = {}
    for name, value in given.items():
        checker = _CHECKS.get(name)
        if checker is None:
            raise ConfigError(f"unknown option {name!r}{_meant(name)}")
        checked[name] = checker(name, value)
    if "delay" in checked and "at" in checked:
        raise ConfigError("delay= and at= say the same thing twice: give one of them")
    return checked


#: What other queues call our options.
_ELSEWHERE = {
    "queue": "pool", "queue_name": "pool", "countdown": "delay", "eta": "at",
    "time_limit": "timeout", "soft_time_limit": "timeout", "job_timeout": "timeout",
    "retries": "max_retries", "retry_delay": "retry", "retry_backoff": "retry",
    "autoretry_for": "retry_on", "throws": "never_retry_on", "max_age": "expires",
    "result_ttl": "keep_result", "job_id": "id", "task_id": "id",
}


def _meant(name: str) -> str:
    if name in _ELSEWHERE:
        return f" (here it is {_ELSEWHERE[name]!r})"
    return nearest(name, _CHECKS) or f" (known: {', '.join(sorted(_CHECKS))})"


def extras_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of a call's own options has to travel to the worker in the envelope."""
    extras = {name: given[name] for name in _TRAVELLING if name in given}
    if "_workflow" in given:
        extras["workflow"] = given["_workflow"]
        if given.get("_fill"):
            extras["fill"] = [[at, short_id(id, given["_workflow"])] for at, id in given["_fill"]]
        if "_part" in given:
            extras["part"] = given["_part"]
    if "retry" in given:
        extras["retry"] = to_wire(given["retry"])
        if extras["retry"] is None:
            raise ConfigError(
                f"retry={given['retry']!r} can not travel in a message: "
                "give a strategy of your own on @task, where the worker finds it"
            )
    return extras


#: Options of a call that the worker needs and that it would not know from the task itself.
_TRAVELLING = ("timeout", "max_retries", "expires", "keep_result", "headers", "tags")


def seconds(name: str, value: Any, *, least: float = 0.0, above: bool = False) -> float:
    """``value`` (seconds or timedelta) as float seconds, at least (or above) ``least``."""
    form = f"a number of seconds or a timedelta, {'above' if above else 'at least'} {least:g}"
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name}={value!r} is not usable: {form}")
    if not math.isfinite(value) or value < least or (above and value == least) or value > FAR_S:
        raise ConfigError(f"{name}={value!r} is not usable: {form}")
    return float(value)


def _delay(name: str, value: Any) -> float:
    return seconds(name, value)


def _positive(name: str, value: Any) -> float:
    return seconds(name, value, above=True)


def _timeout(name: str, value: Any) -> float | None:
    return None if value is None else _positive(name, value)


def moment(name: str, value: Any) -> float:
    """``value`` (an aware datetime or epoch seconds) as epoch seconds."""
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise ConfigError(
                f"{name}={value!r} has no time zone: give an aware datetime, "
                "for example datetime.now(timezone.utc) + timedelta(minutes=5)"
            )
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name}={value!r} is not usable: an aware datetime or epoch seconds")
    if not 0 <= value <= LAST_MOMENT_S:
        raise ConfigError(f"{name}={value!r} is out of range: epoch seconds, not milliseconds")
    return float(value)


def _pool(name: str, value: Any) -> str:
    return check_name("pool", value)


def _whole(least: int, most: int) -> Callable[[str, Any], int]:
    def whole(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(
                f"{name}={value!r} is not usable: a whole number from {least} to {most:,}"
            )
        return value

    return whole


def _max_retries(name: str, value: Any) -> int | None:
    return None if value is None else _whole(0, 2**31 - 1)(name, value)


def _retry(name: str, value: Any) -> Any:
    if not callable(getattr(value, "next_delay", None)):
        raise ConfigError(
            f"{name}={value!r} is no retry strategy: LinearRetry(...), ExponentialBackoff(...) "
            "or an object with next_delay(attempt, error)"
        )
    return value


def _errors(name: str, value: Any) -> tuple[type[BaseException], ...]:
    kinds = value if isinstance(value, tuple) else (value,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ConfigError(
                f"{name}={value!r} is not usable: an exception class, or a tuple of them"
            )
    return kinds


def _id(name: str, value: Any) -> str:
    if not isinstance(value, str) or not UID.fullmatch(value):
        raise ConfigError(
            f"{name}={value!r} is not usable: 1 to 200 of letters, digits and '_.:@=+-', "
            "beginning with a letter or digit"
        )
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name}={value!r} is not usable: a text")
    return value


def _keep_result(name: str, value: Any) -> float | bool:
    return False if value is False else _positive(name, value)


def _headers(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{name}={value!r} is not usable: a dict with text keys")
    return dict(value)


def _tags(name: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(
        isinstance(tag, str) and tag for tag in value
    ):
        raise ConfigError(f"{name}={value!r} is not usable: a list of texts")
    # Of a set always in the same order: a repeated submit must make the same envelope.
    return sorted(value) if isinstance(value, (set, frozenset)) else list(value)


def _unique(name: str, value: Any) -> str | float:
    if value in ("until_done", "until_start"):
        return str(value)
    if isinstance(value, str):
        raise ConfigError(
            f"{name}={value!r} is not usable: 'until_done', 'until_start' or a window in seconds"
        )
    return _positive(name, value)


def _on_duplicate(name: str, value: Any) -> str:
    choices = ("raise", "return", "replace")
    if value not in choices:
        raise ConfigError(f"{name}={value!r} is not usable{nearest(str(value), choices)}")
    return str(value)


def _on_commit(name: str, value: Any) -> bool | str:
    if not isinstance(value, (bool, str)) or value == "":
        raise ConfigError(f"{name}={value!r} is not usable: a bool, or a database's alias")
    return value


def _allow_missing(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r} is not usable: True or False")
    return value


#: Options that only make sense for one call.
OF_A_CALL = ("id", "depends_on", "on_success", "on_failure", "after", "allow_missing")

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "pool": _pool,
    "priority": _whole(-100, 100),
    "delay": _delay,
    "at": moment,
    "timeout": _timeout,
    "max_retries": _max_retries,
    "retry": _retry,
    "retry_on": _errors,
    "never_retry_on": _errors,
    "expires": _positive,
    "id": _id,
    "key": _text,
    "unique": _unique,
    "on_duplicate": _on_duplicate,
    "limit": check_limits,
    "keep_result": _keep_result,
    "headers": _headers,
    "tags": _tags,
    "redact": _tags,
    "on_commit": _on_commit,
    "depends_on": check_parents,
    "on_success": check_parents,
    "on_failure": check_parents,
    "after": check_parents,
    "allow_missing": _allow_missing,
}

"""Every error Skedulr raises, in one tree: what the caller can do decides the class.

``TaskTimeout`` and ``TaskCancelled`` interrupt a handler. They derive from ``BaseException`` so
that a handler's ``except Exception`` does not swallow them, and they never reach a producer.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class SkedulrError(Exception):
    """The root of all errors that Skedulr raises to its callers."""

    def __reduce__(self) -> Any:
        # Exceptions are copied by calling their class with the message alone, which would fail in
        # process pools for those that carry more.
        return _revive, (type(self), self.args, self.__dict__)


class ConfigError(SkedulrError):
    """A setting, flag, pool spec or option that can not be used; says which and what would do."""


class PayloadError(SkedulrError):
    """An argument or result that would not come back equal; names the path to the value."""


class PayloadTooLarge(PayloadError):
    """The encoded arguments or result are over the limit; names the size and the limit."""


class DuplicateTask(SkedulrError):
    """The id (or unique key) is taken by another task. ``id`` is the task that holds it."""

    def __init__(self, message: str, id: str | None = None) -> None:
        super().__init__(message)
        self.id = id


class QueueFull(SkedulrError):
    """The pool holds as many waiting tasks as its capacity allows."""


class UnknownTask(SkedulrError):
    """No task is registered under that name here."""


class UnknownPool(SkedulrError):
    """No node serves a pool of that name."""


class TaskNotFound(SkedulrError):
    """No task with that id is known: never submitted, or its record was trimmed."""


class ScheduleNotFound(SkedulrError, LookupError):
    """No schedule of that name is known."""


class TaskFailed(SkedulrError):
    """The task ended otherwise than ``succeeded``.

    ``state`` is the final state, ``type`` the handler's exception class name or None,
    ``message`` its text.
    """

    def __init__(self, id: str, state: str, type: str | None, message: str) -> None:
        why = f"{type}: {message}" if type else message
        super().__init__(f"task {id} is {state}" + (f": {why}" if why else ""))
        self.id, self.state, self.type, self.message = id, state, type, message


class ResultTimeout(SkedulrError):
    """The task had not ended when the time given to wait was over."""


class BulkError(SkedulrError):
    """A bulk submit stopped half way: ``submitted`` are stored, ``index`` is the next call."""

    def __init__(self, message: str, submitted: list[object], index: int) -> None:
        super().__init__(message)
        self.submitted, self.index = submitted, index


class StorageUnavailable(SkedulrError):
    """Redis did not answer, or refused, within the time allowed.

    ``maybe_submitted`` is False when the call certainly changed nothing, True when a request was
    sent and its reply never came: then the task may have been stored.
    """

    def __init__(self, message: str, maybe_submitted: bool = False) -> None:
        super().__init__(message)
        self.maybe_submitted = maybe_submitted


class Retry(SkedulrError):
    """Raised by a handler: try again, after ``delay`` seconds or by the task's own strategy."""

    def __init__(self, message: str = "", delay: float | None = None) -> None:
        super().__init__(message or "retry asked for by the handler")
        self.delay = delay


class Reject(SkedulrError):
    """Raised by a handler: this task can never succeed; to the dead-letter queue at once."""

    def __init__(self, reason: str = "rejected by the handler") -> None:
        super().__init__(reason)
        self.reason = reason


class TaskTimeout(BaseException):
    """Raised inside a handler that ran past its ``timeout``."""


class TaskCancelled(BaseException):
    """Raised inside a handler whose task was cancelled, or whose claim was lost."""


def _revive(kind: type[SkedulrError], args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: ``" (did you mean 'x'?)"``, or all known ones when few.

    >>> nearest("prioritty", ["pool", "priority"])
    " (did you mean 'priority'?)"
    """
    names = sorted(str(one) for one in known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f" (did you mean '{close[0]}'?)"
    return f" (known: {', '.join(names)})" if 0 < len(names) <= 12 else ""

"""Problems: what goes wrong in a request, as status, code and one line of text."""

from __future__ import annotations

import re

from ..errors import (
    ConfigError,
    DuplicateTask,
    PayloadError,
    PayloadTooLarge,
    QueueFull,
    ScheduleNotFound,
    SkedulrError,
    StorageUnavailable,
    TaskNotFound,
    UnknownPool,
    UnknownTask,
)


class Problem(Exception):
    """An answer other than success: HTTP status, a code for programs, a message for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


#: The first that fits decides.
_STATUSES: tuple[tuple[type[SkedulrError], int], ...] = (
    (PayloadTooLarge, 413), (PayloadError, 400), (TaskNotFound, 404),
    (ScheduleNotFound, 404), (UnknownPool, 404), (UnknownTask, 404), (DuplicateTask, 409),
    (QueueFull, 503), (StorageUnavailable, 503), (ConfigError, 400),
)


def problem_of(error: SkedulrError) -> Problem:
    """What an error of the library means to whoever asked."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    return Problem(status, _code(type(error)), str(error))


def _code(kind: type[SkedulrError]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()

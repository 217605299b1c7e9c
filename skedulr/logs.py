"""Logs: Skedulr's own lines, and the running task as fields on anybody's.

Skedulr logs below the logger ``skedulr`` (``skedulr.master``, ``skedulr.pool.<name>``,
``skedulr.task``) and leaves the root logger to the application. ``skedulr-master`` gives that one
logger a handler to stderr; a library user gets no handler at all.

A handler of your own knows the task through a filter::

    import skedulr.logs

    handler = logging.StreamHandler()
    handler.addFilter(skedulr.logs.TaskFilter())
    handler.setFormatter(logging.Formatter("%(task_id)s %(attempt)s %(message)s"))
    logging.getLogger().addHandler(handler)

or ready-made: ``logging.getLogger().addHandler(skedulr.logs.make_handler(as_json=True))``.
Control characters are escaped by both formatters here, so that what a task logs of its arguments
can neither forge a line nor colour a terminal.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import IO, Any

from .context import running_context

#: The fields that ``TaskFilter`` sets.
TASK_FIELDS = ("task_id", "attempt", "pool", "task")

#: What every record has; everything else was given by ``extra=``.
_STANDARD = frozenset((
    *vars(logging.makeLogRecord({})), "message", "asctime", "taskName", *TASK_FIELDS,
))
#: Control characters, and the three by which a terminal or viewer breaks lines.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_BUT_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class TaskFilter(logging.Filter):
    """Gives every record ``task_id``, ``attempt``, ``pool`` and ``task`` (its name) of the task
    that logs it; None outside of a task. What ``extra=`` set under these names stays.

    For a handler: filters of a logger do not see the records of loggers below it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True: nothing is kept back."""
        context = running_context()
        fields = vars(record)
        if context is None:
            for name in TASK_FIELDS:
                fields.setdefault(name, None)
        else:
            fields.setdefault("task_id", context.id)
            fields.setdefault("attempt", context.attempt)
            fields.setdefault("pool", context.pool)
            fields.setdefault("task", context.name)
        return True


class LineFormatter(logging.Formatter):
    """Time, level, logger, message, the task's id where there is one; a traceback, or the ``stack``
    that ``extra=`` gave, on lines below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The whole text of a record."""
        text = super().format(record)
        stack = getattr(record, "stack", None)
        return f"{text}\n{escape(str(stack).rstrip(), lines=True)}" if stack else text

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without control characters."""
        line = super().formatMessage(record)
        task_id = getattr(record, "task_id", None)
        return escape(f"{line} [{task_id} #{record.attempt}]" if task_id else line)  # type: ignore[attr-defined]

    def formatException(self, ei: Any) -> str:
        """A traceback keeps its lines."""
        return escape(super().formatException(ei), lines=True)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time`` (UTC), ``level``, ``logger``, ``message``, the task's
    fields, what ``extra=`` gave, and ``exception``, a traceback as text."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON, in ASCII."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z", "level": record.levelname.lower(),
            "logger": record.name, "message": record.getMessage(),
        }
        fields = vars(record)
        entry |= {name: fields[name] for name in TASK_FIELDS if fields.get(name) is not None}
        entry |= {name: value for name, value in fields.items() if name not in _STANDARD}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            entry["stack"] = record.stack_info
        return json.dumps(entry, default=_shown)


def make_handler(*, as_json: bool = False, stream: IO[str] | None = None) -> logging.Handler:
    """A handler to ``stream`` (stderr) with the task's fields, as lines or as JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    handler.addFilter(TaskFilter())
    return handler


def set_up(level: str, *, as_json: bool = False) -> None:
    """What ``skedulr-master`` does: Skedulr's lines to stderr; the root logger is left alone."""
    logger = logging.getLogger("skedulr")
    logger.handlers = [make_handler(as_json=as_json)]
    logger.setLevel(level.upper())
    logger.propagate = False


def escape(text: str, *, lines: bool = False) -> str:
    """``text`` with control characters written out; with ``lines``, line ends and tabs stay.

    >>> escape("one\\nline \\x1b[31m")
    'one\\\\nline \\\\x1b[31m'
    """
    pattern = _CONTROL_BUT_LINES if lines else _CONTROL
    return pattern.sub(lambda found: repr(found[0])[1:-1], text)


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"

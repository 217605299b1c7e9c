"""Skedulr: background tasks, delays and schedules for Python on gevent, backed by Redis.

Importing this package patches, starts and opens nothing, and loads neither gevent nor redis. The
names below are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .app import Skedulr
    from .app import default as _default
    from .context import current_task, report_progress, task_id
    from .errors import (
        BulkError,
        ConfigError,
        DuplicateTask,
        PayloadError,
        PayloadTooLarge,
        QueueFull,
        Reject,
        ResultTimeout,
        Retry,
        ScheduleNotFound,
        SkedulrError,
        StorageUnavailable,
        TaskCancelled,
        TaskFailed,
        TaskNotFound,
        TaskTimeout,
        UnknownPool,
        UnknownTask,
    )
    from .handles import Handle
    from .limiting import Limit
    from .middleware import Logging, OpenTelemetry, Recovery
    from .retries import ExponentialBackoff, LinearRetry
    from .schedule_client import Schedule
    from .tasks import Call, Chain, Task, previous
    from .workflows import Step, Workflow

    as_completed = _default.as_completed
    before_submit = _default.before_submit
    cancel = _default.cancel
    configure = _default.configure
    cron = _default.cron
    dashboard = _default.dashboard
    every = _default.every
    get = _default.get
    limits = _default.limits
    on = _default.on
    on_long_queue = _default.on_long_queue
    pause = _default.pause
    preview = _default.preview
    purge = _default.purge
    remote = _default.remote
    reset_limit = _default.reset_limit
    resubmit = _default.resubmit
    resume = _default.resume
    scale_pool = _default.scale_pool
    schedule_cron = _default.schedule_cron
    schedule_once = _default.schedule_once
    schedule_recurring = _default.schedule_recurring
    schedules = _default.schedules
    set_limit = _default.set_limit
    stats = _default.stats
    history = _default.history
    submit = _default.submit
    submit_iter = _default.submit_iter
    submit_many = _default.submit_many
    task = _default.task
    unschedule = _default.unschedule
    use = _default.use
    wait = _default.wait
    workflow = _default.workflow

__all__ = [
    "task", "remote", "submit", "submit_many", "submit_iter", "get", "cancel", "resubmit", "wait",
    "as_completed", "stats", "history", "pause", "resume", "scale_pool", "purge", "workflow",
    "set_limit", "reset_limit", "limits",
    "schedule_once", "schedule_recurring", "schedule_cron", "every", "cron", "unschedule",
    "schedules", "preview",
    "use", "on", "on_long_queue", "before_submit", "configure", "dashboard",
    "Skedulr", "Task", "Call", "Chain", "Handle", "Schedule", "Workflow", "Step", "previous",
    "current_task", "task_id", "report_progress",
    "LinearRetry", "ExponentialBackoff", "Retry", "Reject", "Limit",
    "Logging", "Recovery", "OpenTelemetry",
    "SkedulrError", "ConfigError", "PayloadError", "PayloadTooLarge", "DuplicateTask", "QueueFull",
    "UnknownTask", "UnknownPool", "TaskNotFound", "ScheduleNotFound", "TaskFailed", "ResultTimeout",
    "BulkError", "StorageUnavailable", "TaskTimeout", "TaskCancelled",
    "__version__",
]

_MODULES = {
    "Skedulr": "app", "Task": "tasks", "Call": "tasks", "Chain": "tasks", "previous": "tasks",
    "Handle": "handles",
    "Schedule": "schedule_client", "Workflow": "workflows", "Step": "workflows",
    "current_task": "context", "task_id": "context", "report_progress": "context",
    "Limit": "limiting", "LinearRetry": "retries", "ExponentialBackoff": "retries",
    "Logging": "middleware", "Recovery": "middleware", "OpenTelemetry": "middleware",
}
_METHODS = frozenset((
    "task", "remote", "submit", "submit_many", "submit_iter", "get", "cancel", "resubmit", "wait",
    "as_completed", "stats", "history", "pause", "resume", "scale_pool", "purge", "workflow",
    "set_limit", "reset_limit", "limits",
    "schedule_once", "schedule_recurring", "schedule_cron", "every", "cron", "unschedule",
    "schedules", "preview",
    "use", "on", "on_long_queue", "before_submit", "configure", "dashboard",
))


if not TYPE_CHECKING:  # or type checkers would take any misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'skedulr' has no attribute {name!r}")
        if name in _METHODS:
            value = getattr(import_module(".app", __name__).default, name)
        else:
            value = getattr(import_module(f".{_MODULES.get(name, 'errors')}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

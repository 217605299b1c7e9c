"""Django's own tasks (``django.tasks``, Django 6) on Skedulr.

    TASKS = {
        "default": {
            "BACKEND": "skedulr.contrib.django.backend.SkedulrBackend",
            "QUEUES": [],                                  # any; a queue is a pool
            "OPTIONS": {"timeout": 60, "max_retries": 3},  # as of ``task.using``
        }
    }

``queue_name`` is the pool, ``priority`` and ``run_after`` are what they say. Unless OPTIONS give
``max_retries`` a task that fails is not tried again, which is what Django's tasks expect. Before
Django 6 the same works with the package ``django-tasks``. ``skedulr.contrib.django`` must be
installed, too.
"""

from __future__ import annotations

import builtins
import inspect
from datetime import datetime
from functools import partial
from traceback import format_exception
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.module_loading import import_string

from ...app import Skedulr
from ...context import current_task
from ...errors import ConfigError, SkedulrError, TaskNotFound
from ...keys import PoolKeys, split_id
from ...queries import PoolQueries
from ...tasks import Task as SkedulrTask

try:
    from django.tasks import exceptions, signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.utils.json import normalize_json
except ImportError:
    try:
        from django_tasks import exceptions, signals
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise ImproperlyConfigured(
            "this needs Django 6, or the package django-tasks before it"
        ) from error

#: The name under which all of Django's tasks run; the first argument says which.
NAME = "django.tasks"

_READY, _RUNNING = TaskResultStatus.READY, TaskResultStatus.RUNNING
_FAILED, _SUCCESSFUL = TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL
_STATUS = {
    "queued": _READY, "scheduled": _READY, "waiting": _READY, "running": _RUNNING,
    "succeeded": _SUCCESSFUL,
}


class SkedulrBackend(BaseTaskBackend):
    """What ``TASKS`` names."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        try:
            self._task = runner().using(**{"max_retries": 0, **self.options})
        except ConfigError as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from error

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Queue a call of ``task``. Raises what ``Task.submit`` raises."""
        self.validate_task(task)
        given: dict[str, Any] = {
            "pool": task.queue_name, "priority": task.priority, "tags": [task.module_path],
        }
        if task.run_after is not None:
            given["at"] = _aware(task.run_after)
        # Django's form of arguments is JSON's: a result shows what the worker will get.
        result = _result(task, "", self.alias, args=list(args), kwargs=dict(kwargs))
        handle = self._task.using(**given).submit(
            self.alias, task.module_path, result.args, result.kwargs
        )
        _set(result, id=handle.id, enqueued_at=timezone.now())
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """As ``enqueue``, in a thread, since it waits for Redis."""
        return await sync_to_async(self.enqueue)(task=task, args=args, kwargs=kwargs)

    def get_result(self, result_id: str) -> TaskResult:
        """What is known of a task. Raises TaskResultDoesNotExist."""
        client = _served().client
        try:
            info = client.get(result_id)
        except (TaskNotFound, ConfigError):
            raise exceptions.TaskResultDoesNotExist(result_id) from None
        if info["name"] != NAME:
            raise exceptions.TaskResultDoesNotExist(result_id)
        pool, uid = split_id(info["id"])
        queries = PoolQueries(PoolKeys(client.config.namespace, pool))
        attempts = client.ask(lambda wire: queries.attempts(wire, uid))
        return _from_info(info, attempts)

    async def aget_result(self, result_id: str) -> TaskResult:
        """As ``get_result``, in a thread, since it waits for Redis."""
        return await sync_to_async(self.get_result)(result_id=result_id)


def runner() -> SkedulrTask[..., Any]:
    """The task that runs Django's tasks, registered in the served app."""
    served = _served()
    known = served.tasks.get(NAME)
    return served.task(name=NAME)(run) if known is None else known


def run(alias: str, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Runs in a worker: one attempt of one of Django's tasks."""
    task, here = import_string(path), current_task()
    if not isinstance(task, Task):
        raise SkedulrError(f"{path} is {task!r}, not one of Django's tasks")
    now = timezone.now()
    worker = here.token.rpartition(":")[0]
    result = _result(
        task, here.id, alias, args=args, kwargs=kwargs, status=_RUNNING, started_at=now,
        last_attempted_at=now, worker_ids=[worker] * here.attempt,
    )
    signals.task_started.send(SkedulrBackend, task_result=result)
    call = partial(task.call, TaskContext(task_result=result)) if task.takes_context else task.call
    try:
        value = normalize_json(call(*args, **kwargs))
    except BaseException as error:
        result.errors.append(TaskError(
            exception_class_path=f"{type(error).__module__}.{type(error).__qualname__}",
            traceback="".join(format_exception(error)),
        ))
        _set(result, status=_FAILED, finished_at=timezone.now())
        signals.task_finished.send(SkedulrBackend, task_result=result)
        raise
    _set(result, status=_SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
    signals.task_finished.send(SkedulrBackend, task_result=result)
    return value


def _from_info(info: dict[str, Any], attempts: list[dict[str, Any]]) -> TaskResult:
    """From what Skedulr shows of a task to what Django shows."""
    alias, path, args, kwargs = info["args"]
    runs = [one for one in attempts if one["started_at"]]
    workers = [one["worker"] or "" for one in runs]
    if info["state"] == "running":
        workers.append(info["worker"] or "")
    last = info["started_at"] or (runs[-1]["started_at"] if runs else None)
    result = _result(
        import_string(path), info["id"], alias, args=args, kwargs=kwargs,
        status=_STATUS.get(info["state"], _FAILED),
        enqueued_at=_moment(info["submitted_at"]),
        started_at=_moment(runs[0]["started_at"] if runs else info["started_at"]),
        last_attempted_at=_moment(last),
        finished_at=_moment(info["finished_at"]), worker_ids=workers,
        errors=[
            TaskError(
                exception_class_path=_class_path(one["error"]["type"]),
                traceback=one["error"]["traceback"] or one["error"]["message"],
            )
            for one in attempts if one["error"]
        ],
    )
    _set(result, _return_value=info["result"])
    return result


def _result(task: Task, id: str, alias: str, **given: Any) -> TaskResult:
    blank: dict[str, Any] = {
        "status": _READY, "enqueued_at": None, "started_at": None, "finished_at": None,
        "last_attempted_at": None, "errors": [], "worker_ids": [],
    }
    return TaskResult(task=task, id=id, backend=alias, **{**blank, **given})


def _set(result: TaskResult, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _class_path(name: str) -> str:
    """Django imports it: builtins must say so."""
    return f"builtins.{name}" if inspect.isclass(getattr(builtins, name, None)) else name


def _aware(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _moment(seconds: float | None) -> datetime | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, tz=timezone.get_default_timezone())


def _served() -> Skedulr:
    try:
        served: Skedulr = apps.get_app_config("skedulr").served
    except (LookupError, AttributeError):
        raise ImproperlyConfigured("add 'skedulr.contrib.django' to INSTALLED_APPS") from None
    return served

"""Calls: what a submit's JSON describes, checked."""

from __future__ import annotations

from typing import Any

from .. import options
from ..tasks import Call, NoApp, Task, check_task_name
from .problems import Problem


def call_of(given: dict[str, Any]) -> Call[Any]:
    """The call of ``{"name", "args", "kwargs", "options"}``; 400 for what describes none."""
    if not isinstance(given.get("name"), str):
        raise Problem(400, "bad_request", 'a submit needs "name": the name of a task')
    args, kwargs, own = given.get("args", []), given.get("kwargs", {}), given.get("options", {})
    wanted = (("args", args, list), ("kwargs", kwargs, dict), ("options", own, dict))
    for name, value, kind in wanted:
        if not isinstance(value, kind):
            form = "[...]" if kind is list else "{...}"
            raise Problem(400, "bad_request", f'"{name}" is to be {form}')
    task: Task[..., Any] = Task(
        app=NoApp(), name=check_task_name(given["name"]), function=None, defaults={},
        own=options.check(own),
    )
    return Call(task, tuple(args), kwargs)

"""Recipes: what every run of a task needs to know of it, looked up once and not at each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import retries
from ..app import Skedulr
from ..context import running
from ..middleware import compose
from ..tasks import MAX_RETRIES, Task
from .outcomes import retries_of_a_hang
from .runs import Run


class Recipe:
    """How a task is run: ``enter(run, call)`` runs it, inside of context variables of its own.

    ``timeout_s`` is None without a limit, ``hang_retries`` how often it may be tried again after it
    hung, ``usual`` says that this is as often as any task.
    """

    __slots__ = ("call", "enter", "hang_retries", "keeps_result", "task", "timeout_s", "usual")

    def __init__(
        self, task: Task[..., Any], enter: Callable[[Run, Any], Any], call: Callable[..., Any]
    ) -> None:
        self.task, self.enter, self.call = task, enter, call
        self.timeout_s: float | None = task.option("timeout")
        self.keeps_result = task.option("keep_result") is not False
        self.hang_retries = retries_of_a_hang(task)
        self.usual = self.hang_retries == MAX_RETRIES


class Recipes:
    """The recipes of an app's tasks, as they run in one pool."""

    def __init__(self, app: Skedulr, pool: str) -> None:
        self._app, self._pool, self._shared = app, pool, app.shared
        self._recipes: dict[Task[..., Any], Recipe] = {}

    def of(self, name: str) -> Recipe | None:
        """How the task of that name is run, called without options of the call's own; None for one
        that is not registered here."""
        task = self._app.tasks.get(name)
        if task is None:
            return None
        if self._shared is not self._app.shared:
            self.clear()
        return self._recipes.get(task) or self._learn(task)

    def clear(self) -> None:
        """Forget what was looked up: something of it has changed."""
        self._shared = self._app.shared
        self._recipes.clear()

    def for_call(self, recipe: Recipe, extras: Mapping[str, Any]) -> Recipe:
        """The same for a call that said ``extras`` about its run."""
        return Recipe(_as_called(recipe.task, extras, self._pool), recipe.enter, recipe.call)

    def _learn(self, task: Task[..., Any]) -> Recipe:
        assert task.function is not None
        own = task if self._shared is None else _as_called(task, {}, self._pool)
        if self._app.middleware:
            recipe = Recipe(own, _go_through, compose(self._app.middleware, task.function))
        else:
            recipe = Recipe(own, _go_inside, task.function)
        self._recipes[task] = recipe
        return recipe


def _go_inside(run: Run, function: Callable[..., Any]) -> Any:
    running.set(run)
    return function(*run.args, **run.kwargs)


def _go_through(run: Run, step: Callable[..., Any]) -> Any:
    running.set(run)
    return step(run.context)


def _as_called(task: Task[..., Any], extras: Mapping[str, Any], pool: str) -> Task[..., Any]:
    """The task with what this one call said about its run, in the pool where it runs."""
    own = {**extras, "pool": pool}
    if "retry" in own:
        own["retry"] = retries.from_wire(own["retry"])
    return Task(
        app=task.app, name=task.name, function=task.function, defaults=task.defaults, own=own
    )

"""Workflows: named steps that wait for each other, stored all together or not at all.

Nothing is sent while steps are added. Leaving the block looks for names that no step has and for
circles first; then ``Client.start_workflow`` stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from .dependencies import LETTERS
from .errors import ConfigError, nearest
from .tasks import Call, Task

if TYPE_CHECKING:
    from types import TracebackType

    from .client import Client
    from .handles import Handle

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class App(Protocol):
    """What a workflow needs of its app."""

    @property
    def client(self) -> Client: ...


class Step(Generic[R_co]):
    """One step of a workflow. Where it is an argument of another step it stands for its result."""

    __slots__ = ("_workflow", "id", "name")

    def __init__(self, workflow: Workflow, id: str, name: str | None) -> None:
        self._workflow, self.id, self.name = workflow, id, name

    def __repr__(self) -> str:
        return f"<Step {self.name or self.id}>"

    @property
    def handle(self) -> Handle[R_co]:
        """The handle of its task, once the workflow has started."""
        return self._workflow.client.handle(self.id)


class Workflow:
    """A graph of steps; ``skedulr.workflow(name)`` makes one.

    >>> with skedulr.workflow("import") as w:                           # doctest: +SKIP
    ...     a = w.add(load.bind("f.csv"), name="load")
    ...     w.add(report.bind(a), name="report")
    ...     w.add(cleanup.bind(), on_failure=["load", "report"])
    >>> w.wait(timeout=60), w.state                                     # doctest: +SKIP
    (True, 'succeeded')
    """

    def __init__(
        self, app: App, name: str, *, prepare: Callable[[Call[Any]], Call[Any]] = lambda one: one
    ) -> None:
        if not isinstance(name, str) or not name or len(name) > 200:
            raise ConfigError(f"workflow name {name!r} is not usable: 1 to 200 characters")
        self._app, self.name, self._prepare = app, name, prepare
        self._uid = ""
        self._steps: list[tuple[Step[Any], Call[Any], dict[str, list[Any]]]] = []
        self._names: dict[str, Step[Any]] = {}
        self._started = False

    def __repr__(self) -> str:
        return f"<Workflow {self.name} {self._uid}>"

    def __enter__(self) -> Workflow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.start()

    @property
    def client(self) -> Client:
        """The app's client."""
        return self._app.client

    def add(
        self, call: Call[R], *, name: str | None = None, depends_on: Any = (),
        on_success: Any = (), on_failure: Any = (), after: Any = (),
    ) -> Step[R]:
        """Add a step. What it waits for are steps, names of steps (also of later ones), or handles
        and ids of other tasks; see ``using`` for what the four mean.

        A step among the arguments stands for its result, and has to succeed. Raises ConfigError.
        """
        if self._started:
            raise ConfigError(f"workflow {self.name!r} has started: nothing can be added any more")
        if not isinstance(call, Call):
            raise ConfigError(f"{call!r} is not a call: task.bind(...) makes one")
        if "id" in call.task.own or call.task.on_commit:
            raise ConfigError("a step of a workflow can have neither id= nor on_commit=")
        if name is not None and (not isinstance(name, str) or not name or name in self._names):
            raise ConfigError(f"name={name!r} is not usable: a text that no other step has")
        call = self.client.placed(call)
        self._uid = self._uid or self.client.new_uid()
        pool = call.task.option("pool", "default")
        step: Step[R] = Step(self, f"{pool}/{self._uid}.{len(self._steps)}", name)
        given = {"depends_on": depends_on, "on_success": on_success, "on_failure": on_failure,
                 "after": after}
        self._steps.append((step, call, {key: _listed(key, one) for key, one in given.items()}))
        if name is not None:
            self._names[name] = step
        return step

    def start(self) -> None:
        """Check it and store it; leaving the block does that. An empty workflow is refused.

        Raises ConfigError naming what is wrong, and what a submit raises; nothing is stored then.
        """
        if self._started:
            return
        if not self._steps:
            raise ConfigError(f"workflow {self.name!r} has no steps")
        calls = [self._call(step, call, waits) for step, call, waits in self._steps]
        self._refuse_circles(calls)
        inside = {step.id for step, _, _ in self._steps}
        for call in calls:
            own = cast("dict[str, Any]", call.task.own)
            own["_root"] = not any(id in inside for one in LETTERS for id in own.get(one, ()))
        names = [step.name for step, _, _ in self._steps]
        self.client.start_workflow(self.id, self.name, list(zip(names, calls, strict=True)))
        self._started = True

    def _call(self, step: Step[Any], call: Call[Any], waits: dict[str, list[Any]]) -> Call[Any]:
        """The call with its options and places to fill in as a submit takes them."""
        call = self._prepare(call)
        fill: list[list[Any]] = []
        fed: list[Step[Any]] = []

        def without(at: int | str, value: Any) -> Any:
            if not isinstance(value, Step):
                return value
            fed.append(value)
            fill.append([at, value.id])
            return None

        args = tuple(without(at, value) for at, value in enumerate(call.args))
        kwargs = {at: without(at, value) for at, value in call.kwargs.items()}
        task, pool = call.task, step.id.rpartition("/")[0]
        own: dict[str, Any] = {
            **task.own, "id": step.id.rpartition("/")[2], "_workflow": self.id, "_fill": fill,
        }
        for key, given in waits.items():
            before = [id if "/" in id else f"{pool}/{id}" for id in own.get(key, ())]
            mine = [self._find(one) for one in given]
            fed_ids = [one.id for one in fed] if key == "depends_on" else []
            if every := list(dict.fromkeys([*before, *mine, *fed_ids])):
                own[key] = every
        made: Task[..., Any] = Task(
            app=task.app, name=task.name, function=task.function, defaults=task.defaults, own=own,
            unplaced=task.unplaced,
        )
        return Call(made, args, kwargs)

    def _find(self, one: Any) -> str:
        """The id of what a step waits for."""
        if isinstance(one, str):
            if one in self._names:
                return self._names[one].id
            if "/" not in one:
                raise ConfigError(
                    f"no step of workflow {self.name!r} is called {one!r}"
                    f"{nearest(one, self._names)}"
                )
            return one
        id = getattr(one, "id", None)
        if not isinstance(id, str):
            raise ConfigError(f"{one!r} is no step, handle or id")
        if isinstance(one, Step) and one._workflow is not self and not one._workflow._started:
            raise ConfigError(f"{one!r} is a step of another workflow, which has not started")
        return id

    def _refuse_circles(self, calls: list[Call[Any]]) -> None:
        graph = {
            step.id: [id for one in LETTERS for id in call.task.own.get(one, ())]
            for (step, _, _), call in zip(self._steps, calls, strict=True)
        }
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            called = {step.id: step.name or step.id for step, _, _ in self._steps}
            way = " -> ".join(called.get(id, id) for id in reversed(error.args[1]))
            raise ConfigError(f"steps of workflow {self.name!r} wait in a circle: {way}") from None

    # Once it has started

    @property
    def id(self) -> str:
        """``"<pool>/<uid>"``, for ``skedulr workflow ID`` and the HTTP interface."""
        if not self._steps:
            raise ConfigError(f"workflow {self.name!r} has no steps, so it has no id yet")
        return f"{self._steps[0][0].id.rpartition('/')[0]}/{self._uid}"

    @property
    def state(self) -> str:
        """``starting``, ``running``, ``succeeded``, ``failed`` or ``cancelled``; TaskNotFound."""
        return str(self.info()["state"])

    def info(self) -> dict[str, Any]:
        """All that is known of it: the JSON form of the HTTP interface. Raises TaskNotFound."""
        return self.client.workflow(self.id)

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until every step has ended, however it did; False when ``timeout`` s are over."""
        ids = [step.id for step, _, _ in self._steps]
        return sum(1 for _ in self.client.ends(ids, timeout)) == len(ids)

    def cancel(self) -> int:
        """Cancel every step that has not ended; how many were."""
        return self.client.cancel_workflow(self.id)

    def resubmit(self) -> int:
        """Put back every step that failed, with what was skipped for it; how many failed."""
        return self.client.resubmit_workflow(self.id)


def _listed(key: str, given: Any) -> list[Any]:
    if isinstance(given, str) or hasattr(given, "id"):
        return [given]
    if not isinstance(given, Iterable):
        raise ConfigError(f"{key}={given!r} is not usable: a step, a handle or an id, or several")
    return list(given)

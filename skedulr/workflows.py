"""Workflows: named steps that wait for each other, stored all together or not at all.

Nothing is sent while steps are added. Leaving the block looks for names that no step has and for
circles first; then ``Client.start_workflow`` stores it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from .dependencies import LETTERS, short_id
from .errors import ConfigError, nearest
from .options import check, seconds
from .tasks import Call, Chain, NoApp, Task, previous

if TYPE_CHECKING:
    from types import TracebackType

    from .client import Client
    from .handles import Handle

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


#: The priority of steps that Skedulr runs itself: they take no time, and others wait for them.
FIRST = 100


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


class _Entry:
    """What was added: its step, its call, and what it waits for, in the words of the workflow where
    it was added. ``source`` is what a map step goes over, ``part`` what the end of a part ends."""

    __slots__ = ("call", "name", "part", "source", "step", "waits")

    def __init__(
        self, step: Step[Any], call: Call[Any], waits: list[tuple[Workflow, dict[str, list[Any]]]],
        *, source: Any = None, part: list[Step[Any]] | None = None,
    ) -> None:
        self.step, self.call, self.waits, self.name = step, call, waits, step.name
        self.source, self.part = source, part

    @property
    def kind(self) -> str | None:
        """"map", "part", or None for a plain step."""
        if self.part is not None:
            return "part"
        return None if self.source is None else "map"


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
        self, app: App, name: str, *, id: str | None = None,
        prepare: Callable[[Call[Any]], Call[Any]] = lambda one: one,
        inside: Workflow | None = None, waits: dict[str, list[Any]] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name or len(name) > 200:
            raise ConfigError(f"workflow name {name!r} is not usable: 1 to 200 characters")
        self._app, self.name, self._prepare = app, name, prepare
        #: The workflow that this one is, or will be, a part of; and what the part waits for.
        self._inside, self._waits = inside, waits or {}
        #: The step that stands for the end of this part, once it is one.
        self._end: Step[None] | None = None
        #: Given, or made with the first step.
        self._uid = "" if id is None else str(check({"id": id})["id"])
        self._given = id is not None
        self._entries: list[_Entry] = []
        self._names: dict[str, Step[Any]] = {}
        #: Steps by ids that they had before they came here with their part.
        self._former: dict[str, Step[Any]] = {}
        self._started = False

    def __repr__(self) -> str:
        return f"<Workflow {self.name} {self._uid}>"

    def __enter__(self) -> Workflow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            return
        if self._inside is None:
            self.start()
        elif self._end is None:
            self._inside._take_in(self, self.name, self._waits)

    @property
    def client(self) -> Client:
        """The app's client."""
        return self._app.client

    @overload
    def add(
        self, call: Call[R] | Chain[R], *, name: str | None = None, depends_on: Any = (),
        on_success: Any = (), on_failure: Any = (), after: Any = (),
    ) -> Step[R]: ...

    @overload
    def add(
        self, call: Workflow, *, name: str | None = None, depends_on: Any = (),
        on_success: Any = (), on_failure: Any = (), after: Any = (),
    ) -> Step[None]: ...

    def add(
        self, call: Call[Any] | Chain[Any] | Workflow, *, name: str | None = None,
        depends_on: Any = (), on_success: Any = (), on_failure: Any = (), after: Any = (),
    ) -> Step[Any]:
        """Add a step. What it waits for are steps, names of steps (also of later ones), or handles
        and ids of other tasks; see ``using`` for what the four mean.

        A step among the arguments stands for its result, and has to succeed. A chain (``a | b``)
        adds a step for each of its calls: the first one waits as given here, and the step returned
        (and named) is the last one. Another workflow becomes a part of this one, see ``workflow``.
        Raises ConfigError.
        """
        waits = _listed({"depends_on": depends_on, "on_success": on_success,
                         "on_failure": on_failure, "after": after})
        if isinstance(call, Workflow):
            return self._take_in(call, name or call.name, waits)
        if isinstance(call, Chain):
            return self._add_chain(call, name, waits)
        self._check(call, name)
        if _is_given_previous(call):
            raise ConfigError(
                "skedulr.previous stands for what comes before in a chain (a | b), or for the item "
                "of a map; give the step itself to have its result"
            )
        return self._append(call, name, waits)

    def map(
        self, task: Task[..., R] | Call[R], over: Step[Any] | str, *, name: str | None = None,
        depends_on: Any = (), on_success: Any = (), on_failure: Any = (), after: Any = (),
    ) -> Step[list[R]]:
        """Add a step that runs ``task`` once for each item of the list that ``over`` returns.

        The item is the first argument, or takes the place of ``skedulr.previous`` in a bound call.
        The step succeeds when all have, its result is the list of their results, in order (8 MiB
        together); where one ends otherwise it is skipped. An empty list gives an empty one at once,
        anything but a list makes the step dead. At most 100,000 items. Raises ConfigError.

        >>> pages = w.add(find_pages.bind(site))                        # doctest: +SKIP
        >>> sizes = w.map(fetch.bind(skedulr.previous, timeout=5), pages)   # doctest: +SKIP
        >>> w.add(report.bind(sizes))                                   # doctest: +SKIP
        """
        call: Call[Any] = Call(task, (), {}) if isinstance(task, Task) else task
        self._check(call, name)
        for one in ("unique", "key"):
            if call.task.option(one) is not None:
                raise ConfigError(f"{one}= is for one task, and a map makes many of {call.task!r}")
        if not _is_given_previous(call):
            call = Call(call.task, (previous, *call.args), call.kwargs)
        waits = _listed({"depends_on": depends_on, "on_success": on_success,
                         "on_failure": on_failure, "after": after})
        if not isinstance(over, str) and not isinstance(getattr(over, "id", None), str):
            raise ConfigError(
                f"{over!r} is no step: map() goes over what a step returns; of a list that is "
                "known already, add a step for each item"
            )
        return self._append(call, name, waits, source=over)

    def workflow(
        self, name: str, *, depends_on: Any = (), on_success: Any = (), on_failure: Any = (),
        after: Any = (),
    ) -> Workflow:
        """A workflow inside of this one: a block whose steps are stored with all the others, and
        that others can wait for like for one step.

        Its steps start when what is given here allows. It has succeeded when all its steps have
        ended, none of them dead, expired or cancelled; else it is skipped. From outside its steps
        are called ``"<name>/<step>"``.

        >>> with w.workflow("images", depends_on=load) as part:          # doctest: +SKIP
        ...     part.add(shrink.bind())
        >>> w.add(publish.bind(), depends_on=part)                      # doctest: +SKIP
        """
        return Workflow(
            self._app, name, prepare=self._prepare, inside=self,
            waits=_listed({"depends_on": depends_on, "on_success": on_success,
                           "on_failure": on_failure, "after": after}),
        )

    def start(self) -> None:
        """Check it and store it; leaving the block does that. An empty workflow is refused.

        Raises ConfigError naming what is wrong, and what a submit raises; nothing is stored then.
        """
        if self._started:
            return
        if self._inside is not None:
            raise ConfigError(f"{self!r} is a part of {self._inside!r}, and starts with that")
        if not self._entries:
            raise ConfigError(f"workflow {self.name!r} has no steps")
        if self.client.config.codec is not None and any(o.kind == "map" for o in self._entries):
            raise ConfigError(
                "map() can not be used with a codec: its tasks are made by whoever comes first, "
                "and could not be sealed; submit them from a task instead"
            )
        calls = [self._call(one) for one in self._entries]
        self._refuse_circles(calls)
        inside = {one.step.id for one in self._entries}
        for call in calls:
            own = cast("dict[str, Any]", call.task.own)
            own["_root"] = not any(id in inside for one in LETTERS for id in own.get(one, ()))
        steps = [
            (one.name, one.kind, call) for one, call in zip(self._entries, calls, strict=True)
        ]
        self.client.start_workflow(self.id, self.name, steps, given=self._given)
        self._started = True

    # Adding

    def _check(self, call: Any, name: str | None) -> None:
        if self._started or self._end is not None:
            what = "has started" if self._started else "is a part of another one already"
            raise ConfigError(f"workflow {self.name!r} {what}: nothing can be added any more")
        if not isinstance(call, Call):
            raise ConfigError(f"{call!r} is not a call: task.bind(...) makes one")
        if "id" in call.task.own or call.task.on_commit:
            raise ConfigError("a step of a workflow can have neither id= nor on_commit=")
        self._check_name(name)

    def _check_name(self, name: str | None) -> None:
        if name is not None and (not isinstance(name, str) or not name or name in self._names):
            raise ConfigError(f"name={name!r} is not usable: a text that no other step has")

    def _append(
        self, call: Call[Any], name: str | None, waits: dict[str, list[Any]], **plan: Any
    ) -> Step[Any]:
        call = self.client.placed(call)
        step: Step[Any] = Step(self, self._next_id(call.task.option("pool", "default")), name)
        self._entries.append(_Entry(step, call, [(self, waits)], **plan))
        if name is not None:
            self._names[name] = step
        return step

    def _next_id(self, pool: str) -> str:
        self._uid = self._uid or self.client.new_uid()
        return f"{pool}/{self._uid}.{len(self._entries)}"

    def _add_chain(
        self, chain: Chain[Any], name: str | None, waits: dict[str, list[Any]]
    ) -> Step[Any]:
        for call in chain.calls:
            self._check(call, name)
        if _is_given_previous(chain.calls[0]):
            raise ConfigError(f"the first call of {chain!r} is given skedulr.previous: none is")
        step: Step[Any] | None = None
        for at, call in enumerate(chain.calls, 1):
            if step is not None:
                call, waits = _given(call, step), _listed({"depends_on": [step]})
            step = self._append(call, name if at == len(chain.calls) else None, waits)
        assert step is not None
        return step

    def _take_in(
        self, inner: Workflow, name: str, waits: dict[str, list[Any]]
    ) -> Step[None]:
        """Make all steps of ``inner`` steps of this workflow, and one that stands for its end."""
        if self._started or self._end is not None:
            raise ConfigError(f"workflow {self.name!r} takes nothing more in")
        if inner is self or inner._started or inner._end is not None:
            raise ConfigError(f"{inner!r} has started, or is a part of a workflow already")
        if not inner._entries:
            raise ConfigError(f"workflow {inner.name!r} has no steps")
        self._check_name(name)
        theirs = [one.step for one in inner._entries]
        for one in inner._entries:
            # The end of a part in it, too: that is skipped with all before it.
            if one.part is not None or not inner._waits_inside(one, theirs):
                one.waits.append((self, waits))
            inner._former[one.step.id] = one.step
            one.step.id = self._next_id(one.step.id.rpartition("/")[0])
            one.step._workflow = self
            one.name = None if one.name is None else f"{name}/{one.name}"
            self._entries.append(one)
        for key, step in inner._names.items():
            self._check_name(f"{name}/{key}")
            self._names[f"{name}/{key}"] = step
        self._former |= inner._former
        pool = theirs[-1].id.rpartition("/")[0]
        end: Step[None] = Step(self, self._next_id(pool), name)
        task: Task[..., None] = Task(
            app=NoApp(), name=inner.name, function=None, defaults={}, own={"pool": pool}
        )
        self._entries.append(_Entry(end, Call(task, (), {}), [(self, waits)], part=theirs))
        self._names[name] = inner._end = end
        inner._inside = self
        return end

    def _waits_inside(self, entry: _Entry, steps: list[Step[Any]]) -> bool:
        """Whether it waits for one of these steps of this workflow."""
        every = [
            scope._find(one) for scope, waits in entry.waits for given in waits.values()
            for one in given
        ]
        every += [id for key in LETTERS for id in entry.call.task.own.get(key, ())]
        every += [one.id for one in (*entry.call.args, *entry.call.kwargs.values())
                  if isinstance(one, Step)]
        if entry.source is not None:
            every.append(self._find(entry.source))
        ids = {one.id for one in steps} | self._former.keys()
        return any(one in ids for one in every)

    # Starting

    def _call(self, entry: _Entry) -> Call[Any]:
        """The call with its options and places to fill in as a submit takes them."""
        step = entry.step
        call = entry.call if entry.part is not None else self._prepare(entry.call)
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
        task, (pool, _, uid) = call.task, step.id.partition("/")
        waits = self._waits_of(entry, task.own, pool, [one.id for one in fed])
        plain = {key: value for key, value in task.own.items() if key not in LETTERS}
        own: dict[str, Any] = {**plain, "_workflow": self.id, "_fill": fill}
        if entry.source is not None:
            made = Call(_retold(task, own), args, kwargs)
            own = {"pool": pool, "priority": FIRST, "_workflow": self.id,
                   "_map": (made, short_id(self._find(entry.source, entry), self.id))}
            task, args, kwargs = _bare(task.name), (), {}
        elif entry.part is not None:
            own |= {"priority": FIRST, "_part": len(entry.part)}
        own |= {**waits, "id": uid}
        return Call(_retold(task, own), args, kwargs)

    def _waits_of(
        self, entry: _Entry, own: Mapping[str, Any], pool: str, fed: list[str]
    ) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for key in LETTERS:
            before = [id if "/" in id else f"{pool}/{id}" for id in own.get(key, ())]
            mine = [self._now(id) for id in before]
            mine += [
                self._now(scope._find(one)) for scope, waits in entry.waits
                for one in waits.get(key, ())
            ]
            if key == "depends_on":
                mine += fed
                if entry.source is not None:
                    mine.append(self._find(entry.source, entry))
            if key == "after" and entry.part is not None:
                # Last: the end of the part finds them there.
                mine = list(dict.fromkeys(mine)) + [one.id for one in entry.part]
            if every := list(dict.fromkeys(mine)):
                found[key] = every
        return found

    def _now(self, id: str) -> str:
        """The id, or what it is now of a step that came here with its part."""
        step = self._former.get(id)
        return id if step is None else step.id

    def _find(self, one: Any, entry: _Entry | None = None) -> str:
        """The id of what a step waits for."""
        if entry is not None:
            return self._now(entry.waits[0][0]._find(one))
        if isinstance(one, str):
            scope: Workflow | None = self
            while scope is not None:
                if one in scope._names:
                    return scope._names[one].id
                scope = scope._inside
            if "/" not in one:
                raise ConfigError(
                    f"no step of workflow {self.name!r} is called {one!r}"
                    f"{nearest(one, self._names)}"
                )
            return one
        if isinstance(one, Workflow):
            one = one._end
        id = getattr(one, "id", None)
        if not isinstance(id, str):
            raise ConfigError(f"{one!r} is no step, handle or id, nor a part of this workflow")
        if isinstance(one, Step) and not one._workflow._is_known_in(self):
            raise ConfigError(f"{one!r} is a step of another workflow, which has not started")
        return id

    def _is_known_in(self, other: Workflow) -> bool:
        """Whether steps of this workflow can be waited for in ``other``: one of its parts, one
        that it is a part of, or one that has started."""
        scope: Workflow | None = other
        while scope is not None:
            if scope is self:
                return True
            scope = scope._inside
        return self._started

    def _refuse_circles(self, calls: list[Call[Any]]) -> None:
        graph = {
            one.step.id: [id for key in LETTERS for id in call.task.own.get(key, ())]
            for one, call in zip(self._entries, calls, strict=True)
        }
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            called = {one.step.id: one.name or one.step.id for one in self._entries}
            way = " -> ".join(called.get(id, id) for id in reversed(error.args[1]))
            raise ConfigError(f"steps of workflow {self.name!r} wait in a circle: {way}") from None

    # Once it has started

    @property
    def id(self) -> str:
        """``"<pool>/<uid>"``, for ``skedulr workflow ID`` and the HTTP interface; of a part the id
        of the step that stands for its end."""
        if self._end is not None:
            return self._end.id
        if not self._entries:
            raise ConfigError(f"workflow {self.name!r} has no steps, so it has no id yet")
        return f"{self._entries[0].step.id.rpartition('/')[0]}/{self._uid}"

    @property
    def state(self) -> str:
        """``starting``, ``running``, ``succeeded``, ``failed`` or ``cancelled``; TaskNotFound."""
        return str(self.info()["state"])

    def info(self) -> dict[str, Any]:
        """All that is known of it: the JSON form of the HTTP interface. Raises TaskNotFound."""
        return self.client.workflow(self._whole.id, among=self._among)

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until every step has ended, however it did, and all tasks that a map made; False
        when ``timeout`` s are over."""
        began = time.monotonic()
        ids = [one.step.id for one in self._entries] + ([] if self._end is None else [self._end.id])
        if sum(1 for _ in self.client.ends(ids, timeout)) < len(ids):
            return False
        if not any(one.source is not None for one in self._entries):
            return True
        made = self.client.open_steps(self._whole.id, among=self._among)
        if timeout is not None:
            timeout = max(0.0, seconds("timeout", timeout) - (time.monotonic() - began))
        return sum(1 for _ in self.client.ends(made, timeout)) == len(made)

    def cancel(self) -> int:
        """Cancel every step that has not ended, and what maps made; how many were."""
        return self.client.cancel_workflow(self._whole.id, among=self._among)

    def resubmit(self) -> int:
        """Put back every step that failed, with what was skipped for it; how many failed."""
        return self.client.resubmit_workflow(self._whole.id, among=self._among)

    @property
    def _whole(self) -> Workflow:
        """The workflow that this one is a part of, or itself."""
        whole = self
        while whole._end is not None and whole._inside is not None:
            whole = whole._inside
        return whole

    @property
    def _among(self) -> frozenset[str] | None:
        """The steps of a part; None for a whole workflow."""
        if self._end is None:
            return None
        return frozenset([*(one.step.id for one in self._entries), self._end.id])


def _listed(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What a step waits for, a list for each option."""
    found: dict[str, list[Any]] = {}
    for key, one in given.items():
        if isinstance(one, (str, Step, Workflow)) or hasattr(one, "id"):
            found[key] = [one]
        elif isinstance(one, Iterable):
            found[key] = list(one)
        else:
            raise ConfigError(
                f"{key}={one!r} is not usable: a step, a handle or an id, or several"
            )
    return found


def _is_given_previous(call: Call[Any]) -> bool:
    return any(one is previous for one in (*call.args, *call.kwargs.values()))


def _given(call: Call[Any], step: Step[Any]) -> Call[Any]:
    """The call with ``step`` where it says ``previous``."""
    return Call(
        call.task, tuple(step if one is previous else one for one in call.args),
        {key: step if one is previous else one for key, one in call.kwargs.items()},
    )


def _bare(name: str) -> Task[..., Any]:
    """A task that Skedulr runs itself, under the name of what it is for."""
    return Task(app=NoApp(), name=name, function=None, defaults={})


def _retold(task: Task[..., Any], own: dict[str, Any]) -> Task[..., Any]:
    return Task(
        app=task.app, name=task.name, function=task.function, defaults=task.defaults, own=own,
        unplaced=task.unplaced,
    )

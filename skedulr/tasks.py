"""Task: a registered function with its defaults. Call: a task bound to arguments. Registry: names.

A task is immutable: ``using`` makes another one. What is wrong with a function or an option is
said when the module is imported, not when a worker runs it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast

from . import message, options
from .errors import ConfigError, UnknownTask, nearest

if TYPE_CHECKING:
    from typing import Unpack

    from .defaults import Defaults
    from .handles import Handle
    from .options import Options

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

#: Retries after the first attempt, unless the task or the call says otherwise.
MAX_RETRIES = 3


class Submitter(Protocol):
    """What a task needs of its app."""

    #: Options shared by all of its tasks, or None.
    shared: Defaults | None

    def submit_call(self, call: Call[Any]) -> Handle[Any]: ...

    def submit_chain(self, chain: Chain[Any]) -> Handle[Any]: ...


class NoApp:
    """In place of an app, for a call that comes from outside and that a client submits itself."""

    shared: Defaults | None = None

    def submit_call(self, call: Call[Any]) -> Handle[Any]:
        """Refused."""
        raise ConfigError(f"{call!r} belongs to no app: give it to a client")

    def submit_chain(self, chain: Chain[Any]) -> Handle[Any]:
        """Refused."""
        raise ConfigError(f"{chain!r} belongs to no app")


class _Previous:
    """See ``previous``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "skedulr.previous"


#: Among the arguments of a bound call: the result of the call before it in a chain, or the item it
#: is made for in ``Workflow.map``. Typed as anything, so that it stands for any argument.
previous: Any = _Previous()


class Call(Generic[R_co]):
    """A task bound to arguments, ready to be submitted; made by ``Task.bind``."""

    __slots__ = ("args", "kwargs", "task")

    def __init__(
        self, task: Task[Any, R_co], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.task, self.args, self.kwargs = task, args, kwargs

    def __repr__(self) -> str:
        return f"<Call of {self.task.name}>"

    def submit(self) -> Handle[R_co]:
        """Queue this call."""
        return self.task.app.submit_call(self)

    def __or__(self, other: Call[R] | Chain[R]) -> Chain[R]:
        """This call and then another one: ``load.bind("f.csv") | parse.bind(skedulr.previous)``."""
        if not isinstance(other, (Call, Chain)):
            return NotImplemented
        return Chain((self,)) | other


class Chain(Generic[R_co]):
    """Calls that run one after the other; ``a | b | c`` of bound calls makes one.

    Each runs once the one before it has succeeded. It is given that one's result where its
    arguments say ``skedulr.previous``, and nowhere else.

    >>> chain = load.bind("f.csv") | parse.bind(skedulr.previous) | report.bind()  # doctest: +SKIP
    >>> chain.submit().result(timeout=60)                                      # doctest: +SKIP
    """

    __slots__ = ("calls",)

    def __init__(self, calls: tuple[Call[Any], ...]) -> None:
        self.calls = calls

    def __repr__(self) -> str:
        return f"<Chain {' | '.join(one.task.name for one in self.calls)}>"

    def __or__(self, other: Call[R] | Chain[R]) -> Chain[R]:
        """The same, with one more call, or those of another chain, at its end."""
        if not isinstance(other, (Call, Chain)):
            return NotImplemented
        return Chain((*self.calls, *(other.calls if isinstance(other, Chain) else (other,))))

    def submit(self) -> Handle[R_co]:
        """Queue all of it, or nothing: a workflow called "chain". The handle is that of the last
        call, which is ``skipped`` where one before it ends otherwise than succeeded.

        Raises what a submit raises, and ConfigError for a first call that is given ``previous``.
        """
        return self.calls[0].task.app.submit_chain(self)


class Task(Generic[P, R]):
    """A function that workers run, and what holds for its calls unless they say otherwise.

    Calling it runs the function in place. ``submit`` queues it. ``defaults`` are the options of
    ``@task``, ``own`` those given by ``using``; both are checked already.
    """

    def __init__(
        self, *, app: Submitter, name: str, function: Callable[P, R] | None,
        defaults: Mapping[str, Any], own: Mapping[str, Any] | None = None,
        unplaced: bool = False,
    ) -> None:
        self.app, self.name, self.function = app, name, function
        self.defaults, self.own = defaults, own or {}
        #: Known by a name that nobody has published: a worker may know a better pool for it.
        self.unplaced = unplaced
        self.head = message.name_part(name)
        self._travelling = unplaced or any(
            one in defaults for one in ("expires", "headers", "tags", "key", "redact")
        )
        #: Whether calls wait for a transaction to be committed (True, or a database's alias).
        self.on_commit: bool | str = self.option("on_commit", False)
        self._placed = any(
            one in defaults for one in ("priority", "delay", "at", "unique", "limit")
        )
        if function is not None:
            # Not the function's own attributes: they could replace ours.
            functools.update_wrapper(self, function, updated=())

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, in the caller's greenlet."""
        if self.function is None:
            raise UnknownTask(
                f"task {self.name!r} is known here by name only: submit it, or import its module"
            )
        return self.function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Queue a call. Returns when Redis has stored it.

        Raises PayloadError for arguments that can not travel, DuplicateTask, QueueFull, and
        StorageUnavailable where Redis does not answer in time.

        >>> handle = send_email.submit("a@example.com")      # doctest: +SKIP
        """
        return self.app.submit_call(Call(self, args, kwargs))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """This task with these arguments, to be submitted later, alone or with others."""
        return Call(self, args, kwargs)

    def using(self, **given: Unpack[Options]) -> Task[P, R]:
        """The same task with other options for the calls made through the result.

        >>> send_email.using(priority=10, delay=60).submit("a@example.com")   # doctest: +SKIP
        """
        own = {**self.own, **options.check(cast("dict[str, Any]", given))}
        if "delay" in given:
            own.pop("at", None)
        elif "at" in given:
            own.pop("delay", None)
        return Task(
            app=self.app, name=self.name, function=self.function, defaults=self.defaults, own=own
        )

    @property
    def plain(self) -> bool:
        """Whether calls carry nothing beyond their arguments, and go where any call goes."""
        return not (self.own or self._travelling or self._placed or self.app.shared)

    def option(self, name: str, fallback: Any = None) -> Any:
        """An option for calls of this task: its own, the task's, its pool's or app's, in this
        order; else ``fallback``."""
        if name in self.own:
            return self.own[name]
        if name in self.defaults:
            return self.defaults[name]
        shared = self.app.shared
        if shared is None:
            return fallback
        pool = "" if name == "pool" else self.option("pool", "default")
        return shared.option(name, pool, fallback)


class Registry:
    """The tasks an app knows, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task[Any, Any]]:
        return iter(self._tasks.values())

    def get(self, name: str) -> Task[Any, Any] | None:
        """The task of that name, or None."""
        return self._tasks.get(name)

    def require(self, name: str) -> Task[Any, Any]:
        """The task of that name; UnknownTask names the nearest one."""
        found = self._tasks.get(name)
        if found is None:
            raise UnknownTask(f"no task {name!r} is registered{nearest(name, self._tasks)}")
        return found

    def add(self, task: Task[Any, Any]) -> None:
        """Register; a second, different function under one name is refused."""
        known = self._tasks.get(task.name)
        if known is not None and not same_function(known.function, task.function):
            raise ConfigError(
                f"two functions are called {task.name!r}: {_place(known.function)} and "
                f"{_place(task.function)}; give one of them another name: @task(name=...)"
            )
        self._tasks[task.name] = task


def check_function(function: Any) -> None:
    """Refuse what a worker could not find or run again, saying what to do instead."""
    where = _place(function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{where} is async: tasks run on greenlets, write a plain def")
    if inspect.isgeneratorfunction(function):
        raise ConfigError(f"{where} is a generator: return a list, or submit a task per item")
    if isinstance(function, (classmethod, staticmethod)) or inspect.ismethod(function):
        raise ConfigError(f"{where} is a method: make it a function that takes what it needs")
    if not inspect.isfunction(function):
        raise ConfigError(f"@task goes on a function, not on {function!r}")
    if function.__name__ == "<lambda>":
        raise ConfigError(f"{where} is a lambda, which has no name: write a def")
    outer = function.__qualname__.rpartition(".")[0]
    if outer and not outer.endswith("<locals>"):
        raise ConfigError(
            f"{where} is defined in class {outer}: make it a function outside of the class"
        )


def check_redact(name: str, function: Callable[..., Any], hidden: Iterable[str]) -> None:
    """Refuse a redacted argument that the task does not take: another one would be shown."""
    parameters = inspect.signature(function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    for one in hidden:
        if one not in parameters:
            raise ConfigError(
                f"redact={one!r} is no argument of {name}{nearest(one, parameters)}"
            )


def default_name(function: Callable[..., Any]) -> str:
    """``module.qualname``, with the file's own module name in place of ``__main__``."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name.removesuffix(".__main__")
        elif file:
            module = _module_of(Path(file).resolve())
    return f"{module}.{function.__qualname__}"


def _module_of(file: Path) -> str:
    """The name under which others import a file: with the packages it lies in."""
    parts = [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.append(folder.name)
        folder = folder.parent
    return ".".join(reversed(parts))


def check_task_name(name: Any) -> str:
    """A usable name for a task: printable text of 1 to 200 characters."""
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or not name.isprintable():
        raise ConfigError(f"task name {name!r} is not usable: 1 to 200 printable characters")
    return name


def same_function(one: Any, other: Any) -> bool:
    """A module imported twice defines the same function again.

    A factory or a decorator called twice does not, if what it made remembers different things.
    """
    if one is other:
        return True
    a, b = getattr(one, "__code__", None), getattr(other, "__code__", None)
    if a is None or b is None or (a.co_filename, a.co_firstlineno) != (
        b.co_filename, b.co_firstlineno
    ):
        return False
    try:
        return one.__qualname__ == other.__qualname__ and _remembered(one) == _remembered(other)
    except Exception:  # a cell that is still empty, values that do not compare
        return False


def _remembered(function: Any) -> list[Any]:
    """What a function brings along beside its code: what it closes over, and its defaults."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [cells, function.__defaults__, function.__kwdefaults__]


def _place(function: Any) -> str:
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else str(name)

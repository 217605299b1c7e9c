"""Tasks: what may be registered under which name, what is refused, calls and bindings."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import snippets

import skedulr
from skedulr import Call, ConfigError, Skedulr, Task, UnknownTask, tasks


@pytest.fixture
def app() -> Skedulr:
    return Skedulr(url="redis://nowhere.invalid:1/0")


def plain(a: int, b: int = 2) -> int:
    return a + b


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def one(a: int) -> int:
    return a


def two(a: int) -> int:
    return -a


class Holder:
    def method(self) -> None: ...

    @classmethod
    def of_class(cls) -> None: ...

    @staticmethod
    def static() -> None: ...


async def coroutine() -> None: ...


def generator() -> Any:
    yield 1


async def agenerator() -> Any:
    yield 1


def made_by_factory(n: int) -> Callable[[], int]:
    def inner() -> int:
        return n

    return inner


# --- registration outcomes ------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "name"), [
    (plain, "test_tasks.plain"),
    (wrapped(one), "test_tasks.one"),
    (unwrapped(one), "test_tasks.unwrapped.<locals>.wrapper"),
    (made_by_factory(1), "test_tasks.made_by_factory.<locals>.inner"),
])
def test_a_function_is_registered_as_module_and_qualname(
    app: Skedulr, function: Callable[..., Any], name: str
) -> None:
    made = app.task(function)
    assert made.name == name
    assert app.tasks.get(name) is made


@pytest.mark.parametrize(("function", "words"), [
    (lambda: None, "is a lambda, which has no name: write a def"),
    (Holder.method, "is defined in class Holder: make it a function outside of the class"),
    (Holder().method, "is a method"),
    (Holder.of_class, "is a method"),
    (Holder.static, "is defined in class Holder"),
    (Holder.__dict__["of_class"], "is a method"),
    (Holder.__dict__["static"], "is a method"),
    (functools.partial(plain, 1), "@task goes on a function, not on functools.partial"),
    (Holder, "@task goes on a function, not on <class"),
    (print, "@task goes on a function, not on <built-in"),
    ("plain", "@task goes on a function, not on 'plain'"),
    (coroutine, "coroutine (test_tasks.py:"),
    (coroutine, "is async: tasks run on greenlets, write a plain def"),
    (agenerator, "is async"),
    (generator, "is a generator: return a list, or submit a task per item"),
])
def test_what_a_worker_could_not_run_is_refused_with_the_fix(
    app: Skedulr, function: Any, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        app.task(function)
    assert words in str(caught.value)
    assert len(app.tasks) == 0


def test_a_task_is_not_made_a_task_again(app: Skedulr) -> None:
    with pytest.raises(ConfigError, match="@task goes on a function, not on <Task"):
        app.task(app.task(plain))  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "second"), [
    (unwrapped(one), unwrapped(two)),
    (made_by_factory(1), made_by_factory(2)),
    (one, two),
])
def test_two_functions_under_one_name_are_refused(
    app: Skedulr, first: Callable[..., Any], second: Callable[..., Any]
) -> None:
    app.task(name="same")(first)
    with pytest.raises(ConfigError) as caught:
        app.task(name="same")(second)
    assert "two functions are called 'same'" in str(caught.value)
    assert "@task(name=...)" in str(caught.value)
    known = app.tasks.get("same")
    assert known is not None and known.function is first


def test_a_loop_that_makes_tasks_with_other_defaults_is_refused(app: Skedulr) -> None:
    def make(n: int) -> None:
        @app.task(name="loop")
        def loop(a: int, factor: int = n) -> int:
            return a * factor

    make(1)
    make(1)
    with pytest.raises(ConfigError, match="two functions are called 'loop'"):
        make(2)


def test_a_module_that_is_imported_twice_registers_the_same_task_again(
    app: Skedulr, tmp_path: Path
) -> None:
    file = tmp_path / "twice.py"
    file.write_text("def job(a, b=1):\n    return a\n")
    for _ in range(2):
        namespace: dict[str, Any] = {"__name__": "twice"}
        exec(compile(file.read_text(), str(file), "exec"), namespace)
        app.task(namespace["job"])
    assert [task.name for task in app.tasks] == ["twice.job"]


def test_the_same_name_in_two_modules_makes_two_tasks(app: Skedulr) -> None:
    for module in ("first", "second"):
        namespace: dict[str, Any] = {"__name__": module}
        exec("def job(): ...", namespace)
        app.task(namespace["job"])
    assert sorted(task.name for task in app.tasks) == ["first.job", "second.job"]


@pytest.mark.parametrize("name", ["a", "send email", "naïve.name", "x" * 200])
def test_a_name_may_be_given(app: Skedulr, name: str) -> None:
    assert app.task(name=name)(plain).name == name


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x00", 7])
def test_an_unusable_name_is_refused(app: Skedulr, name: Any) -> None:
    with pytest.raises(ConfigError, match=r"task name .* is not usable"):
        app.task(name=name)(plain)
    with pytest.raises(ConfigError, match=r"task name .* is not usable"):
        app.remote(name)


def test_require_names_the_nearest(app: Skedulr) -> None:
    app.task(name="send_email")(plain)
    with pytest.raises(UnknownTask, match=r"no task 'send_mail' .*did you mean 'send_email'"):
        app.tasks.require("send_mail")


# --- the name of a script -------------------------------------------------------------------------

APP = """\
import sys

import skedulr


@skedulr.task
def job():
    return 1


if __name__ == "__main__":
    print(job.name)
"""


def start(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("arguments", "name"), [
    (["app.py"], "app.job"),
    (["./app.py"], "app.job"),
    (["-m", "app"], "app.job"),
    (["pack/deep/app.py"], "pack.deep.app.job"),
    (["-m", "pack.deep.app"], "pack.deep.app.job"),
    (["-m", "pack"], "pack.job"),
    (["loose/app.py"], "app.job"),
])
def test_a_script_registers_under_the_name_its_worker_imports(
    tmp_path: Path, arguments: list[str], name: str
) -> None:
    for folder in ("pack", "pack/deep", "loose"):
        (tmp_path / folder).mkdir()
    for package in ("pack", "pack/deep"):
        (tmp_path / package / "__init__.py").touch()
    for file in ("app.py", "pack/deep/app.py", "loose/app.py", "pack/__main__.py"):
        (tmp_path / file).write_text(APP)
    assert start(*arguments, folder=tmp_path) == name


def test_what_a_script_submits_has_the_name_an_import_gives(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    imported = snippets.run("import app; report(app.job.name)", cwd=tmp_path)
    assert imported == start("app.py", folder=tmp_path)


# --- tasks and calls ------------------------------------------------------------------------------


def test_calling_a_task_calls_the_function(app: Skedulr) -> None:
    made = app.task(plain)
    assert (made(1), made(1, b=5)) == (3, 6)


def test_a_task_looks_like_its_function(app: Skedulr) -> None:
    def documented(a: int) -> int:
        """What it does."""
        return a

    documented.name = documented.pool = "mine"  # type: ignore[attr-defined]
    made = app.task(name="mine too")(documented)
    assert (made.__doc__, made.__name__, made.name) == ("What it does.", "documented", "mine too")  # type: ignore[attr-defined]
    assert repr(made) == "<Task mine too>"


def test_a_task_known_by_name_only_can_not_be_called(app: Skedulr) -> None:
    with pytest.raises(UnknownTask, match="known here by name only: submit it, or import"):
        app.remote("elsewhere")()


def test_remote_finds_the_task_that_is_here(app: Skedulr) -> None:
    made = app.task(name="here", pool="p")(plain)
    found = app.remote("here", priority=3)
    assert (found.function, found.option("pool"), found.option("priority")) == (plain, "p", 3)
    assert made.option("priority") is None


def test_a_call_holds_its_arguments(app: Skedulr) -> None:
    call = app.task(plain).bind(1, b=3)
    assert isinstance(call, Call)
    assert (call.task.name, call.args, call.kwargs) == ("test_tasks.plain", (1,), {"b": 3})
    assert repr(call) == "<Call of test_tasks.plain>"


@pytest.mark.parametrize("wrong", [plain, 3, None, print])
def test_submitting_what_is_no_task_is_refused_with_the_fix(app: Skedulr, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"decorate the function with @skedulr.task"):
        app.submit(wrong)


def test_a_bound_call_takes_no_more_arguments(app: Skedulr) -> None:
    with pytest.raises(ConfigError, match="has its arguments already"):
        app.submit(app.task(plain).bind(1), 2)


def test_submit_many_names_the_item_that_is_no_call(app: Skedulr) -> None:
    with pytest.raises(skedulr.SkedulrError, match=r"item 0 is 3, not a call: task.bind"):
        app.submit_many([3])  # type: ignore[list-item]


def test_apps_do_not_share_tasks(app: Skedulr) -> None:
    other = Skedulr(url="redis://nowhere.invalid:1/0")
    app.task(name="a")(one)
    other.task(name="a")(two)
    assert len(app.tasks) == len(other.tasks) == 1


def test_a_task_is_immutable_in_what_its_name_stands_for(app: Skedulr) -> None:
    made: Task[[int, int], int] = app.task(plain)
    assert tasks.default_name(plain) == made.name
    assert made.using(priority=1).head == made.head

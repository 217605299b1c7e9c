"""What importing Skedulr does (nothing), and that every public name is what it should be."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from pathlib import Path

import pytest
import snippets

import skedulr
from skedulr import app, context, errors, handles, retries, tasks

PACKAGE = Path(skedulr.__file__).parent
#: What must not be loaded before an application patches itself, and what only gevent code needs.
HEAVY = ("gevent", "greenlet", "redis", "hiredis", "ssl", "_ssl", "socket", "_socket", "asyncio",
         "bottle", "psutil", "croniter")

LOADED = """
def heavy():
    return sorted(m for m in sys.modules if m.partition(".")[0] in HEAVY)
""".replace("HEAVY", repr(HEAVY))

DEFINE = """
import skedulr

@skedulr.task
def plain(a: int) -> int:
    return a

@skedulr.task(name="other", pool="p", priority=3, timeout=5, max_retries=1, delay=2,
              retry=skedulr.ExponentialBackoff(base=1, cap=10))
def other(a: int) -> int:
    return a

call = other.using(priority=9, id="x").bind(1)
skedulr.configure(url="redis://nowhere.invalid:1/0", namespace="n")
skedulr.remote("third", pool="q")
app = skedulr.Skedulr(url="redis://nowhere.invalid:1/0")
assert plain(3) == 3
"""


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert snippets.run(LOADED + "import skedulr; report(heavy())") == []


def test_defining_binding_and_configuring_load_nothing_heavy() -> None:
    assert snippets.run(LOADED + DEFINE + "report(heavy())") == []


def test_importing_starts_no_thread_opens_no_file_and_patches_nothing() -> None:
    found = snippets.run("""
import os, threading
before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
import signal
handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)]
import skedulr
for name in skedulr.__all__:
    getattr(skedulr, name)
after = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
import gevent.monkey
report([threading.active_count(), len(after) - len(before), gevent.monkey.saved,
        handlers == [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)]])
""")
    assert found == [1, 0, {}, True]


def test_only_the_client_loads_redis_and_nothing_of_it_loads_gevent() -> None:
    found = snippets.run(LOADED + DEFINE + "skedulr.Skedulr(url='redis://x').client\nreport(heavy())")
    assert {"redis", "ssl", "socket"} <= set(found)
    assert not {"gevent", "greenlet"} & set(found)


def test_no_public_name_is_replaced_when_every_submodule_is_imported() -> None:
    found = snippets.run("""
import importlib, pkgutil, skedulr
for found in pkgutil.walk_packages(skedulr.__path__, "skedulr."):
    # Django's are imported where there is a project: tests/integrations.
    if not found.name.endswith("__main__") and ".contrib.django" not in found.name:
        importlib.import_module(found.name)
import types
report([name for name in skedulr.__all__ if isinstance(getattr(skedulr, name), types.ModuleType)])
""", patched=True)
    assert found == []


def test_no_module_bears_the_name_of_a_public_one() -> None:
    modules = {found.name for found in pkgutil.iter_modules(skedulr.__path__)}
    assert not modules & set(skedulr.__all__)


@pytest.mark.parametrize("name", [name for name in skedulr.__all__ if hasattr(errors, name)])
def test_an_error_is_the_one_of_the_tree(name: str) -> None:
    assert getattr(skedulr, name) is getattr(errors, name)


def test_all_errors_are_public() -> None:
    defined = {
        name for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
        and value.__module__ == errors.__name__
    }
    assert defined <= set(skedulr.__all__)


def test_the_classes_are_those_of_their_modules() -> None:
    assert skedulr.Skedulr is app.Skedulr
    assert skedulr.Task is tasks.Task
    assert skedulr.Call is tasks.Call
    assert skedulr.Handle is handles.Handle
    assert skedulr.LinearRetry is retries.LinearRetry
    assert skedulr.ExponentialBackoff is retries.ExponentialBackoff
    assert skedulr.current_task is context.current_task
    assert skedulr.task_id is context.task_id


def test_the_functions_are_the_default_app_s_methods() -> None:
    methods = {
        name for name in skedulr.__all__
        if inspect.ismethod(value := getattr(skedulr, name)) and value.__self__ is app.default
    }
    assert {"task", "submit", "submit_many", "submit_iter", "remote", "get", "cancel", "wait",
            "as_completed", "stats", "configure"} <= methods


def test_every_public_method_of_an_app_is_a_function_of_the_package_too() -> None:
    methods = {
        name for name, value in vars(app.Skedulr).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    # What belongs to one app object, not to the default one.
    own = {"submit_call", "submit_chain", "close"}
    assert methods - own <= set(skedulr.__all__)


def test_what_type_checkers_see_is_what_is_public() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    seen: set[str] = {"__version__"}
    for node in tree.body:
        if isinstance(node, ast.If):
            for part in node.body:
                if isinstance(part, ast.ImportFrom):
                    seen |= {alias.asname or alias.name for alias in part.names}
                elif isinstance(part, ast.Assign):
                    seen |= {ast.unparse(target) for target in part.targets}
    assert {name for name in seen if name == "__version__" or not name.startswith("_")} == set(
        skedulr.__all__
    )


def test_all_has_no_name_twice_and_dir_shows_it() -> None:
    assert len(set(skedulr.__all__)) == len(skedulr.__all__)
    assert set(dir(skedulr)) == set(skedulr.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sumbit'"):
        skedulr.sumbit  # noqa: B018


def test_patching_after_the_tasks_were_imported_is_not_too_late() -> None:
    found = snippets.run(LOADED + DEFINE + """
import warnings
warnings.simplefilter("error")
from gevent import monkey
monkey.patch_all()
client = skedulr.Skedulr(url="redis://x").client
import socket
report([monkey.is_module_patched("socket"), socket.socket.__module__])
""")
    assert found == [True, "gevent._socket3"]

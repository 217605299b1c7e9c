"""Nothing in the package keeps time for itself: what fires later goes through the wheel.

Read from the source, outside ``skedulr/hub``: no timers of gevent's own, and no loop that sleeps
between its rounds. The exceptions are listed with their reasons; one that no longer applies fails.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import skedulr

PACKAGE = Path(skedulr.__file__).parent

#: Each of these makes a timer in the hub's own heap.
TIMERS = {"spawn_later", "start_later", "with_timeout", "Timeout", "timer"}

OUTAGE = "a pause between attempts while Redis is away"
THREAD = "in a producer's thread, whose process may have no hub and has no wheel"
BENCH = "a measurement's own pace, in a process without a wheel"

#: (file, function, call) -> why it may.
ALLOWED = {
    ("waiting.py", "Listener._run", "sleep"): f"{OUTAGE}, {THREAD}",
    ("waiting.py", "Watch.ends", "sleep"): f"the time-out of a lock, {THREAD}",
    ("committer.py", "Committer._commit", "sleep"): f"{OUTAGE}, {THREAD}",
    ("pools/control.py", "Control._run", "sleep"): OUTAGE,
    ("client.py", "Client.stack", "sleep"): f"between two looks, {THREAD}",
    ("client.py", "Client.start_workflow", "sleep"): f"while another removes it, {THREAD}",
    ("cli/pace.py", "Pace.parts", "sleep"): "a command's own pace, in a process without a hub",
    ("bench/ground.py", "Ground.wait_starts", "sleep"): BENCH,
    ("bench/ground.py", "Ground.wait_settled", "sleep"): BENCH,
    ("bench/jobs.py", "paced", "sleep"): BENCH,
    ("bench/jobs.py", "load", "sleep"): BENCH,
    ("pools/fetcher.py", "Fetcher._end_lane", "Timeout"): "the last answer, at the end",
    ("pools/estates.py", "Estates.release", "sleep"): OUTAGE,
    ("pools/sizes.py", "Sizes._follow", "sleep"): OUTAGE,
    ("pools/children.py", "_wait_for_threads", "Timeout"): "the master, at a fork",
    ("pools/recorder.py", "Recorder._run", "sleep"): "a pause after an error nobody foresaw",
    ("pools/heart.py", "Heart._beat", "sleep"): "a native thread, there for when the hub is stuck",
    ("testing/served.py", "_Master.wait", "sleep"): "in a test's process, which has no wheel",
    ("pools/child.py", "Child._drain", "sleep"): "watches the last tasks end, once, at shutdown",
}

Use = tuple[str, str, str]


def uses_in(source: str, path: str) -> Iterator[tuple[Use, int]]:
    yield from _walk(ast.parse(source), path, [], in_loop=False)


def _walk(node: ast.AST, path: str, scope: list[str], in_loop: bool) -> Iterator[tuple[Use, int]]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        scope, in_loop = [*scope, node.name], False
    elif isinstance(node, ast.While | ast.For):
        in_loop = True
    elif isinstance(node, ast.Call):
        name = _called(node.func)
        if name in TIMERS or (name == "sleep" and in_loop):
            yield (path, ".".join(scope), name), node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, path, scope, in_loop)


def _called(function: ast.expr) -> str:
    """The last part of a called name; ``_sleep`` and ``gevent.sleep`` are ``sleep``."""
    if isinstance(function, ast.Attribute):
        return function.attr.lstrip("_")
    return function.id.lstrip("_") if isinstance(function, ast.Name) else ""


def uses_in_package() -> dict[Use, int]:
    return {
        use: line
        for path in sorted(PACKAGE.rglob("*.py"))
        if not path.is_relative_to(PACKAGE / "hub")
        for use, line in uses_in(path.read_text(), str(path.relative_to(PACKAGE).as_posix()))
    }


def test_nothing_outside_the_hub_keeps_time_for_itself() -> None:
    found = [
        f"skedulr/{use[0]}:{line}: {use[2]}() in {use[1]}"
        for use, line in uses_in_package().items()
        if use not in ALLOWED
    ]
    assert not found, "use Driver.after or Driver.every (or say why not, in ALLOWED)"


def test_each_exception_still_applies() -> None:
    stale = sorted(ALLOWED.keys() - uses_in_package().keys())
    assert not stale, "take these off ALLOWED"


@pytest.mark.parametrize(
    "source, call",
    [
        ("gevent.spawn_later(5, sweep)", "spawn_later"),
        ("with gevent.Timeout(5): run()", "Timeout"),
        ("with_timeout(5, run)", "with_timeout"),
        ("hub.loop.timer(5).start(run)", "timer"),
        ("while True:\n sweep()\n gevent.sleep(5)", "sleep"),
        ("for _ in tries:\n if bad:\n  _sleep(5)", "sleep"),
    ],
)
def test_reader_sees_every_way_to_keep_time(source: str, call: str) -> None:
    (((_, _, seen), _),) = uses_in(source, "x.py")
    assert seen == call


def test_reader_lets_a_single_sleep_pass_and_knows_where_it_is() -> None:
    assert list(uses_in("while True:\n def f():\n  sleep(1)\nsleep(2)", "x.py")) == []
    source = "class A:\n def f(self):\n  while True:\n   time.sleep(1)"
    assert list(uses_in(source, "x.py")) == [(("x.py", "A.f", "sleep"), 4)]

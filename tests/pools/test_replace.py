"""Children that are replaced while they work: HUP, recycling, --reload; new before old."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from harness import WORK, Node, gone, wait_until

pytestmark = pytest.mark.server

Start = Callable[..., Node]


def rewrite(node: Node, text: str) -> None:
    """Replace the module in one step, as an editor or a deploy does."""
    new = node.folder / "work.new"
    new.write_text(text)
    new.rename(node.folder / "work.py")


def version(node: Node) -> object:
    uid = node.submit("version")
    return node.wait_state(uid, "succeeded")["result"]


def versioned(number: int) -> str:
    return WORK + f'\n\n@task(name="version")\ndef version():\n    return {number}\n'


def test_hup_loads_the_code_anew_and_interrupts_no_task(start: Start) -> None:
    node = start(work=versioned(1))
    assert version(node) == 1
    held = node.submit("gate", "open")
    [began] = node.effects.wait("began", held)
    rewrite(node, versioned(2))
    node.signal(signal.SIGHUP)
    node.wait_ready(2)
    node.wait_log("every child has been replaced")
    node.wait_log("pool default: draining")
    assert version(node) == 2
    assert not gone(began.pid), "the old child still runs its task"
    (node.folder / "open").touch()
    assert node.wait_state(held, "succeeded")["attempt"] == 1
    assert node.effects.all(held, "began") == [began]
    wait_until(lambda: gone(began.pid), "the old child has gone")
    assert "died" not in node.log


def test_hup_to_the_whole_group_is_the_same(start: Start) -> None:
    node = start(pools="default=2x2,other=2", ready=3)
    before = set(node.children())
    node.signal_group(signal.SIGHUP)
    node.wait_log("every child has been replaced")
    wait_until(lambda: not before & set(node.children()), "the old ones have gone")
    assert len(node.children()) == 3


def test_children_are_replaced_one_by_one(start: Start) -> None:
    node = start(pools="default=1x3", ready=3)
    before = node.children()
    node.signal(signal.SIGHUP)
    most = 0

    def replaced() -> bool:
        nonlocal most
        most = max(most, len(node.children()))
        return "every child has been replaced" in node.log

    wait_until(replaced, "all are replaced")
    assert most <= len(before) + 2, "one that comes, and one that may still be leaving"


def test_after_hup_with_broken_code_the_old_goes_on(start: Start) -> None:
    node = start(work=versioned(1))
    pid = node.child()
    rewrite(node, "def broken(:\n")
    node.signal(signal.SIGHUP)
    node.wait_log("the old goes on")
    assert "SyntaxError" in node.log
    assert version(node) == 1
    assert node.children() == [pid]
    rewrite(node, versioned(2))
    node.signal(signal.SIGHUP)
    node.wait_log("every child has been replaced")
    wait_until(lambda: gone(pid), "the old one has gone")
    assert version(node) == 2


def test_a_term_in_the_middle_of_a_replacement_ends_everything(start: Start) -> None:
    work = WORK + "\nif os.path.exists('slow'): time.sleep(30)\n"
    node = start(work=work)
    (node.folder / "slow").touch()
    node.signal(signal.SIGHUP)
    wait_until(lambda: len(node.children()) == 2, "the successor is importing")
    node.signal(signal.SIGTERM)
    assert node.wait(10) == 0


def test_a_child_is_replaced_after_so_many_tasks_and_none_is_lost_or_run_twice(
    start: Start,
) -> None:
    node = start("--max-tasks", "20", pools="default=4")
    first = node.child()
    assert node.app is not None
    quick = node.app.remote("quick")
    handles = [quick.bind() for _ in range(200)]
    stored = node.app.submit_many(handles)
    wait_until(lambda: gone(first), "the first child has gone")
    assert node.app.wait(stored, timeout=20)
    ran = node.effects.all(phase="ran")
    assert len(ran) == len({one.uid for one in ran}) == 200
    assert "is replaced: it has run" in node.log
    assert "back in the queue" not in node.log


def test_a_child_that_grew_too_large_is_replaced(start: Start) -> None:
    work = WORK + '\nkept = []\n\n@task(name="grow")\ndef grow():\n    kept.append(b"x" * 10**8)\n'
    node = start("--max-rss", "120", work=work)
    first = node.child()
    uid = node.submit("grow")
    node.wait_state(uid, "succeeded")
    wait_until(lambda: gone(first), "the large child has gone")
    assert "is replaced: it holds" in node.log
    node.wait_state(node.submit("quick"), "succeeded")


def test_reload_restarts_on_a_change_and_waits_while_the_code_is_broken(start: Start) -> None:
    node = start("--reload", work=versioned(1))
    assert version(node) == 1
    rewrite(node, versioned(2))
    wait_until(lambda: version(node) == 2, "the new code is served")
    rewrite(node, "def broken(:\n")
    node.wait_log("SyntaxError")
    os.kill(node.child(), signal.SIGKILL)
    node.wait_log("waiting for a change")
    rewrite(node, versioned(3))
    wait_until(lambda: node.children() != [], "it has a child again")
    assert version(node) == 3
    assert node.process is not None and node.process.poll() is None


def test_reload_waits_for_code_that_is_broken_at_the_start(start: Start) -> None:
    node = start("--reload", work="import nothing_here\n", ready=0)
    node.wait_log("waiting for a change")
    rewrite(node, versioned(1))
    node.wait_ready(1)
    assert version(node) == 1

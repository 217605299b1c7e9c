"""Hooks hear of tasks that die with their process: by a crash, and by the master's kill."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import WORK, Node, wait_until

pytestmark = pytest.mark.server

HOOKED = WORK + '''

@skedulr.on("dead")
def dead(context, error):
    end = os.open("told", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(end, f"{context.uid} {context.name} {context.attempt} {error}\\n".encode())
    os.close(end)


@task(name="fail", max_retries=0)
def fail():
    raise ValueError("in its own process")
'''


def test_hooks_hear_once_of_a_task_that_kills_its_process_and_of_one_that_hangs(
    start: Callable[..., Node],
) -> None:
    node = start("--hang-timeout", "1", work=HOOKED)

    def told() -> dict[str, str]:
        file = node.folder / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        return dict(line.split(" ", 1) for line in lines)

    failed = node.submit("fail")
    # It is recorded first: one that is cut off between its hook and its record is told again.
    node.wait_state(failed, "dead")
    crashed = node.submit("exit", 7)
    wait_until(lambda: crashed in told(), lambda: f"{told()}\n{node.log}")
    hung = node.submit("burn", 60)
    wait_until(lambda: hung in told(), lambda: f"{told()}\n{node.log}")
    assert told()[failed] == "fail 1 in its own process"
    assert told()[crashed].startswith(f"exit 1 task default/{crashed} is dead: Crashed: ")
    assert told()[hung].startswith(f"burn 1 task default/{hung} is dead: ")
    assert "had not yielded" in told()[hung]
    lines = (node.folder / "told").read_text().splitlines()
    assert len(lines) == 3, "each of them once"

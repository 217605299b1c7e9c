"""What is counted of runs is what happened: by an effect log, with failures and a killed child."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from harness import WORK, Node, wait_until

pytestmark = pytest.mark.server

#: By hand: COUNTED_TASKS=50000 pytest tests/pools/test_counted_runs.py
TASKS = int(os.environ.get("COUNTED_TASKS", "3000"))
COUNTED = WORK + '''

from skedulr import LinearRetry


@task(name="tenth", max_retries=2, retry=LinearRetry(base=0.01))
def tenth(number):
    """Every tenth fails at its first attempt."""
    run = skedulr.current_task()
    note("tried")
    if number % 10 == 0 and run.attempt == 1:
        raise ValueError("the first attempt")
'''


def row(node: Node) -> dict[str, Any]:
    assert node.app is not None
    found = [one for one in node.app.stats()["names"] if one["name"] == "tenth"]
    return found[0] if found else {"runs": 0, "failed": 0}


def test_runs_and_failures_are_those_that_happened(start: Callable[..., Node]) -> None:
    node = start(pools="default=20", work=COUNTED)
    assert node.app is not None
    remote = node.app.remote("tenth")
    node.app.submit_many(remote.bind(number) for number in range(TASKS))
    wait_until(lambda: row(node)["runs"] > TASKS // 4, "a quarter is done")
    os.kill(node.child(), signal.SIGKILL)

    def ended() -> bool:
        pool = node.app.stats()["pools"][0]
        return bool(pool["succeeded"] == TASKS)

    wait_until(ended, "all have succeeded", timeout=120)
    counted, tried = row(node), node.effects.all(phase="tried")
    failures = TASKS // 10
    assert counted["failed"] == failures
    assert counted["runs"] == TASKS + failures
    # Runs that the kill cut off happened as well, and came to nothing.
    assert len(tried) >= counted["runs"]
    assert len({one.uid for one in tried}) == TASKS
    assert node.app.stats()["failed"] == failures

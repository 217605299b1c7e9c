"""What a node does while there is nothing to do: it sleeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Node

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform != "linux", reason="counted by what Linux tells in /proc"),
]


def slept(pid: int) -> int:
    """How often the threads of a process went to sleep so far, which is how often they woke up."""
    return sum(
        int(line.split()[1])
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )


def test_an_idle_child_wakes_up_a_few_times_a_second_and_its_master_less_often(
    start: Callable[..., Node]
) -> None:
    node = start(pools="default=10")
    pids = {"child": node.child(), "master": node.pid}
    # What is done once, at the start, is over when the first sweep was made.
    time.sleep(5)
    seconds = 8
    before = {name: slept(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    woke = {name: (slept(pid) - before[name]) / seconds for name, pid in pids.items()}
    # 3 and 1.8 were counted when this was written, 8 and 2.7 before.
    assert 1 < woke["child"] < 5, woke
    assert 0.5 < woke["master"] < 2.6, woke

"""What a task costs stays what it is: counted, not timed, so that it holds on any machine.

The bounds stand a little above what ``tests/costs.py`` counted when they were set. Who adds to the
way of a task sees here what it costs, and raises a bound only with a reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Server

ROOT = Path(__file__).parent.parent.parent

#: name -> (the most it may be, what it is)
BOUNDS = {
    # Two of them send and read: redis-py's, which did so before, were not counted.
    "submit_calls": (44, "Python calls of one submit"),
    "bulk_calls": (22, "Python calls of a task submitted in bulk"),
    "run_calls": (22, "Python calls of a task in its worker, from claim to record"),
    "submit_scripts": (1_000, "script calls of 1,000 submits"),
    "bulk_scripts": (2, "script calls of 1,000 tasks submitted in bulk"),
    # Two claims and one that finds nothing; outcomes gather while a slice of work is done.
    "run_scripts": (30, "script calls of 1,000 tasks run"),
    # Ten keys of them are for limits and for streams: a script names all it may use.
    "submit_bytes": (1_300, "bytes on the wire of one submit"),
    "bulk_bytes": (165, "bytes on the wire of a task submitted in bulk"),
    "run_bytes": (425, "bytes on the wire of a task run"),
    "waiting_bytes": (330, "memory of a waiting task with 100 bytes of arguments"),
    "finished_bytes": (360, "memory of a finished one"),
}


@pytest.fixture(scope="module")
def costs() -> dict[str, float]:
    """As counted on a server that nobody else uses."""
    server = Server("redis").start()
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests" / "costs.py"), server.url], check=True,
            stdout=subprocess.PIPE, text=True, timeout=60,
        )
    finally:
        server.close()
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_all_tasks_were_run(costs: dict[str, float]) -> None:
    assert costs["left"] == 0


@pytest.mark.parametrize("name", BOUNDS)
def test_a_task_costs_no_more_than_it_did(costs: dict[str, float], name: str) -> None:
    most, what = BOUNDS[name]
    assert 0 < costs[name] <= most, f"{what}: see tests/costs.py"

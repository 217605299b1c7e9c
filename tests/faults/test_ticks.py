"""Each tick is fired once, whoever dies; the long version: python -m tests.faults.ticks"""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import Server
from ticks import run

pytestmark = pytest.mark.server


def test_each_tick_is_fired_once_while_masters_and_children_are_killed(
    tmp_path: Path, one_server: Server
) -> None:
    report = run(one_server.url, tmp_path, masters=2, ticks=25, every_s=0.25, seed=5, pause_s=1.2)
    print(report)
    assert report.well, str(report)

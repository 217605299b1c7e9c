"""Random faults for a short while; ``python -m tests.faults.chaos --minutes 30`` for a long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos import Chaos

pytestmark = pytest.mark.server


@pytest.mark.parametrize(("seed", "streams"), [(11, False), (12, True)], ids=["zset", "streams"])
def test_random_faults_lose_nothing_and_double_nothing(
    tmp_path: Path, seed: int, streams: bool
) -> None:
    print(f"seed {seed}")
    report = Chaos(
        seed=seed, seconds=5 if streams else 8, folder=tmp_path, pause_s=(0.1, 1.2), quiet=0,
        idle_s=5, lease_s=2, streams=streams,
    ).run()
    print(report)
    assert report.history.submitted, "the producers did nothing"
    assert report.well, str(report)

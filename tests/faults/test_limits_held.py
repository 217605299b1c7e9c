"""Limits hold while children and nodes are killed; by hand for longer: ``python -m
tests.faults.limits_held``."""

from __future__ import annotations

from pathlib import Path

import pytest
from limits_held import LimitsHeld
from servers import Server

pytestmark = pytest.mark.server


def test_no_kill_lets_more_run_than_a_limit_allows_or_keeps_any_from_running(
    one_server: Server, tmp_path: Path
) -> None:
    report = LimitsHeld(
        server=one_server, folder=tmp_path, seed=23, seconds=5, pause_s=(0.4, 1.2),
    ).run()
    print(report)
    assert sum(report.kills.values()) >= 3
    assert not report.violations, str(report)

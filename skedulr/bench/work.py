"""The tasks that are measured: they note their start, and do next to nothing else."""

from __future__ import annotations

import skedulr

from . import meter


@skedulr.task(name="bench.noop", max_retries=0)
def noop(asked_at: float | None = None, payload: str = "") -> None:
    """Start, be counted, end."""
    meter.hit(asked_at)

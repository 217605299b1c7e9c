"""The tasks that main_job.py measures."""

import meter

import skedulr


@skedulr.task(name="noop")
def noop(asked_at=None):
    meter.hit(asked_at)

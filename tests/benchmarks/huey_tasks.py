"""The same no-op task for huey, for main_job.py --huey."""

import os

import meter
from huey import RedisHuey

huey = RedisHuey("bench", url=os.environ["SKEDULR_REDIS_URL"], results=False)


@huey.task()
def noop(asked_at=None):
    meter.hit(asked_at)

"""The measured task for huey."""

import os

from huey import RedisHuey
from redis import ConnectionPool

from skedulr.bench import meter

# redis-py gives out 100 connections, and some of a hundred workers were refused one.
pool = ConnectionPool.from_url(os.environ["SKEDULR_REDIS_URL"], max_connections=300)
huey = RedisHuey("bench", connection_pool=pool, results=False)


@huey.task()
def noop(sent=None):
    meter.hit(sent)


def enqueue(count):
    for _ in range(count):
        noop()


def send(sent):
    noop(sent)

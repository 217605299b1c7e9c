"""The measured task for dramatiq."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from skedulr.bench import meter

# More connections than redis-py's 100: each worker needs one.
dramatiq.set_broker(RedisBroker(url=os.environ["SKEDULR_REDIS_URL"], max_connections=300))


@dramatiq.actor(queue_name="default", max_retries=0)
def noop(sent=None):
    meter.hit(sent)


def enqueue(count):
    for _ in range(count):
        noop.send()


def send(sent):
    noop.send(sent)

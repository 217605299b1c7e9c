"""The measured task for Skedulr: one master with one child."""

import socket
import time

import gevent.socket

import skedulr
from skedulr.bench import meter

#: Nobody writes to it: what waits for it waits for its time to be over.
SILENT = socket.socketpair()


@skedulr.task(name="noop")
def noop(sent=None):
    meter.hit(sent)


@skedulr.task(name="slow")
def slow(seconds):
    time.sleep(seconds)


@skedulr.task(name="on_socket")
def on_socket(seconds):
    began = time.time()
    try:
        gevent.socket.wait_read(SILENT[0].fileno(), seconds)
    except TimeoutError:
        pass
    meter.hit(began)  # when it began, and now, when it ends


def enqueue(count):
    for _ in range(count):
        noop.submit()


def bulk(count):
    skedulr.submit_many(noop.bind() for _ in range(count))


def send(sent):
    noop.submit(sent)

"""The measured task for Skedulr: one master with one child."""

import resource
import socket
import time

import gevent.socket

import skedulr
from skedulr.bench import meter

#: Sockets that nobody writes to: what waits for one waits for its time to be over. Each waits on
#: one of its own, as it would for a server's answer.
SILENT = []
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


@skedulr.task(name="noop")
def noop(sent=None):
    meter.hit(sent)


@skedulr.task(name="slow")
def slow(seconds):
    time.sleep(seconds)


@skedulr.task(name="on_socket")
def on_socket(seconds):
    began = time.time()
    wait_on_socket(seconds)
    meter.hit(began)  # when it began, and now, when it ends


def wait_on_socket(seconds):
    ends = SILENT.pop() if SILENT else socket.socketpair()
    try:
        gevent.socket.wait_read(ends[0].fileno(), seconds)
    except TimeoutError:
        pass
    SILENT.append(ends)


def enqueue(count):
    for _ in range(count):
        noop.submit()


def bulk(count):
    skedulr.submit_many(noop.bind() for _ in range(count))


def send(sent):
    noop.submit(sent)

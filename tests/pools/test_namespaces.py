"""Two installations on one server, the name of one the beginning of the other's."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from harness import WORK, Node, wait_until
from servers import Server

import skedulr
from skedulr.doctor import Doctor
from skedulr.wire import Wire

pytestmark = pytest.mark.server

MORE_WORK = WORK + '''

@skedulr.every(0.2)
@task(name="tick")
def tick():
    note("ticked")
'''


def keys_of(server: Server, namespace: str) -> dict[bytes, bytes | None]:
    """Every key of a namespace, with all it holds."""
    client = server.client
    found = [*client.scan_iter(f"{{{namespace}}}*"), *client.scan_iter(f"{{{namespace}:*")]
    return {key: client.dump(key) for key in found}


def test_two_installations_on_one_server_never_touch_each_other(
    nodes: Callable[..., Node], one_server: Server
) -> None:
    other = skedulr.Skedulr(url=one_server.url, namespace="shop2")
    other.submit("quick")
    other.remote("quick", delay=60, id="same", unique="until_done", key="k").submit()
    other.schedule_recurring(other.remote("quick").bind(), 3600, name="mine")
    other.pause("default")
    before = keys_of(one_server, "shop2")
    assert len(before) > 8
    heard: list[bytes] = []
    listening = threading.Event()
    listener = _listen(one_server, b"{shop2}*", heard, listening)
    assert listening.wait(5)
    node = nodes(one_server.url, "--lease", "2", work=MORE_WORK, namespace="shop").start()
    app = node.app
    assert app is not None
    app.remote("quick", delay=60, id="same", unique="until_done", key="k").submit()
    app.schedule_recurring(app.remote("quick").bind(), 3600, name="mine").run().result(timeout=10)
    running = app.submit("hold", 30)
    node.effects.wait("began", running.id.partition("/")[2])
    running.cancel()
    wait_until(lambda: running.state == "cancelled", "it is told")
    node.effects.wait("ticked", count=2)
    app.scale_pool("default", 2)
    app.pause()
    app.resume()
    assert app.purge("default") >= 1
    for state in ("succeeded", "cancelled"):
        app.purge("default", state=state)
    wire = Wire(one_server.url, name="test:doctor")
    doctor = Doctor(wire, "shop", moment_s=0.01)
    for pool in doctor.pools():
        doctor.mend(doctor.examine(pool))
    doctor.mend(doctor.examine_namespace())
    wire.close()
    node.signal(15)
    assert node.wait() == 0
    assert keys_of(one_server, "shop2") == before
    one_server.client.publish("test:end", "")
    listener.join(5)
    assert heard == []
    app.close()
    other.close()


def _listen(
    server: Server, pattern: bytes, heard: list[bytes], listening: threading.Event
) -> threading.Thread:
    """Take down the channels of a pattern on which something is said, until ``test:end``."""
    def run() -> None:
        with server.client.pubsub() as subscription:
            subscription.psubscribe(pattern)
            subscription.subscribe("test:end")
            for message in subscription.listen():
                if message["type"] == "subscribe":
                    listening.set()
                if message["channel"] == b"test:end" and message["type"] == "message":
                    return
                if message["type"] == "pmessage":
                    heard.append(message["channel"])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread

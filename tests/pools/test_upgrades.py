"""What earlier releases stored, and what later ones may: read, used, or left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from harness import Node, wait_until
from kept_store import FIXTURES, NAMESPACE, SHOWN, TASKS, load
from servers import Server

import skedulr
from skedulr import message
from skedulr.doctor import Doctor
from skedulr.keys import PoolKeys
from skedulr.store import Store, Submission
from skedulr.wire import Wire

pytestmark = pytest.mark.server

STORES = sorted(FIXTURES.glob("store-*.jsonl"))


def test_the_store_of_this_release_is_among_those_that_are_kept() -> None:
    release = skedulr.__version__
    assert FIXTURES / f"store-{release}.jsonl" in STORES, "python tests/kept_store.py"


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
def test_a_store_of_an_earlier_release_is_shown_as_it_was(path: Path, server: Server) -> None:
    shown = load(path, server)
    app = skedulr.Skedulr(url=server.url, namespace=NAMESPACE)
    assert {one["state"] for one in shown.values()} == {
        "waiting", "scheduled", "queued", "running", "succeeded", "dead", "cancelled", "skipped",
        "expired",
    }
    for id, before in shown.items():
        now = app.client.get(id)
        assert _plain({part: now.get(part) for part in SHOWN}) == before, id
    assert app.get("default/succeeded").result(timeout=5)["list"] == [1, 2.5, None, True]
    assert app.get("default/moved").result(timeout=5) == 8
    assert [one.name for one in app.schedules()] == ["hourly", "paused", "yearly"]
    assert app.schedules()["paused"].paused
    assert app.client.overview().stats()["dead"] == 1
    with pytest.raises(skedulr.DuplicateTask):
        app.remote("echo", key="k", unique="until_done").submit(1)
    found = [one for pool in ("default", "other")
             for one in _doctor(server).examine(pool)]
    assert found == []
    app.close()


def _plain(value: Any) -> Any:
    """As the file has it."""
    return json.loads(json.dumps(value, default=lambda one: f"<{type(one).__name__}>"))


def _doctor(server: Server) -> Doctor:
    return Doctor(Wire(server.url, name="test:doctor"), NAMESPACE, moment_s=0.01)


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
def test_a_store_of_an_earlier_release_is_worked_off(
    path: Path, one_server: Server, nodes: Callable[..., Node]
) -> None:
    load(path, one_server)
    node = nodes(
        one_server.url, "--lease", "2", "--keep-records-days", "36500", pools="default=4,other=2",
        work=TASKS, namespace=NAMESPACE,
    )
    (node.folder / "open").touch()
    node.start(2)
    app = node.app
    assert app is not None
    app.resume("default")
    # What ran when its machine died is given back when its lease is over.
    assert app.get("default/running").result(timeout=20) == "done"
    assert app.wait(["default/first", "default/waits"], timeout=10)
    assert app.resubmit("default/dead")
    wait_until(lambda: app.get("default/dead").state == "dead", "it fails again")
    app.cancel("default/between")
    # Its child hears of it by an edge that the earlier release made.
    app.cancel("default/scheduled")
    wait_until(lambda: app.get("default/child").state == "skipped", "the child is told")
    assert app.schedules()["yearly"].run().result(timeout=10) == "x"
    assert app.remote("echo", key="k", unique="until_done").submit(1).result(timeout=10) == 1
    # What the dead machine's process is said to hold goes with its key, in time.
    assert {one.kind for pool in ("default", "other") for one in _doctor(one_server).examine(pool)
            } <= {"owned-without-claim"}


# --- a newer release beside this one --------------------------------------------------------------


def put_newer(server: Server, uid: str, envelope: bytes) -> None:
    """Store a task as a later release might."""
    wire = Wire(server.url, name="test:newer")
    verdicts, _ = Store(PoolKeys("skedulr", "default")).submit(
        wire, [Submission(uid, envelope, "")]
    )
    assert verdicts == "s"
    wire.close()


NEWER: dict[str, bytes] = {
    "version": msgpack.packb([message.SEALED_VERSION + 1, "quick", [[], {}], None]),
    "form": msgpack.packb([99, "quick", {"call": 1}, None, "and more"]),
    # A value of a type that is not there yet.
    "value": msgpack.packb([1, "quick", [[msgpack.ExtType(99, b"x")], {}], None]),
}


def test_what_a_newer_release_stored_waits_for_it_a_bounded_time(
    nodes: Callable[..., Node], one_server: Server
) -> None:
    for uid, envelope in NEWER.items():
        put_newer(one_server, uid, envelope)
    node = nodes(one_server.url, "--unknown-after", "1.5").start()
    node.wait_log("it waits for a newer process, at most 1.5 s")
    wait_until(lambda: one_server.client.hlen(PoolKeys("skedulr", "default").claims) == 0,
               "it is put back")
    bodies = one_server.client.hgetall(PoolKeys("skedulr", "default").tasks)
    # As it was: a newer process would run it.
    assert {uid.decode(): bodies[uid][:len(NEWER[uid.decode()])] for uid in bodies} == NEWER
    done = node.submit("quick")
    node.wait_state(done, "succeeded")
    keys = PoolKeys("skedulr", "default")
    wait_until(lambda: one_server.client.zcard(keys.dead) == len(NEWER), "their time is over")
    for uid in NEWER:
        record = one_server.client.hget(keys.records, uid)
        assert b"PayloadError" in record
        assert b"this release reads 1 and 2" in record or b"newer Skedulr" in record
    assert "Traceback" not in node.log
    # And the doctor leaves them alone.
    found = Doctor(Wire(one_server.url, name="d"), "skedulr", moment_s=0.01).examine("default")
    assert {(one.kind, one.fixable) for one in found} == {("newer-release", False)}


def test_what_nobody_can_read_is_dead_at_once(
    nodes: Callable[..., Node], one_server: Server
) -> None:
    put_newer(one_server, "torn", b"\x94\x01\xa5quick\x91")
    node = nodes(one_server.url).start()
    keys = PoolKeys("skedulr", "default")
    wait_until(lambda: one_server.client.zcard(keys.dead) == 1, "it is dead")
    assert "waits for a newer process" not in node.log

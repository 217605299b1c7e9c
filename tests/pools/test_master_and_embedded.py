"""A master with the embedded server: found or started, stopped last, never left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from harness import WORK, Node, gone, wait_until

import skedulr
from skedulr.config import socket_in, socket_url

pytestmark = pytest.mark.server

Nodes = Callable[..., Node]


def server_pid(node: Node) -> int:
    """The process id of the Valkey in the node's folder."""
    for process in psutil.process_iter(["cmdline", "cwd"]):
        line = " ".join(process.info["cmdline"] or ())
        if "valkey-server" in line and process.info["cwd"] == str(node.folder / ".skedulr"):
            pid: int = process.pid
            return pid
    return 0


def connect(node: Node) -> Node:
    """Let the test submit to the node's embedded server."""
    path = wait_until(lambda: socket_in(node.folder / ".skedulr"), "the server has a socket")
    node.app = skedulr.Skedulr(url=socket_url(path))
    return node


def started(nodes: Nodes, *flags: str) -> Node:
    return connect(nodes(None, "--embedded", *flags).start())


def test_data_survive_a_restart_and_the_server_is_stopped_last(nodes: Nodes) -> None:
    node = started(nodes)
    ran, held = node.submit("quick"), node.submit("hold", 60)
    later = node.submit("quick", delay=3600)
    node.wait_state(ran, "succeeded")
    node.effects.wait("began", held)
    pid = server_pid(node)
    node.signal_group(signal.SIGTERM)
    node.wait_log("draining")
    assert not gone(pid), "the drain needs it"
    node.signal(signal.SIGTERM)
    wait_until(lambda: node.signal(signal.SIGTERM) or "stopping at once" in node.log, "it hurries")
    assert node.wait() == 0
    assert gone(pid)
    connect(node.start())
    assert node.task(ran)["state"] == "succeeded"
    assert node.task(later)["state"] == "scheduled"
    assert node.effects.wait("began", held, count=2)[1].attempt == 1


def test_after_kill_of_the_master_the_children_drain_on_it_and_then_it_ends(nodes: Nodes) -> None:
    node = started(nodes)
    uid = node.submit("gate", "open")
    node.effects.wait("began", uid)
    server, child = server_pid(node), node.child()
    os.kill(node.pid, signal.SIGKILL)
    node.wait()
    (node.folder / "open").touch()
    wait_until(lambda: gone(child), "the child has drained")
    wait_until(lambda: gone(server), "the server has ended")
    assert socket_in(node.folder / ".skedulr") is None
    connect(node.start())
    assert node.wait_state(uid, "succeeded")["attempt"] == 1


def test_after_kill_of_master_and_children_the_server_is_not_left_behind(nodes: Nodes) -> None:
    node = started(nodes, "--lease", "1")
    uid = node.submit("gate", "open")
    node.effects.wait("began", uid)
    server = server_pid(node)
    node.kill_all()
    wait_until(lambda: gone(server), "the server has ended")
    (node.folder / "open").touch()
    connect(node.start())
    node.wait_state(uid, "succeeded")


def test_without_a_server_anywhere_one_is_started_and_said_so(
    nodes: Nodes, tmp_path: Path
) -> None:
    node = nodes(None, "--embedded-dir", "private")
    node.start(ready=None)
    wait_until(lambda: "using" in node.log or "embedded" in node.log, "it has a server")
    if "using redis://" in node.log:
        pytest.skip("a server answers at the default address")
    node.wait_log("started an embedded server in private")
    node.wait_ready(1)
    assert (node.folder / "private").stat().st_mode & 0o777 == 0o700


def test_an_error_in_a_module_is_told_before_a_server_is_started(nodes: Nodes) -> None:
    node = nodes(None, "--embedded", work="print('hello')\nimport no_such_module_here\n")
    assert node.start(ready=None).wait() == 3
    assert node.log.count("No module named 'no_such_module_here'") == 1
    assert "no pool can start: see the error above; no server was started" in node.log
    assert "hello" not in node.log and not (node.folder / ".skedulr").exists()


def test_a_module_that_submits_as_it_is_imported_hinders_no_start(nodes: Nodes) -> None:
    late = "\n\nif not os.path.exists('submitted'):\n    quick.submit()\n"
    mark = "    open('submitted', 'w').close()\n"
    node = connect(nodes(None, "--embedded", work=WORK + late + mark).start())
    wait_until(lambda: node.effects.all(phase="ran"), "the task runs")


def test_data_that_can_not_be_read_are_told_and_end_it(nodes: Nodes) -> None:
    node = started(nodes)
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    (manifest,) = (node.folder / ".skedulr").glob("**/*.manifest")
    manifest.write_text("no manifest")
    assert node.start(ready=None).wait() == 2
    assert "did not start: " in node.log and "manifest" in node.log


def test_a_second_master_in_the_folder_joins_the_first_ones_server(nodes: Nodes) -> None:
    first = started(nodes)
    second = connect(nodes(None, "--embedded", work="", pools="other=2").start())
    server = server_pid(first)
    assert "joined an embedded server" in second.log
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    # The second one's keeper takes over; clients wait for it as for any server that restarts.
    wait_until(lambda: server_pid(second) not in (0, server), "there is a server again")
    connect(second)
    uid = second.submit("quick", pool="other")
    second.wait_state(uid, "succeeded", "other")
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    assert server_pid(second) == 0


def test_ctrl_c_for_the_whole_group_stops_everything_in_order(nodes: Nodes) -> None:
    node = started(nodes)
    uid = node.submit("quick")
    node.wait_state(uid, "succeeded")
    server = server_pid(node)
    node.signal_group(signal.SIGINT)
    assert node.wait() == 0
    assert gone(server)

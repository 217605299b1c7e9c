"""Starting: bad input gets one clear line and its exit status; a server that is away is awaited."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from harness import WORK, Node, wait_until
from servers import Server, free_port

pytestmark = pytest.mark.server

Nodes = Callable[..., Node]


def ended(node: Node) -> int:
    """Its exit status, for one that ends by itself at start."""
    return node.start(ready=None).wait(15)


@pytest.mark.parametrize(
    ("pools", "complaint"),
    [
        ("default", "not a pool spec"),
        ("a=1,a=2", "given twice"),
    ],
)
def test_a_pool_spec_that_is_wrong_is_named_and_the_status_is_2(
    nodes: Nodes, one_server: Server, pools: str, complaint: str
) -> None:
    node = nodes(one_server.url, pools=pools)
    assert ended(node) == 2
    assert complaint in node.log
    assert node.log.startswith("skedulr-master: ") and node.log.count("\n") == 1


def test_an_unknown_flag_ends_with_2(nodes: Nodes, one_server: Server) -> None:
    node = nodes(one_server.url, "--leese", "3")
    assert ended(node) == 2
    assert "--leese" in node.log


@pytest.mark.parametrize(
    ("work", "modules", "traced"),
    [
        ("import no_such_module_here\n", ("work",), "No module named 'no_such_module_here'"),
        ("def broken(:\n", ("work",), "SyntaxError"),
        ("raise SystemExit('not today')\n", ("work",), "SystemExit: not today"),
        (WORK, ("work:app",), "module 'work' has no attribute 'app'"),
        (WORK, ("work:note",), "is not a Skedulr app"),
    ],
    ids=["import", "syntax", "exit", "attribute", "other"],
)
def test_a_module_that_can_not_be_imported_shows_its_own_error_once_and_ends_with_3(
    nodes: Nodes, one_server: Server, work: str, modules: tuple[str, ...], traced: str
) -> None:
    node = nodes(one_server.url, work=work, modules=modules)
    assert ended(node) == 3
    assert traced in node.log
    assert node.log.count(traced) == 1, "it was tried once"
    assert "pools/child.py" not in node.log, "nothing of ours in the user's traceback"
    assert "pool default can not start" in node.log


def test_what_skedulr_refuses_ends_at_the_line_of_the_module(
    nodes: Nodes, one_server: Server
) -> None:
    node = nodes(one_server.url, work="import skedulr\n@skedulr.task(queue='mail')\ndef f(): 1\n")
    assert ended(node) == 3
    assert "unknown option 'queue' (here it is 'pool')" in node.log
    assert "options.py" not in node.log and "app.py" not in node.log, node.log


def test_a_port_that_another_master_has_names_that_master(
    nodes: Nodes, one_server: Server
) -> None:
    port = free_port()
    first = nodes(one_server.url, "--ui", f"127.0.0.1:{port}").start()
    second = nodes(one_server.url, "--ui", f"127.0.0.1:{port}")
    assert ended(second) == 2
    assert f"another master, pid {first.pid}, which runs in {first.folder}" in second.log
    assert "stop that one" in second.log and "--no-ui" in second.log


def test_pools_that_can_not_start_end_together(nodes: Nodes, one_server: Server) -> None:
    node = nodes(one_server.url, pools="default=2x2,other=2", work="import nothing_here\n")
    assert ended(node) == 3


def test_without_modules_it_says_so_and_claims_nothing(nodes: Nodes, one_server: Server) -> None:
    node = nodes(one_server.url, modules=()).start(ready=None)
    uid = node.submit("quick")
    node.wait_log("nothing is claimed")
    # It says so before it listens to signals, and leads after that.
    node.wait_log("leads, term")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert node.task(uid)["state"] == "queued"


def test_modules_are_found_in_the_folder_it_is_started_in_or_changed_to(
    nodes: Nodes, one_server: Server, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.py").write_text(WORK)
    node = nodes(one_server.url, "--chdir", str(tmp_path / "elsewhere"), modules=("far",)).start()
    node.wait_state(node.submit("quick"), "succeeded")


def test_a_named_server_that_is_away_is_awaited_and_nothing_else_is_started(
    nodes: Nodes, fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server(appendonly="yes")
    server.stop()
    node = nodes(server.url).start()
    node.wait_log("does not answer")
    assert server.url in node.log and "--redis" in node.log
    assert not (node.folder / ".skedulr").exists()
    server.start()
    node.wait_state(node.submit("quick"), "succeeded")


def test_a_server_that_comes_later_is_checked_then_and_once(
    nodes: Nodes, fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server(maxmemory_policy="allkeys-lru")
    server.stop()
    node = nodes(server.url).start()
    node.wait_log("does not answer")
    assert "maxmemory-policy" not in node.log
    server.start()
    node.wait_log("(maxmemory-policy allkeys-lru)")
    node.wait_log("set appendonly yes")
    node.wait_state(node.submit("quick"), "succeeded")
    assert node.log.count("(maxmemory-policy allkeys-lru)") == 1


def test_a_server_that_comes_later_and_is_too_old_ends_the_master(
    nodes: Nodes, fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server(appendonly="yes")
    server.stop()
    node = nodes(server.url)
    # Whatever comes is older than this.
    needs_more = (
        "from gevent import monkey; monkey.patch_all(); import sys; "
        "from skedulr import launch, servercheck; servercheck.OLDEST = (99, 0); "
        "sys.exit(launch.run(sys.argv[1:]))"
    )
    arguments = node.command[node.command.index("master") + 1:]
    node.command = (sys.executable, "-c", needs_more, *arguments)
    node.start()
    node.wait_log("does not answer")
    server.start()
    assert node.wait() == 2
    assert "which is too old: Skedulr needs Redis 7.0" in node.log


def test_a_password_that_is_refused_is_said_and_tried_again_until_it_is_right(
    nodes: Nodes, fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server(tcp=True)
    server.client.config_set("requirepass", "right")
    node = nodes(server.url.replace("//", "//:wrong@")).start(None)
    node.wait_log("does not let us in: it refuses this user or password")
    assert "wrong" not in node.log and "(from --redis)" in node.log
    server.client.config_set("requirepass", "wrong")
    node.wait_ready(1)
    node.wait_state(node.submit("quick"), "succeeded")


def test_something_else_that_answers_is_no_redis_that_is_away(nodes: Nodes) -> None:
    with ThreadingHTTPServer(("127.0.0.1", free_port()), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        nodes(f"redis://127.0.0.1:{other.server_port}/0").start(None).wait_log(
            "something else than Redis answers there"
        )
        other.shutdown()


def test_a_master_whose_server_is_away_can_be_stopped(
    nodes: Nodes, fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server()
    server.stop()
    node = nodes(server.url).start()
    node.signal_group(signal.SIGINT)
    assert node.wait(10) == 0


@pytest.mark.parametrize("sign", ["KUBERNETES_SERVICE_HOST", "INVOCATION_ID"])
def test_under_a_service_manager_no_server_is_started_unasked(nodes: Nodes, sign: str) -> None:
    node = nodes(None, env={sign: "x"})
    # The default address may have a server on a developer's machine: ask on a port nobody has.
    node.folder.joinpath("setup.cfg").write_text("[skedulr]\n")
    if ended_or_running(node) is None:
        pytest.skip("a server answers at the default address")
    assert "--redis" in node.log


def ended_or_running(node: Node) -> int | None:
    node.start(ready=None)
    assert node.process is not None
    process = node.process
    wait_until(
        lambda: process.poll() is not None or "using" in node.log, "it ends or finds a server"
    )
    status = process.poll()
    if status is not None:
        assert status == 2
    return status


def test_output_that_nobody_reads_does_not_stop_the_children(
    nodes: Nodes, one_server: Server
) -> None:
    node = nodes(one_server.url)
    reader = subprocess.Popen(["head", "-c", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert reader.stdin is not None
    node.start_into(reader.stdin.fileno())
    reader.stdin.close()
    reader.wait(10)
    uids = [node.submit("quick") for _ in range(5)]
    for uid in uids:
        node.wait_state(uid, "succeeded")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0


@pytest.mark.parametrize("embedded", [False, True], ids=["redis", "embedded"])
def test_it_starts_with_its_standard_input_closed(
    nodes: Nodes, one_server: Server, embedded: bool
) -> None:
    closed = ("sh", "-c", 'exec "$@" 0<&-', "sh")
    node = nodes(None if embedded else one_server.url, *["--embedded"] * embedded, command=closed)
    node.start()
    if not embedded:
        node.wait_state(node.submit("quick"), "succeeded")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0


def test_a_task_whose_name_nobody_registered_harms_no_other(start: Nodes) -> None:
    node = start("--unknown-after", "0")
    unknown = node.submit("no_such_task")
    known = node.submit("quick")
    node.wait_state(known, "succeeded")
    dead = node.wait_state(unknown, "dead")
    assert dead["error"]["type"] == "UnknownTask"
    assert "no_such_task" in dead["error"]["message"]


def test_children_that_die_as_they_import_are_given_up_with_1(
    nodes: Nodes, one_server: Server
) -> None:
    node = nodes(one_server.url, work="import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    assert ended(node) == 1
    assert node.log.count("killed by SIGSEGV") == 3
    assert "work.py" in node.log, "and where it was"


PRELOADED = """
import os

import skedulr

loaded_by = os.getpid()


@skedulr.task(name="who")
def who():
    return loaded_by, os.getpid(), os.getppid()
"""


def test_preloaded_modules_are_imported_once_by_the_master(
    nodes: Nodes, one_server: Server
) -> None:
    node = nodes(
        one_server.url, "--preload", pools="a=1,b=1", work=PRELOADED
    ).start(ready=2)
    for pool in ("a", "b"):
        loaded_by, pid, parent = node.app.remote("who", pool=pool).submit().result(10)
        assert loaded_by == parent == node.pid != pid


def test_a_preloaded_module_with_an_error_shows_it_and_ends_with_3(
    nodes: Nodes, one_server: Server
) -> None:
    node = nodes(one_server.url, "--preload", work="import no_such_module_here\n")
    assert ended(node) == 3
    assert node.log.count("No module named 'no_such_module_here'") == 1
    assert "skedulr/" not in node.log, "nothing of ours in the user's traceback"

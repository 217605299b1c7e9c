"""What a forked child has of its master: nothing that could bite."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import WORK, Node, gone, wait_until
from servers import Server, free_port

pytestmark = pytest.mark.server

Start = Callable[..., Node]

#: A task that looks at its own process.
LOOKING = WORK + '''

@task(name="look")
def look():
    import gc
    import random
    import socket
    import subprocess
    import threading

    from gevent.hub import get_hub
    from greenlet import greenlet

    ends = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            ends[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass
    names = []
    for one in gc.get_objects():
        if isinstance(one, greenlet) and not one.dead and one.parent is get_hub():
            run = getattr(one, "_run", None)
            names.append(getattr(run, "__qualname__", type(one).__name__))
    return {
        "pid": os.getpid(),
        "ends": ends,
        "greenlets": names,
        "random": [random.random(), os.urandom(4).hex()],
        "address": socket.getaddrinfo("localhost", 80)[0][4][0],
        "said": subprocess.run(["echo", "hello"], capture_output=True, text=True).stdout,
        "threads": len(os.listdir("/proc/self/task")),
    }
'''


#: A task that lets nothing else run until a file is there.
COMPUTING = WORK + '''

@task(name="compute_until")
def compute_until(file):
    note("began")
    while not os.path.exists(file):
        pass
'''


def look(node: Node, pool: str = "default") -> dict[str, Any]:
    uid = node.submit("look", pool=pool)
    found: dict[str, Any] = node.wait_state(uid, "succeeded", pool)["result"]
    return found


def ends(pid: int, kind: str) -> list[str]:
    """What the descriptors of a process lead to, of one kind."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            to = os.readlink(entry)
        except OSError:
            continue  # it was closed between the two looks: the process works
        if to.startswith(kind):
            found.append(to)
    return found


def inodes(pid: int, kind: str) -> set[str]:
    return set(ends(pid, kind))


def test_a_child_holds_no_socket_of_its_master_and_no_listening_one(start: Start) -> None:
    node = start("--ui", f"127.0.0.1:{free_port()}", pools="default=2,other=2", ready=2)
    masters = inodes(node.pid, "socket:")
    assert masters, "the UI's at least"
    first, second = node.children()
    wait_until(lambda: len(inodes(second, "socket:")) >= 3, "it is connected")
    assert not masters & inodes(first, "socket:")
    assert not masters & inodes(second, "socket:")
    assert not inodes(first, "socket:") & inodes(second, "socket:")
    for pid in (first, second):
        assert not [one for one in psutil.Process(pid).net_connections() if one.status == "LISTEN"]


def test_a_child_shares_no_pipe_or_loop_with_its_master_or_siblings(start: Start) -> None:
    node = start(pools="default=2,other=2", ready=2)
    first, second = node.children()
    assert not inodes(first, "pipe:") & inodes(second, "pipe:")
    assert not inodes(node.pid, "pipe:") & (inodes(first, "pipe:") | inodes(second, "pipe:"))
    for pid in (first, second):
        # Each loop has one; an inherited one would still be registered with the master's.
        assert len(ends(pid, "anon_inode:[eventpoll]")) <= 1
        assert len(ends(pid, "/memfd:skedulr-stack")) == 1


def test_a_child_answers_no_request_of_the_ui(start: Start) -> None:
    port = free_port()
    node = start("--ui", f"127.0.0.1:{port}", work=COMPUTING)
    uid = node.submit("compute_until", "enough")
    node.effects.wait("began", uid)
    # The only child computes: had it the socket, some of these would hang with it.
    for _ in range(20):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/stats", timeout=5) as reply:
            assert json.load(reply)["pools"]
    assert node.task(uid)["state"] == "running"
    (node.folder / "enough").touch()
    node.wait_state(uid, "succeeded")


def test_no_greenlet_of_the_master_runs_in_a_child(start: Start) -> None:
    node = start("--ui", f"127.0.0.1:{free_port()}", work=LOOKING)
    # Also in one that is forked later, from a master full of greenlets.
    os.kill(node.child(), 9)
    node.wait_ready(2)
    # What was inherited lies still for ever, below a hub that is no more.
    seen = set(look(node)["greenlets"])
    assert not {name for name in seen if name.startswith(("Master.", "Sizes.", "WSGIServer"))}
    assert seen & {"Fetcher._run"}, "and it can see its own"


def test_each_child_draws_other_random_numbers(start: Start) -> None:
    node = start(work=LOOKING, pools="default=1,other=1", ready=2)
    drawn = [look(node)["random"], look(node, "other")["random"]]
    os.kill(node.children()[0], 9)
    node.wait_ready(3)
    drawn += [look(node)["random"], look(node, "other")["random"]]
    assert len({one[0] for one in drawn}) == 4
    assert len({one[1] for one in drawn}) == 4


def test_a_child_resolves_names_and_starts_processes_at_once(start: Start) -> None:
    node = start(work=LOOKING)
    for count in range(2, 5):
        seen = look(node)
        assert seen["said"] == "hello\n"
        assert seen["address"] in ("127.0.0.1", "::1")
        os.kill(node.child(), 9)
        node.wait_ready(count)


def test_a_child_has_six_connections_at_most_each_with_its_name(
    start: Start, one_server: Server
) -> None:
    node = start("--lease", "1", pools="default=8", work=LOOKING)
    running = node.submit("gate", "open")
    uids = [node.submit("look") for _ in range(40)]
    for uid in uids:
        node.wait_state(uid, "succeeded")

    def roles() -> list[str]:
        names = [one["name"].split(":") for one in one_server.client.client_list()]
        return sorted(name[3] for name in names if name[0] == "skedulr" and name[2] == "default")

    # The heart comes last, at its first renewal.
    wait_until(lambda: "heart" in roles(), "all of them are there")
    assert len(roles()) <= 6, roles()
    assert len(set(roles())) == len(roles())
    (node.folder / "open").touch()
    node.wait_state(running, "succeeded")


@pytest.mark.parametrize("loop", ["Fetcher._run", "Recorder._run", "Control._run"])
def test_a_child_one_of_whose_loops_has_died_is_replaced(start: Start, loop: str) -> None:
    work = WORK + '''

@task(name="sabotage")
def sabotage(loop):
    import gc
    import pathlib

    import gevent

    # It comes again, since nothing was recorded of it: only the first child is to go.
    done = pathlib.Path("done")
    if done.exists():
        return
    done.touch()
    for one in gc.get_objects():
        if isinstance(one, gevent.Greenlet) and not one.dead:
            if getattr(one._run, "__qualname__", "") == loop:
                one.kill(block=False)
'''
    node = start(work=work)
    first = node.child()
    node.submit("sabotage", loop)
    wait_until(lambda: gone(first), lambda: f"it is replaced:\n{node.log}")
    assert f"the {loop.partition('.')[0].lower()} of pid {first} has ended" in node.log
    uid = node.submit("quick")
    node.wait_state(uid, "succeeded")


def test_the_masters_death_is_noticed_though_another_process_adopts_the_child(
    start: Start,
) -> None:
    node = start()
    child = node.child()
    node.signal(9)
    node.wait()
    wait_until(lambda: gone(child), "it is gone")


def test_children_boot_while_the_master_looks_up_host_names(
    nodes: Callable[..., Node], fresh_server: Callable[..., Server]
) -> None:
    """A look-up holds locks of the C library, which a fork would copy as held for ever."""
    server = fresh_server(tcp=True)
    url = server.url.replace("127.0.0.1", "localhost")
    node = nodes(url, "--ui", f"127.0.0.1:{free_port()}", work=LOOKING).start()
    for count in range(2, 8):
        # Its connections gone, the master resolves the name again, at the same time as it forks.
        server.client.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")
        os.kill(node.child(), 9)
        node.wait_ready(count)
    assert look(node)["said"] == "hello\n"

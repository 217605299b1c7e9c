"""The commands as processes, against a real master: what a person at a terminal goes through."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Node, wait_until

WORK = '''
import time
from skedulr import task

@task(name="greet")
def greet(name):
    return f"Hello, {name}!"

@task(name="fail", max_retries=0)
def fail():
    raise ValueError("boom")

@task(name="hold")
def hold(seconds):
    time.sleep(seconds)
'''


def environment(node: Node) -> dict[str, str]:
    clean = {name: text for name, text in os.environ.items() if not name.startswith("SKEDULR_")}
    return {**clean, "SKEDULR_REDIS_URL": str(node.url)}


def command(node: Node, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """``skedulr`` run to its end in the node's folder."""
    return subprocess.run(
        [sys.executable, "-m", "skedulr", *arguments], cwd=node.folder, env=environment(node),
        capture_output=True, text=True, timeout=30, **options,
    )


def test_a_session_at_the_terminal(start: Callable[..., Node]) -> None:
    node = start(work=WORK)
    wait_until(lambda: command(node, "check").returncode == 0, what="the node is alive")

    id = command(node, "submit", "greet", "--args", '["Ann"]').stdout.strip()
    done = command(node, "result", id, "--timeout", "10")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello, Ann!\n", "")
    assert json.loads(command(node, "task", id, "--json").stdout)["state"] == "succeeded"

    id = command(node, "submit", "fail").stdout.strip()
    failed = command(node, "result", id, "--timeout", "10")
    assert failed.returncode == 3 and "ValueError: boom" in failed.stderr
    assert id in command(node, "list", "--state", "dead").stdout

    id = command(node, "submit", "hold", "--args", "[60]").stdout.strip()
    node.wait_state(id.partition("/")[2], "running")
    assert command(node, "result", id).returncode == 4
    # It may have stopped already when the command looks.
    assert re.search("told to stop|cancelled", command(node, "cancel", id).stdout)
    assert command(node, "result", id, "--timeout", "10").returncode == 3

    # The first record is written while the child boots.
    wait_until(lambda: "default=4" in command(node, "nodes").stdout, what="its workers are told")
    pools = json.loads(command(node, "pools", "--json").stdout)["items"]
    assert [(pool["name"], pool["succeeded"]) for pool in pools] == [("default", 1)]


def test_a_file_of_calls_runs(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start(work=WORK)
    lines = "".join(json.dumps({"args": [f"n{n}"]}) + "\n" for n in range(200))
    done = command(node, "submit", "greet", "--jsonl", "-", input=lines)
    assert done.stdout.startswith("200 tasks are submitted") and done.stderr == ""

    def all_ran() -> bool:
        return json.loads(command(node, "stats", "--json").stdout)["succeeded"] == 200

    wait_until(all_ran, what="all of them have run")


def test_ctrl_c_ends_a_wait_at_once_and_quietly(start: Callable[..., Node]) -> None:
    node = start(work=WORK)
    id = command(node, "submit", "hold", "--args", "[60]").stdout.strip()
    waiting = subprocess.Popen(
        [sys.executable, "-m", "skedulr", "result", id, "--timeout", "60"], cwd=node.folder,
        env=environment(node), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    assert node.app is not None
    channels = node.app.client.ask
    # Its own channel: another's would say nothing of whether it has begun to wait.
    own = f"*ended:{waiting.pid}-*"
    wait_until(
        lambda: channels(lambda wire: wire.call("PUBSUB", "CHANNELS", own)),
        what="it waits for the end",
    )
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=20)
    assert (waiting.returncode, out, err) == (130, "", "")


def test_with_a_codec_only_those_with_the_key_submit_and_read(
    start: Callable[..., Node], tmp_path: Path,
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a long and secret text of ours\n")
    node = start("--codec", f"encrypt:{keys}", work=WORK)
    keyed = {**environment(node), "SKEDULR_CODEC": f"encrypt:{keys}"}

    def with_key(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "skedulr", *arguments], cwd=node.folder, env=keyed,
            capture_output=True, text=True, timeout=30,
        )

    id = with_key("submit", "greet", "--args", '["Ann"]').stdout.strip()
    assert with_key("result", id, "--timeout", "10").stdout == "Hello, Ann!\n"
    blind = command(node, "result", id)
    assert blind.returncode == 1 and "sealed by a codec" in blind.stderr
    forged = command(node, "submit", "greet", "--args", '["Eve"]').stdout.strip()
    told = with_key("result", forged, "--timeout", "10")
    assert told.returncode == 3 and "not sealed" in told.stderr

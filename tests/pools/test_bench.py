"""``skedulr bench``: every figure is there, others' keys stay as they were, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from servers import Server, wait_until

import skedulr
from skedulr.bench.parts import Amounts
from skedulr.cli import bench, run

FIGURES = {
    "submit_alone_per_s", "submit_crowd_per_s", "submit_bulk_per_s", "waiting_bytes", "drain_per_s",
    "drain_cpu_us", "drain_server_us", "drain_scripts", "drain_wire_bytes", "finished_bytes",
    "latency_idle_p50_ms", "latency_idle_p99_ms", "latency_loaded_p50_ms", "latency_loaded_p99_ms",
    "late_p50_ms", "late_p99_ms", "early",
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As few tasks as say anything, in a folder without settings."""
    for name in list(os.environ):
        if name.startswith("SKEDULR_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    few = Amounts(submits=100, tasks=2_000, probes=20, delayed=50, over_s=0.5)
    monkeypatch.setattr(bench, "QUICK", few)


def content(server: Server) -> dict[bytes, Any]:
    return {key: server.client.dump(key) for key in server.client.keys("*")}


def test_all_figures_and_what_they_hold_for_and_no_key_of_others_is_touched(
    one_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    app = skedulr.Skedulr(url=one_server.url)
    app.submit_many(skedulr.remote("work").bind(n) for n in range(10))
    one_server.client.set("somebody's", "1")
    before = content(one_server)
    assert run(["bench", "--quick", "--json", "--redis", one_server.url]) == 0
    out, err = capsys.readouterr()
    found = read(out)
    assert err.startswith("measuring on ")
    assert found["figures"].keys() >= FIGURES
    assert all(value > 0 for name, value in found["figures"].items() if name != "early")
    assert found["figures"]["early"] == 0
    assert found["conditions"]["persistence"] == "none"
    assert found["conditions"]["payload_bytes"] == 100
    assert found["conditions"]["round_trip_us"] > 0
    assert content(one_server) == before


def test_a_server_of_its_own_is_made_and_removed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["bench", "submit", "--quick", "--persistence", "everysec"]) == 0
    out, _ = capsys.readouterr()
    assert "append-only file, fsync everysec" in out
    assert "submit, one greenlet" in out
    assert list(tmp_path.iterdir()) == []
    assert not servers_of_this_process()


def test_a_namespace_with_keys_is_refused(
    one_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    skedulr.Skedulr(url=one_server.url).submit(skedulr.remote("work"))
    before = content(one_server)
    status = run(["bench", "submit", "--redis", one_server.url, "--namespace", "skedulr"])
    assert status == 2
    assert "namespace 'skedulr' has keys" in capsys.readouterr().err
    assert content(one_server) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(one_server: Server, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "skedulr", "bench", "latency", "--redis", one_server.url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    try:
        wait_until(lambda: one_server.client.keys("{bench-*}:nodes"), 20, "its master is there")
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, b""), err
    assert one_server.client.keys("*") == []
    assert family and not any(one.is_running() for one in family)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["drian"], "there is no part 'drian' (did you mean 'drain'?)"),
        (["--tasks", "5"], "--tasks 5: at least 100"),
        (["--workers", "0"], "--workers 0: at least 1"),
        (["--persistence", "always", "--redis", "redis://127.0.0.1:1/0"], "the bench's own server"),
    ],
)
def test_what_can_not_be_measured_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--redis", "redis://127.0.0.1:1/0"]) == 1
    assert "Redis does not answer at redis://127.0.0.1:1/0" in capsys.readouterr().err


def read(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def servers_of_this_process() -> list[psutil.Process]:
    return [
        one for one in psutil.Process().children(recursive=True)
        if "valkey-server" in one.name() and "skedulr-bench" in one.cwd()
    ]

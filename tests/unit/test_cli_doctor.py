"""``skedulr doctor``: what it prints, its exit statuses, and that --fix leaves nothing broken."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from cli_driver import Cli, Hands, Terminal
from servers import Server

import skedulr.doctor
from skedulr.cli import doctor as command
from skedulr.keys import PoolKeys

KEYS = PoolKeys("skedulr", "default")


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], one_server: Server, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    """The command line with a server that has one task in each of two pools."""
    for name in list(os.environ):
        if name.startswith("SKEDULR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SKEDULR_REDIS_URL", one_server.url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(skedulr.doctor, "MOMENT_S", 0.01)
    monkeypatch.chdir(tmp_path)
    made = Cli(capsys)
    made.submit("work", "--id", "a")
    made.submit("work", "--id", "b", "--pool", "critical")
    return made


def test_nothing_broken_is_said_and_exits_0(cli: Cli) -> None:
    assert cli.ok("doctor").lines == ["nothing is broken"]
    assert cli.ok("doctor", "--fix").lines == ["nothing is broken"]
    assert cli.ok("doctor", "--json").json == {"items": [], "cursor": None}


def test_what_is_broken_is_shown_and_left_alone_and_exits_1(cli: Cli, one_server: Server) -> None:
    one_server.client.zrem(KEYS.ready, "a")
    for _ in range(2):
        outcome = cli("doctor")
        assert (outcome.status, outcome.err) == (1, "")
        assert outcome.lines == [
            "POOL KIND ABOUT STATE WHAT",
            "default in-no-place a broken its body is there, and nothing would ever run it",
            "", "1 broken (--fix mends them)",
        ]


def test_json_is_one_document_in_the_form_of_a_list(cli: Cli, one_server: Server) -> None:
    one_server.client.zrem(KEYS.ready, "a")
    expected = {"kind": "in-no-place", "pool": "default", "uid": "a", "fixable": True,
                "text": "its body is there, and nothing would ever run it"}
    outcome = cli("doctor", "--json")
    assert outcome.status == 1
    assert outcome.json == {"items": [{**expected, "mended": False}], "cursor": None}
    outcome = cli("doctor", "--json", "--fix")
    assert outcome.status == 0
    assert outcome.json == {"items": [{**expected, "mended": True}], "cursor": None}


def test_fix_mends_says_so_and_exits_0(cli: Cli, one_server: Server) -> None:
    one_server.client.zrem(KEYS.ready, "a")
    one_server.client.hset(KEYS.broken, "x", "why")
    outcome = cli.ok("doctor", "--fix")
    assert outcome.lines[1:] == [
        "default in-no-place a mended its body is there, and nothing would ever run it",
        "default set-aside x mended set aside by a script: why",
        "", "2 mended",
    ]
    assert cli.ok("doctor").lines == ["nothing is broken"]
    assert one_server.client.zscore(KEYS.ready, "a") is not None


def test_what_comes_to_light_by_a_mend_is_mended_as_well(cli: Cli, one_server: Server) -> None:
    one_server.client.hset(KEYS.unique, "digest", "a 0")
    one_server.client.hset(KEYS.tasks, "a", b"rubbish")
    outcome = cli.ok("doctor", "--fix")
    assert [line.split()[1] for line in outcome.lines[1:-2]] == [
        "body-unreadable", "lock-without-holder"
    ]


def test_what_needs_a_person_is_left_and_exits_1(cli: Cli, one_server: Server) -> None:
    one_server.client.set("{skedulr:default}:strange", "1")
    one_server.client.zrem(KEYS.ready, "a")
    outcome = cli("doctor", "--fix")
    assert outcome.status == 1
    assert outcome.lines[-1] == "1 mended, 1 shown that --fix leaves alone"
    assert one_server.client.exists("{skedulr:default}:strange")


def test_only_the_named_pool_is_examined(cli: Cli, one_server: Server) -> None:
    one_server.client.zrem(KEYS.ready, "a")
    one_server.client.hset("{skedulr}:nodes", "n", b"\xc1")
    assert cli.ok("doctor", "--pool", "critical").lines == ["nothing is broken"]
    assert len(cli("doctor", "--pool", "default", "--json").json["items"]) == 1
    assert len(cli("doctor", "--json").json["items"]) == 2


def test_an_unknown_pool_is_refused_with_the_nearest_one(cli: Cli) -> None:
    line = cli.refused("doctor", "--pool", "critcal", status=1)
    assert line == "skedulr doctor: there is no pool 'critcal' (did you mean 'critical'?)"


def test_without_redis_it_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEDULR_REDIS_URL", "redis://127.0.0.1:1/0")
    assert "Redis does not answer at redis://127.0.0.1:1/0" in cli.refused("doctor", status=1)


def test_a_namespace_is_examined_by_its_name(cli: Cli, one_server: Server) -> None:
    one_server.client.zadd("{other:default}:ready", {"ghost": 1})
    assert cli.ok("doctor").lines == ["nothing is broken"]
    items = cli("doctor", "--namespace", "other", "--json").json["items"]
    assert {one["kind"] for one in items} == {"queued-without-body", "pool-unlisted"}


def test_a_long_table_is_cut_and_says_where_the_rest_is(
    cli: Cli, one_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "MOST_ROWS", 2)
    for i in range(5):
        one_server.client.zadd(KEYS.ready, {f"ghost{i}": i})
    lines = cli("doctor").lines
    assert len(lines) == 6
    assert lines[3] == "... and 3 more: --json gives all"
    assert len(cli("doctor", "--json").json["items"]) == 5


def test_a_terminal_sees_how_far_it_is_and_a_pipe_does_not(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    assert cli("doctor").err == ""
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("skedulr.cli.progress._REDRAW_S", 0.0)
    assert cli("doctor").status == 0
    shown = terminal.getvalue()
    assert "looked at" in shown and "%" in shown
    assert shown.endswith("\r\x1b[K"), "the line is taken away"


def test_a_running_task_that_lost_its_lease_gets_the_configured_one(
    cli: Cli, one_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEDULR_LEASE", "40")
    Hands(one_server).claim()
    one_server.client.delete(KEYS.leases)
    before = one_server.client.time()[0]
    assert cli("doctor", "--fix").status == 0
    lease = one_server.client.zscore(KEYS.leases, "a")
    assert lease is not None and 39 <= lease / 1000 - before < 60

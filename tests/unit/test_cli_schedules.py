"""``skedulr schedules``: list, run, pause, resume, remove, preview."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cli_driver import Cli
from servers import Server

import skedulr
from skedulr.keys import PoolKeys
from skedulr.store import Store
from skedulr.wire import Wire


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("SKEDULR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def live(cli: Cli, one_server: Server, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """``cli`` with a server that has two schedules."""
    monkeypatch.setenv("SKEDULR_REDIS_URL", one_server.url)
    app = skedulr.Skedulr(url=one_server.url)
    app.schedule_recurring(app.remote("poll"), 3600, name="poll")
    app.schedule_cron(
        app.remote("digest", pool="slow").bind("all"), "0 9 * * mon-fri", name="digest",
        tz="Europe/Paris",
    )
    return cli


def test_the_list_shows_what_runs_when(live: Cli) -> None:
    head, first, second = live.ok("schedules", "list").lines
    assert head == "NAME STATE WHEN TASK POOL NEXT LAST"
    assert first.startswith("digest ok 0 9 * * mon-fri Europe/Paris digest slow 20")
    assert second.startswith("poll ok every 1 h poll default 20")


def test_json_has_the_form_of_the_http_interface_and_pages(live: Cli) -> None:
    page = live.ok("schedules", "list", "--json", "--limit", "1").json
    assert [one["name"] for one in page["items"]] == ["digest"]
    shown: dict[str, Any] = page["items"][0]
    expected = {
        "task": "digest", "pool": "slow", "kind": "cron", "spec": "0 9 * * mon-fri",
        "tz": "Europe/Paris", "paused": False, "error": None,
    }
    assert {key: shown[key] for key in expected} == expected
    rest = live.ok("schedules", "list", "--json", "--cursor", page["cursor"]).json
    assert ([one["name"] for one in rest["items"]], rest["cursor"]) == (["poll"], None)


def test_no_schedules_is_said_in_words(cli: Cli, one_server: Server, monkeypatch: Any) -> None:
    monkeypatch.setenv("SKEDULR_REDIS_URL", one_server.url)
    assert "no schedules" in cli.ok("schedules", "list").out
    assert cli.ok("schedules", "list", "--json").json == {"items": [], "cursor": None}


def test_run_prints_the_task(live: Cli) -> None:
    id = live.ok("schedules", "run", "digest").out.strip()
    assert id.startswith("slow/digest@")
    assert live.ok("task", id, "--json").json["args"] == ["all"]
    assert live.ok("schedules", "run", "poll", "--json").json["state"] == "queued"


def test_pause_and_resume_answer_with_the_schedule(live: Cli) -> None:
    assert live.ok("schedules", "pause", "poll").out == "poll: paused\n"
    assert "poll paused" in live.ok("schedules", "list").lines[2]
    assert live.ok("schedules", "pause", "poll", "--json").json["paused"] is True
    assert live.ok("schedules", "resume", "poll").out.startswith("poll: goes on, next 20")
    assert live.ok("schedules", "resume", "poll", "--json").json["next_due"] > 0


def test_remove_removes(live: Cli) -> None:
    assert live.ok("schedules", "remove", "poll").out == "poll: removed\n"
    assert live.refused("schedules", "remove", "poll", status=1) == (
        "skedulr schedules remove: no schedule is called 'poll'"
    )


@pytest.mark.parametrize("command", ["run", "pause", "resume", "remove"])
def test_a_name_nobody_knows_is_a_failure(live: Cli, command: str) -> None:
    said = live.refused("schedules", command, "nobody", status=1)
    assert "no schedule is called 'nobody'" in said


def test_a_preview_needs_no_server(cli: Cli) -> None:
    arguments = ("schedules", "preview", "30 2 * * *", "--tz", "Europe/Paris", "--count", "2",
                 "--start", "2026-03-28T12:00Z")
    assert cli.ok(*arguments).out.splitlines() == [
        "Sun 2026-03-29 03:00:00+02:00", "Mon 2026-03-30 02:30:00+02:00"
    ]
    assert cli.ok(*arguments, "--json").json == {"items": [1774746000.0, 1774830600.0]}


def test_a_preview_says_why_a_line_would_be_refused(cli: Cli) -> None:
    assert "never fires: no Feb has such a day" in cli.refused(
        "schedules", "preview", "0 0 30 2 *", status=2
    )
    assert "no time zone is called 'Europe/Pariss'" in cli.refused(
        "schedules", "preview", "* * * * *", "--tz", "Europe/Pariss", status=2
    )
    assert "has no offset from UTC" in cli.refused(
        "schedules", "preview", "* * * * *", "--start", "2026-03-28T12:00", status=2
    )


def test_a_run_with_a_priority_in_a_pool_that_runs_in_order_is_refused(
    live: Cli, one_server: Server
) -> None:
    app = skedulr.Skedulr(url=one_server.url)
    app.schedule_recurring(app.remote("poll", priority=5), 3600, name="high")
    wire = Wire(one_server.url, name="test")
    assert Store(PoolKeys("skedulr", "default"), "streams").settle(wire, 15_000) is None
    wire.close()
    refused = live("schedules", "run", "high")
    assert refused.status == 2
    assert "pool 'default' has no priorities and no limits" in refused.err

"""``skedulr workflow ID``: shown, cancelled and put back, as a user does it, on a real server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cli_driver import Cli, Hands
from servers import Server

import skedulr
from skedulr.delivery import Delivery
from skedulr.wire import Wire

pytestmark = pytest.mark.server

POOLS = ("default", "other")
KEYS = {
    "id", "name", "state", "total", "ended", "counts", "submitted_at", "finished_at", "steps",
}
STEP_KEYS = {
    "id", "name", "task", "state", "attempt", "submitted_at", "started_at", "finished_at",
    "depends_on", "error", "kind", "mapped",
}


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], one_server: Server, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    for name in list(os.environ):
        if name.startswith("SKEDULR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKEDULR_REDIS_URL", one_server.url)
    return Cli(capsys)


class Import:
    """A workflow over two pools: load -> check -> report, and "sorry" for when the check fails."""

    def __init__(self, server: Server) -> None:
        app = skedulr.Skedulr(url=server.url)
        with app.workflow("import") as w:
            load = w.add(app.remote("load", pool="default").bind("f.csv"), name="load")
            check = w.add(app.remote("check", pool="other").bind(load), name="check")
            w.add(app.remote("report", pool="default").bind(check), name="report")
            w.add(app.remote("sorry", pool="default").bind(), on_failure=check, name="sorry")
        self.id = w.id
        self._hands = {pool: Hands(server, pool) for pool in POOLS}
        self._delivery = Delivery("skedulr", Wire(server.url, name="delivers"))
        self.deliver()

    def succeed(self, pool: str, result: Any = None) -> None:
        """The next step of that pool runs well."""
        self._hands[pool].succeed(result)
        self.deliver()

    def fail(self, pool: str) -> None:
        """It fails."""
        self._hands[pool].fail()
        self.deliver()

    def deliver(self) -> None:
        """As a child would."""
        self._delivery.settle(POOLS, ahead_ms=10_000)


@pytest.fixture
def flow(cli: Cli, one_server: Server) -> Import:
    return Import(one_server)


def test_a_workflow_is_shown_step_by_step(cli: Cli, flow: Import) -> None:
    flow.succeed("default")
    lines = cli.ok("workflow", flow.id).lines
    shown = dict(line.split(" ", 1) for line in lines[:5])
    assert shown["id"] == flow.id
    assert (shown["name"], shown["state"]) == ("import", "running")
    assert shown["steps"] == "1 of 4 ended: 1 queued, 1 succeeded, 2 waiting"
    head, load, check, report, sorry = lines[-5:]
    assert head == "STEP TASK STATE STARTED FINISHED WAITS FOR ERROR"
    assert load.startswith("load load succeeded ")
    assert check.startswith("check check queued") and check.endswith(" load")
    assert report.startswith("report report waiting") and report.endswith(" check")
    assert sorry.startswith("sorry sorry waiting") and sorry.endswith(" check")


def test_a_failed_step_shows_its_error_and_what_became_of_the_others(
    cli: Cli, flow: Import
) -> None:
    flow.succeed("default")
    flow.fail("other")
    flow.succeed("default")
    lines = cli.ok("workflow", flow.id).lines
    assert "state failed" in lines
    assert "steps 4 of 4 ended: 1 dead, 1 skipped, 2 succeeded" in lines
    assert any(line.startswith("finished ") for line in lines)
    _, _, check, report, sorry = lines[-5:]
    assert check.startswith("check check dead ") and check.endswith("ValueError: boom")
    assert report.startswith("report report skipped ") and "is dead" in report
    assert sorry.startswith("sorry sorry succeeded ")


def test_json_is_one_document_with_what_the_http_interface_gives(cli: Cli, flow: Import) -> None:
    flow.succeed("default")
    shown = cli.ok("workflow", flow.id, "--json").json
    assert shown.keys() == KEYS
    assert (shown["id"], shown["state"], shown["total"], shown["ended"]) == (
        flow.id, "running", 4, 1
    )
    assert shown["counts"] == {"succeeded": 1, "queued": 1, "waiting": 2}
    assert shown["finished_at"] is None
    load, check, *_ = shown["steps"]
    assert load.keys() == STEP_KEYS
    assert (load["name"], load["task"], load["state"]) == ("load", "load", "succeeded")
    assert check["id"].startswith("other/")
    assert check["depends_on"] == [load["id"]]


def test_a_bare_uid_means_the_pool_default(cli: Cli, flow: Import) -> None:
    assert cli.ok("workflow", flow.id.partition("/")[2], "--json").json["id"] == flow.id


def test_cancel_ends_all_that_has_not_and_a_second_one_nothing(cli: Cli, flow: Import) -> None:
    flow.succeed("default")
    outcome = cli("workflow", flow.id, "--cancel", "--json")
    assert (outcome.status, outcome.err) == (0, "3 cancelled\n")
    assert outcome.json["state"] == "cancelled"
    assert outcome.json["counts"] == {"succeeded": 1, "cancelled": 3}
    flow.deliver()
    again = cli("workflow", flow.id, "--cancel")
    assert (again.status, again.err) == (0, "0 cancelled\n")
    assert "state cancelled" in again.lines


def test_resubmit_puts_back_what_failed_and_the_rest_goes_on(cli: Cli, flow: Import) -> None:
    flow.succeed("default")
    flow.fail("other")
    flow.succeed("default")
    outcome = cli("workflow", flow.id, "--resubmit", "--json")
    assert (outcome.status, outcome.err) == (0, "1 put back\n")
    assert outcome.json["state"] == "running"
    flow.deliver()
    assert cli.ok("workflow", flow.id, "--json").json["counts"] == {
        "succeeded": 2, "queued": 1, "waiting": 1
    }
    flow.succeed("other")
    flow.succeed("default")
    assert "state succeeded" in cli.ok("workflow", flow.id).lines


def test_a_cancelled_workflow_is_resubmitted_from_where_it_was(cli: Cli, flow: Import) -> None:
    flow.succeed("default")
    assert cli("workflow", flow.id, "--cancel").err == "3 cancelled\n"
    flow.deliver()
    assert cli("workflow", flow.id, "--resubmit").err == "3 put back\n"
    flow.deliver()
    flow.succeed("other")
    flow.succeed("default")
    shown = cli.ok("workflow", flow.id, "--json").json
    assert shown["state"] == "succeeded"
    assert shown["counts"] == {"succeeded": 3, "skipped": 1}


def test_what_is_no_workflow_is_said_so(cli: Cli, flow: Import) -> None:
    task = cli.submit("alone")
    for given in ("nope", task):
        for action in ((), ("--cancel",), ("--resubmit",)):
            line = cli.refused("workflow", given, *action, status=1)
            assert "no workflow" in line and given.rpartition("/")[2] in line
    assert cli.ok("task", task, "--json").json["state"] == "queued"


def test_it_is_cancelled_or_put_back_and_not_both(cli: Cli, flow: Import) -> None:
    outcome = cli("workflow", flow.id, "--cancel", "--resubmit")
    assert outcome.status == 2
    assert "not allowed with" in outcome.err
    assert cli.ok("workflow", flow.id, "--json").json["counts"] == {"queued": 1, "waiting": 3}


def test_of_a_large_one_the_first_500_steps_are_shown_and_all_are_counted(
    cli: Cli, one_server: Server
) -> None:
    app = skedulr.Skedulr(url=one_server.url)
    with app.workflow("large") as w:
        for _ in range(503):
            w.add(app.remote("work", pool="default").bind())
    outcome = cli("workflow", w.id)
    assert (outcome.status, outcome.err) == (0, "the first 500 of 503 steps\n")
    assert "steps 0 of 503 ended: 503 waiting" in outcome.lines
    assert len(cli("workflow", w.id, "--json").json["steps"]) == 500

"""``submit``, ``task``, ``result``, ``list``, ``cancel`` against a real server."""

from __future__ import annotations

import io
import json
import os
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
import pytest
from cli_driver import Cli, Hands, Terminal
from servers import Server

from skedulr import lists
from skedulr.cli import asking, dead, run
from skedulr.keys import SpaceKeys

TASK_KEYS = {
    "id", "uid", "pool", "name", "state", "priority", "attempt", "max_retries", "crashes",
    "progress", "note", "submitted_at", "due_at", "started_at", "finished_at", "result", "error",
    "key", "tags", "worker", "workflow", "depends_on", "args", "kwargs",
}


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], one_server: Server, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    for name in list(os.environ):
        if name.startswith("SKEDULR_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKEDULR_REDIS_URL", one_server.url)
    return Cli(capsys)


@pytest.fixture
def hands(one_server: Server) -> Hands:
    return Hands(one_server)


# --------------------------------------------------------------------------------- submit


def test_submit_prints_the_id_alone(cli: Cli) -> None:
    id = cli.submit("work")
    assert id.startswith("default/") and len(id.split()) == 1
    assert cli.ok("task", id, "--json").json["name"] == "work"


def test_a_person_is_told_why_nobody_may_take_it(
    cli: Cli, one_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*arguments: str) -> str:
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            assert run(("submit", *arguments)) == 0
        return terminal.getvalue().rstrip("\n")

    assert said("work") == (
        "no master runs in this namespace: the task waits for one (skedulr-master)"
    )
    space = SpaceKeys("skedulr")
    children = [{"pool": "critical", "pid": 1, "workers": 1, "busy": 0}]
    now, _ = one_server.client.time()
    one_server.client.hset(space.nodes, "n1", msgpack.packb(
        {"id": "n1", "beat_at": now + 60, "children": children}
    ))
    one_server.client.hset(space.pools, "critical", "")
    one_server.client.hset(space.names, "work", b"")
    assert "no node serves pool 'critcal' (did you mean 'critical'?)" in (
        said("work", "--pool", "critcal"))
    assert "no worker knows a task 'wrok' (did you mean 'work'?)" in (
        said("wrok", "--pool", "critical"))
    assert said("work", "--pool", "critical") == ""


def test_submit_json_prints_the_task(cli: Cli) -> None:
    task = cli.ok(
        "submit", "report", "--args", '["a", 1]', "--kwargs", '{"b": {"c": null}}', "--pool", "p",
        "--priority", "-5", "--max-retries", "7", "--id", "r-1", "--key", "k", "--tag", "x",
        "--tag", "y", "--json",
    ).json
    assert task.keys() >= TASK_KEYS
    assert (task["id"], task["name"], task["state"]) == ("p/r-1", "report", "queued")
    assert (task["args"], task["kwargs"]) == (["a", 1], {"b": {"c": None}})
    assert (task["priority"], task["max_retries"]) == (-5, 7)
    assert (task["key"], task["tags"]) == ("k", ["x", "y"])


def test_a_delay_makes_it_scheduled(cli: Cli) -> None:
    task = cli.ok("submit", "work", "--delay", "90.5", "--json").json
    assert task["state"] == "scheduled"
    assert task["due_at"] - task["submitted_at"] == pytest.approx(90.5)


@pytest.mark.parametrize("when", [
    "1900000000", "1900000000.0", "2030-03-17T17:46:40Z", "2030-03-17T19:46:40+02:00",
    "2030-03-17 17:46:40+00:00",
])
def test_at_takes_epoch_seconds_and_iso_with_an_offset(cli: Cli, when: str) -> None:
    assert cli.ok("submit", "work", "--at", when, "--json").json["due_at"] == 1_900_000_000


@pytest.mark.parametrize("when", ["2030-03-17T17:46:40", "2030-03-17"])
def test_a_time_without_an_offset_is_refused(cli: Cli, when: str) -> None:
    line = cli.refused("submit", "work", "--at", when, status=2)
    assert f"--at '{when}' has no offset from UTC: give epoch seconds, or ISO" in line


@pytest.mark.parametrize(("arguments", "expected"), [
    (("--at", "tomorrow"), "--at 'tomorrow' is no time"),
    (("--at", "inf"), "--at inf is no time"),
    (("--at", "1900000000000000"), "out of range"),
    (("--delay", "5", "--at", "1900000000"), "give one of them"),
    (("--args", "[1"), "--args is not JSON"),
    (("--args", "{}"), "--args takes a JSON array"),
    (("--args", "[NaN]"), "JSON has no NaN"),
    (("--args", "[" * 100_000), "nested too deep"),
    (("--kwargs", "[]"), "--kwargs takes a JSON object"),
    (("--priority", "101"), "a whole number from -100 to 100"),
    (("--pool", "a/b"), "pool name 'a/b' is not usable"),
    (("--id", "-x y"), "not usable"),
    (("--unique", "forever"), "'until_done', 'until_start' or a window in seconds"),
    (("--on-duplicate", "ignore"), "--on-duplicate 'ignore' is not usable"),
    (("--jsonl", "missing.jsonl"), "--jsonl missing.jsonl: No such file or directory"),
    (("--jsonl", "."), "--jsonl .: Is a directory"),
    (("--jsonl", "-", "--args", "[]"), "--args belongs to one call"),
])
def test_what_can_not_be_submitted_is_a_usage_error(
    cli: Cli, arguments: tuple[str, ...], expected: str
) -> None:
    joined = [f"{arguments[0]}={arguments[1]}", *arguments[2:]]
    assert expected in cli.refused("submit", "work", *joined, status=2)
    assert cli.ok("stats", "--json").json["pools"] == []


def test_a_submit_without_a_name_asks_for_one(cli: Cli) -> None:
    assert "give its NAME" in cli.refused("submit", status=2)


def test_what_can_not_travel_names_the_path(cli: Cli) -> None:
    line = cli.refused("submit", "work", "--args", '[{"n": 99999999999999999999}]', status=1)
    assert "args[0]['n'] is an int outside 64 bits" in line


def test_an_id_is_used_once_and_a_repeat_is_no_second_task(cli: Cli) -> None:
    assert cli.submit("work", "--id", "one", "--args", "[1]") == "default/one"
    assert cli.submit("work", "--id", "one", "--args", "[1]") == "default/one"
    assert "default/one" in cli.refused("submit", "work", "--id", "one", "--args", "[2]", status=1)
    assert cli.ok("stats", "--json").json["queued"] == 1


def test_a_unique_task_is_submitted_once(cli: Cli) -> None:
    first = cli.submit("work", "--unique", "until_done", "--key", "k")
    line = cli.refused("submit", "work", "--unique", "until_done", "--key", "k", status=1)
    assert first in line
    again = cli.submit("work", "--unique", "60", "--key", "k", "--on-duplicate", "return")
    assert again == first


def test_headers_travel(cli: Cli) -> None:
    cli.submit("work", "--header", "trace=a=b", "--header", "tenant=")
    line = cli.refused("submit", "work", "--header", "trace", status=2)
    assert "'trace' is not NAME=TEXT" in line


# ------------------------------------------------------------------------------ submit --jsonl


def write(path: Path, *lines: Any) -> str:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return str(path)


def test_a_file_of_calls_is_submitted_with_options_for_all_and_for_each(
    cli: Cli, tmp_path: Path
) -> None:
    file = write(
        tmp_path / "calls", {"args": [1], "options": {"id": "a"}}, "",
        {"name": "other", "kwargs": {"k": "é"}, "options": {"id": "b", "pool": "q"}},
        {"options": {"id": "c", "at": "2030-03-17T17:46:40Z", "tags": ["t"]}},
    )
    outcome = cli.ok("submit", "work", "--priority", "3", "--delay", "60", "--jsonl", file)
    assert outcome.out.startswith("3 tasks are submitted in ")
    task_a, task_b, task_c = (
        cli.ok("task", id, "--json").json for id in ("a", "q/b", "c")
    )
    assert (task_a["name"], task_a["args"], task_a["priority"]) == ("work", [1], 3)
    assert (task_b["name"], task_b["kwargs"], task_b["state"]) == ("other", {"k": "é"}, "scheduled")
    assert (task_c["due_at"], task_c["tags"]) == (1_900_000_000, ["t"])


def test_standard_input_is_read_and_json_tells_the_count(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f'{{"name": "work", "args": [{n}]}}\n' for n in range(1200))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert cli.ok("submit", "--jsonl", "-", "--json").json == {"submitted": 1200}
    assert cli.ok("stats", "--json").json["queued"] == 1200


@pytest.mark.parametrize(("line", "status", "expected"), [
    ('{"agrs": []}', 2, "it has an unknown key 'agrs' (did you mean 'args'?)"),
    ("nonsense", 2, "it is not JSON"),
    ("[1]", 2, "a line takes a JSON object"),
    ('{"args": {}, "name": 5}', 2, "its name is 5, not a text"),
    ('{"args": {"a": 1}}', 2, "args takes a JSON array"),
    ('{"options": {"prio": 1}}', 2, "unknown option 'prio' (did you mean 'priority'?)"),
    ('{"options": {"at": "2030-01-01"}}', 2, "at '2030-01-01' has no offset"),
    ('{"options": {"id": "a b"}}', 2, "id='a b' is not usable"),
    ('{"args": [18446744073709551616]}', 1, "args[0] is an int outside 64 bits"),
    ('{"args": ["\\ud800"]}', 1, "lone surrogate"),
])
def test_a_bad_line_is_named_and_all_above_it_are_submitted(
    cli: Cli, tmp_path: Path, line: str, status: int, expected: str
) -> None:
    good = [{"options": {"id": f"g{n}"}} for n in range(600)]
    file = write(tmp_path / "calls", *good, line, {})
    told = cli.refused("submit", "work", "--jsonl", file, status=status)
    assert told.startswith("skedulr submit: line 601: ") and expected in told
    assert told.endswith("; 600 tasks are submitted")
    assert cli.ok("stats", "--json").json["queued"] == 600


def test_a_failed_file_in_json_is_still_one_document(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("submit", "--json", "--jsonl", write(tmp_path / "calls", {"name": "w"}, {}))
    assert outcome.status == 2
    assert outcome.json == {
        "submitted": 1, "line": 2, "error": "it has no name, and no NAME is on the command line",
    }


def test_a_file_that_is_not_utf_8_names_the_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "calls").write_bytes(b'\xef\xbb\xbf{"name": "work"}\n{"name": "\xff"}\n')
    line = cli.refused("submit", "--jsonl", str(tmp_path / "calls"), status=2)
    assert line.endswith("line 2: it is not UTF-8; 1 task is submitted")


def test_a_taken_id_is_named_by_its_line_and_the_rest_is_left_open(
    cli: Cli, tmp_path: Path
) -> None:
    cli.submit("work", "--id", "taken", "--args", "[0]")
    file = write(tmp_path / "calls", {}, {"args": [1], "options": {"id": "taken"}}, {}, {})
    line = cli.refused("submit", "work", "--jsonl", file, status=1)
    assert line.startswith("skedulr submit: line 2: another task has the id default/taken")
    assert line.endswith("; 1 task is submitted, and perhaps some of the 2 lines behind it")


def test_running_a_file_again_adds_nothing_where_ids_are_given(cli: Cli, tmp_path: Path) -> None:
    calls = [{"args": [n], "options": {"id": f"i{n}"}} for n in range(700)]
    file = write(tmp_path / "calls", *calls[:350], "broken")
    assert cli("submit", "work", "--jsonl", file).status == 2
    file = write(tmp_path / "calls", *calls)
    for _ in range(2):
        assert cli.ok("submit", "work", "--jsonl", file, "--json").json == {"submitted": 700}
    assert cli.ok("stats", "--json").json["queued"] == 700


# ---------------------------------------------------------------------------- task, result


def test_task_shows_a_life_in_order(cli: Cli, hands: Hands) -> None:
    id = cli.submit("work", "--args", '["é"]', "--max-retries", "2")
    hands.fail("ValueError", "boom")
    lines = cli.ok("task", id).lines
    assert lines[:3] == [f"id {id}", "name work", "state dead"]
    assert "attempt 1 of 3" in lines
    assert 'args ["é"]' in lines
    assert "error ValueError: boom" in lines
    assert lines[-2:] == ["Traceback (most recent call last):", "ValueError: boom"]


@pytest.mark.parametrize("command", ["task", "result", "cancel"])
def test_an_unknown_id_is_one_line_and_a_bad_one_a_usage_error(cli: Cli, command: str) -> None:
    assert "nobody is known" in cli.refused(command, "nobody", status=1)
    assert "not usable" in cli.refused(command, "a b", status=2)


def test_result_of_a_success_is_0_and_the_value(cli: Cli, hands: Hands) -> None:
    id = cli.submit("work")
    hands.succeed({"total": Decimal("1.50"), "when": datetime(2026, 1, 2, tzinfo=UTC)})
    expected = {"total": "1.50", "when": "2026-01-02T00:00:00+00:00"}
    assert json.loads(cli.ok("result", id).out) == expected
    assert cli.ok("result", id, "--json").json == {"result": expected}


def test_a_text_result_is_printed_as_it_is(cli: Cli, hands: Hands) -> None:
    id = cli.submit("work")
    hands.succeed("two\nlines \x1b[2J")
    assert cli.ok("result", id).out == "two\nlines \\x1b[2J\n"
    assert cli.ok("result", id, "--json").json == {"result": "two\nlines \x1b[2J"}


def test_result_of_a_failure_is_3_with_the_error_on_stderr(cli: Cli, hands: Hands) -> None:
    id = cli.submit("work")
    hands.fail("ValueError", "boom")
    assert cli.refused("result", id, status=3).endswith(f"task {id} is dead: ValueError: boom")
    outcome = cli("result", id, "--json")
    assert outcome.status == 3
    assert outcome.json == {"state": "dead", "error": {"type": "ValueError", "message": "boom"}}


def test_result_before_the_end_is_4(cli: Cli) -> None:
    id = cli.submit("work")
    assert cli.refused("result", id, status=4).endswith("has not ended yet: it is queued")
    assert cli.refused("result", id, "--timeout", "0.01", status=4)
    outcome = cli("result", id, "--json")
    assert (outcome.status, outcome.json) == (4, {"state": "queued"})


# ----------------------------------------------------------------------------------- list


def ids(outcome: Any) -> list[str]:
    return [task["id"] for task in outcome.json["items"]]


def test_list_goes_through_all_pools_in_pages(cli: Cli) -> None:
    made = [
        *(cli.submit("work", "--pool", "a", "--id", f"a{n}") for n in range(3)),
        *(cli.submit("work", "--pool", "b", "--id", f"b{n}") for n in range(2)),
    ]
    seen: list[str] = []
    cursor: tuple[str, ...] = ()
    while True:
        page = cli.ok("list", "--json", "--limit", "2", *cursor)
        seen += ids(page)
        if page.json["cursor"] is None:
            break
        cursor = ("--cursor", page.json["cursor"])
    assert sorted(seen) == sorted(made)
    assert ids(cli.ok("list", "--json", "--pool", "b")) == ["b/b1", "b/b0"]


def test_list_filters_by_state_name_and_text(cli: Cli, hands: Hands) -> None:
    cli.submit("first", "--id", "one")
    hands.fail("KeyError", "Missing Thing")
    cli.submit("second", "--id", "two", "--tag", "Blue")
    cli.submit("second", "--id", "three", "--key", "order-7")
    assert ids(cli.ok("list", "--json", "--state", "dead")) == ["default/one"]
    assert ids(cli.ok("list", "--json", "--name", "second", "--query", "blue")) == ["default/two"]
    assert ids(cli.ok("list", "--json", "--query", "missing thing")) == ["default/one"]
    assert ids(cli.ok("list", "--json", "--query", "ORDER-7")) == ["default/three"]
    line = cli.refused("list", "--name", "secon", status=1)
    assert "no task 'secon' was published or run" in line


def test_list_for_people_has_a_line_a_task_and_a_hint_for_more(cli: Cli, hands: Hands) -> None:
    cli.submit("first", "--id", "one")
    hands.fail("KeyError", "x\ny")
    cli.submit("second", "--id", "two")
    outcome = cli("list", "--limit", "1")
    assert outcome.lines[0] == "ID NAME STATE ATTEMPT SUBMITTED ERROR"
    assert len(outcome.lines) == 2
    assert outcome.err.startswith("there may be more: --cursor ")
    assert any("dead" in line and line.endswith("KeyError: x\\ny") for line in cli("list").lines)


def test_a_search_that_finds_little_stops_and_can_go_on(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MOST_LOOKED_AT", 4)
    monkeypatch.setattr(lists, "MOST_LOOKED_AT", 2)
    cli.submit("rare", "--id", "r")
    for n in range(5):
        cli.submit("work", "--id", f"w{n}")
    page = cli.ok("list", "--json", "--name", "rare", "--limit", "1")
    assert ids(page) == [] and page.json["cursor"]
    page = cli.ok(
        "list", "--json", "--name", "rare", "--limit", "1", "--cursor", page.json["cursor"]
    )
    assert ids(page) == ["default/r"]


@pytest.mark.parametrize(("arguments", "expected"), [
    (("--state", "deed"), "no state is called 'deed' (did you mean 'dead'?)"),
    (("--limit", "0"), "--limit 0 is not usable: 1 to 500"),
    (("--cursor", "7"), "--cursor '7' is not one that this list gave"),
    (("--pool", "a b"), "pool name 'a b' is not usable"),
])
def test_list_refuses_what_it_can_not_use(
    cli: Cli, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in cli.refused("list", *arguments, status=2)


@pytest.mark.parametrize("command", [
    ("list",), ("list", "--json"), ("dead", "list"), ("dead", "resubmit"), ("dead", "purge"),
])
@pytest.mark.parametrize(("flag", "slip", "expected"), [
    ("--pool", "defualt", "there is no pool 'defualt' (did you mean 'default'?)"),
    ("--name", "wrok", "no task 'wrok' was published or run here (did you mean 'work'?)"),
])
def test_a_slip_in_a_filter_is_no_empty_list(
    cli: Cli, one_server: Server, command: tuple[str, ...], flag: str, slip: str, expected: str
) -> None:
    cli.submit("work")
    one_server.client.hset(SpaceKeys("skedulr").names, "work", b"")
    assert cli.refused(*command, flag, slip, status=1).endswith(expected)
    meant = {"--pool": "default", "--name": "work"}[flag]
    cli.ok(*command, flag, meant)  # empty or not, it is an answer


# --------------------------------------------------------------------------------- cancel


def test_cancel_before_the_start_ends_it(cli: Cli) -> None:
    id = cli.submit("work")
    assert cli.ok("cancel", id).out == f"{id}: cancelled\n"
    assert "had ended already" in cli.refused("cancel", id, status=1)
    assert "cancelled" in cli.refused("result", id, status=3)


def test_cancel_of_a_running_task_tells_it_to_stop(cli: Cli, hands: Hands) -> None:
    id = cli.submit("work")
    hands.claim()
    assert cli.ok("cancel", id).out == f"{id}: it is running and was told to stop\n"
    assert cli.ok("cancel", id, "--json").json["state"] == "running"


def test_cancel_json_is_the_task_also_when_it_came_too_late(cli: Cli, hands: Hands) -> None:
    id = cli.submit("work")
    hands.succeed(1)
    outcome = cli("cancel", id, "--json")
    assert (outcome.status, outcome.json["state"]) == (1, "succeeded")


# ------------------------------------------------------------------------ resubmit, remove


def test_resubmit_puts_an_ended_task_back_once(cli: Cli, hands: Hands) -> None:
    id = cli.submit("work", "--args", "[1]")
    assert cli.refused("resubmit", id, status=1).endswith("has not ended: it is queued")
    hands.fail()
    assert cli.ok("resubmit", id).out == f"{id}: back in the queue\n"
    assert cli.ok("task", id, "--json").json["state"] == "queued"
    hands.succeed(7)
    assert cli.ok("resubmit", id, "--json").json["state"] == "queued"


@pytest.mark.parametrize("end", ["never started", "succeeded", "dead"])
def test_remove_leaves_nothing_of_a_task(cli: Cli, hands: Hands, end: str) -> None:
    id = cli.submit("work")
    if end == "succeeded":
        hands.succeed()
    elif end == "dead":
        hands.fail()
    assert cli.ok("remove", id).out == f"{id}: removed\n"
    assert "is known" in cli.refused("task", id, status=1)
    assert "is known" in cli.refused("remove", id, status=1)


def test_remove_spares_what_runs(cli: Cli, hands: Hands) -> None:
    id = cli.submit("work")
    hands.claim()
    line = cli.refused("remove", id, status=1)
    assert line.endswith(f"task {id} runs just now: cancel it first: it is running")
    assert cli.ok("task", id, "--json").json["state"] == "running"


# ----------------------------------------------------------------------------------- dead


@pytest.fixture
def graveyard(cli: Cli, one_server: Server) -> None:
    """Five dead tasks: three ``mail`` in default, ``mail`` and ``scan`` in slow; one that waits."""
    for id, name, pool, kind in (
        ("a", "mail", "default", "KeyError"), ("b", "mail", "default", "TimeoutError"),
        ("c", "mail", "default", "TimeoutError"), ("d", "mail", "slow", "KeyError"),
        ("e", "scan", "slow", "KeyError"),
    ):
        cli.submit(name, "--id", id, "--pool", pool)
        Hands(one_server, pool).fail(kind, "no")
    cli.submit("mail", "--id", "waits")


@pytest.mark.usefixtures("graveyard")
class TestDead:
    def test_list_shows_the_dead_alone(self, cli: Cli) -> None:
        found = ids(cli.ok("dead", "list", "--json"))
        assert sorted(found) == ["default/a", "default/b", "default/c", "slow/d", "slow/e"]
        assert ids(cli.ok("dead", "list", "--json", "--pool", "slow", "--name", "scan")) == [
            "slow/e"
        ]
        assert "KeyError: no" in cli.ok("dead", "list").out

    @pytest.mark.parametrize(("filters", "count"), [
        ((), 5), (("--pool", "default"), 3), (("--name", "mail"), 4),
        (("--query", "error:KeyError"), 3), (("--pool", "slow", "--name", "mail"), 1),
    ])
    def test_resubmit_puts_back_what_the_filters_mean(
        self, cli: Cli, filters: tuple[str, ...], count: int
    ) -> None:
        outcome = cli.ok("dead", "resubmit", "--json", *filters)
        assert outcome.json == {"resubmitted": count, "left": 0}
        stats = cli.ok("stats", "--json").json
        assert (stats["dead"], stats["queued"]) == (5 - count, 1 + count)

    def test_bulk_work_goes_through_all_pages(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dead, "MOST_ITEMS", 2)
        assert cli.ok("dead", "resubmit").out == "5 tasks are resubmitted\n"
        assert cli.ok("dead", "resubmit").out == "0 tasks are resubmitted\n"

    def test_purge_removes_what_the_filters_mean(self, cli: Cli) -> None:
        assert cli.ok("dead", "purge", "--name", "scan").out == "1 task is removed\n"
        assert "is known" in cli.refused("task", "slow/e", status=1)
        assert cli.ok("dead", "purge", "--json").json == {"removed": 4, "left": 0}
        stats = cli.ok("stats", "--json").json
        assert (stats["dead"], stats["queued"]) == (0, 1)

    @pytest.mark.parametrize(("answer", "left"), [("n\n", 5), ("", 5), ("y\n", 0)])
    def test_purge_asks_a_person_at_a_terminal(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
    ) -> None:
        asked = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", Terminal(answer))
            patch.setattr(sys, "stderr", asked)
            run(["dead", "purge", "--pool", "default"])
            assert "the dead tasks with pool default for good? [y/N]" in asked.getvalue()
        assert cli.ok("stats", "--json").json["dead"] == (2 if left == 0 else 5)

    def test_a_full_pool_stops_a_resubmit_and_says_how_far_it_came(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SKEDULR_CAPACITY", "2")
        line = cli.refused("dead", "resubmit", "--pool", "default", status=1)
        assert "pool 'default' is full" in line


# ---------------------------------------------------------------------------------- pools


def test_a_paused_pool_gives_nothing_until_it_is_resumed(cli: Cli, hands: Hands) -> None:
    cli.submit("work")
    assert cli.ok("pause", "default").out == "default: paused\n"
    assert cli.ok("pause", "default").out == "default: was paused already\n"
    assert hands.claim() == []
    assert cli.ok("pools").lines[1].startswith("default paused")
    assert cli.ok("resume", "default", "--json").json["paused"] is False
    assert cli.ok("resume", "default").out == "default: was not paused\n"
    assert len(hands.claim()) == 1


def test_without_a_name_all_pools_are_paused(cli: Cli) -> None:
    cli.submit("work", "--pool", "a")
    cli.submit("work", "--pool", "b")
    assert cli.ok("pause").lines == ["a: paused", "b: paused"]
    items = cli.ok("resume", "--json").json["items"]
    assert [(pool["name"], pool["paused"]) for pool in items] == [("a", False), ("b", False)]


def test_a_pool_that_is_not_there_is_not_paused_by_a_slip(cli: Cli) -> None:
    cli.submit("work", "--pool", "critical")
    line = cli.refused("pause", "critcal", status=1)
    assert line.endswith("there is no pool 'critcal' (did you mean 'critical'?)")


def test_scale_needs_a_pool_that_is_served_or_create(cli: Cli, one_server: Server) -> None:
    space = SpaceKeys("skedulr")
    assert "--create has every node" in cli.refused("scale", "default", "8", status=1)
    assert cli.ok("scale", "default", "8", "--create").out == (
        "default: 8 workers a process, on every node within a second\n"
    )
    assert one_server.client.hget(space.sizes, "default") == b"8 created"
    assert cli.ok("scale", "default", "reset").out == "default: back to --pools and tuning\n"
    assert cli.ok("scale", "default", "reset").out == "default: had no size of its own\n"
    assert one_server.client.hget(space.sizes, "default") is None


@pytest.mark.parametrize(("workers", "expected"), [
    ("many", "'many' is neither a number of workers nor reset"),
    ("10001", "a whole number from 0 to 10,000"), ("-1", "a whole number from 0 to 10,000"),
])
def test_scale_refuses_what_is_no_number_of_workers(
    cli: Cli, workers: str, expected: str
) -> None:
    assert expected in cli.refused("scale", "default", workers, status=2)

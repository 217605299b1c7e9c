"""The command line as a whole: help, mistakes, exit statuses, tables, and the looking commands."""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
import pytest
from cli_driver import Cli, Hands, Terminal
from servers import Server

from skedulr import __version__
from skedulr.cli import output
from skedulr.cli.grammar import GROUPS, make_parser
from skedulr.cli.output import Output, distance, printable, span, width
from skedulr.cli.progress import Progress
from skedulr.client import Client
from skedulr.counts import SILENT_S
from skedulr.keys import SpaceKeys

COMMANDS = [command for group in GROUPS for command in group.commands]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the developer's, an empty folder, a wide and dull terminal."""
    for name in list(os.environ):
        if name.startswith("SKEDULR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def live(cli: Cli, one_server: Server, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """``cli`` with a server."""
    monkeypatch.setenv("SKEDULR_REDIS_URL", one_server.url)
    return cli


def write_node(server: Server, id: str, age_s: float = 0.0, **more: Any) -> None:
    record = {
        "id": id, "host": "h1", "pid": 4711, "version": "9", "started_at": time.time() - 100,
        "beat_at": time.time() - age_s, "leader": False,
        "children": [{"pool": "default", "pid": 4712, "workers": 4, "busy": 1, "lag_ms": 2.0}],
    }
    server.client.hset(SpaceKeys("skedulr").nodes, id, msgpack.packb(record | more))


# ----------------------------------------------------------------------------------- help


def test_help_lists_every_command_and_the_exit_statuses(cli: Cli) -> None:
    text = cli.ok("--help").out
    for command in COMMANDS:
        assert f"  {command.name.partition(' ')[0]}" in text
        assert command.summary in text
    assert "exit status:" in text and "not ended yet" in text


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_teaches_by_an_example_that_parses(cli: Cli, command: Any) -> None:
    text = cli.ok(*command.name.split(), "--help").out
    assert command.explains.splitlines()[0] in text
    assert command.examples
    for line, purpose in command.examples:
        assert line in text and purpose in text
        assert f"skedulr {command.name}" in line
    assert "--json" in text and "--redis" in text and "--namespace" in text


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_examples_are_command_lines_that_are_understood(command: Any) -> None:
    for line, _ in command.examples:
        part = next(one for one in line.split(" | ") if "skedulr" in one)
        words = shlex.split(part)
        words = words[words.index("skedulr") + 1:]
        assert make_parser().parse_args(words).command == command.name


def test_no_line_of_any_help_is_wider_than_a_terminal(cli: Cli, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    for command in COMMANDS:
        for line in cli.ok(*command.name.split(), "--help").out.splitlines():
            assert len(line) <= 90, (command.name, line)


def test_no_command_at_all_shows_the_help_and_is_a_usage_error(cli: Cli) -> None:
    outcome = cli()
    assert (outcome.status, outcome.out) == (2, "")
    assert "usage: skedulr COMMAND" in outcome.err


def test_help_is_a_command_as_well(cli: Cli) -> None:
    assert cli.ok("help").out == cli.ok("--help").out
    assert cli.ok("help", "dead", "purge").out == cli.ok("dead", "purge", "--help").out


def test_defaults_are_told_in_one_way() -> None:
    helps = [action.help or "" for group in GROUPS for command in group.commands
             for action in actions_of(command)]
    assert sum("(default: " in one for one in helps) > 10
    for one in helps:
        assert not re.search(r"\([\d.,]+\)$", one), one


def actions_of(command: Any) -> list[argparse.Action]:
    parser = argparse.ArgumentParser()
    command.add(parser)
    return parser._actions


def test_version_is_the_packages(cli: Cli) -> None:
    assert cli.ok("--version").out == f"skedulr {__version__}\n"


def test_help_loads_neither_redis_nor_gevent() -> None:
    code = (
        "import sys; from skedulr.cli import run; run(['submit', '--help']); run(['config'])\n"
        "print(sorted({'redis', 'gevent', 'ssl', 'msgpack', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['msgpack']"


# ------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(("arguments", "expected"), [
    (("sbmit",), "skedulr: there is no command 'sbmit' (did you mean 'submit'?); "
                 "see skedulr --help"),
    (("list", "--limt", "3"), "skedulr list: there is no option --limt (did you mean '--limit'?); "
                              "see skedulr list --help"),
    (("task", "a", "b"), "skedulr task: 'b' is one argument too many; see skedulr task --help"),
    (("submit", "x", "--priority", "high"),
     "skedulr submit: argument --priority: 'high' is not a whole number; "
     "see skedulr submit --help"),
    (("submit", "x", "--delay", "-1"),
     "skedulr submit: argument --delay: '-1' is not a number of seconds, 0 or more; "
     "see skedulr submit --help"),
    (("submit", "x", "--priority", "1000"),
     "skedulr submit: --priority 1000 is not usable: a whole number from -100 to 100"),
    (("submit", "x", "--unique", "for_ever"),
     "skedulr submit: --unique 'for_ever' is not usable: 'until_done', 'until_start' or a window "
     "in seconds"),
    (("submit", "x", "ann@example.com"),
     "skedulr submit: 'ann@example.com' is one argument too many: a task's own go into "
     """--args '["ann@example.com"]'; see skedulr submit --help"""),
    (("submit", "x", "--args", "ann"),
     "skedulr submit: --args is not JSON: Expecting value: line 1 column 1 (char 0); got ann; "
     """write it as in --args '["two", 2]'"""),
    (("schedules", "preview", "0", "9", "*", "*", "1"),
     "skedulr schedules preview: '9' is one argument too many: put the cron line in quotes; "
     "see skedulr schedules preview --help"),
    (("schedules", "preview", "0 9 * * *", "--count", "0"),
     "skedulr schedules preview: --count 0 is not usable: 1 to 1,000"),
    (("limits", "set", "crawl"),
     "skedulr limits set: what is the limit to be? --concurrency N, or --rate N --per SECONDS"),
    (("limits", "set", "crawl", "--rate", "x"),
     "skedulr limits set: argument --rate: 'x' is not a number; see skedulr limits set --help"),
    (("bench", "speed"), "skedulr bench: there is no part 'speed' (known: delayed, drain, latency, "
                         "memory, submit)"),
    (("dead",), "skedulr dead: the following arguments are required: COMMAND; "
                "see skedulr dead --help"),
    (("stats", "--namespace", "a b"),
     "skedulr stats: flag --namespace: 'a b' can not be used; "
     "it takes 1 to 64 letters, digits, '_', '.' or '-'"),
])
def test_a_mistake_is_one_line_with_the_way_out(
    cli: Cli, arguments: tuple[str, ...], expected: str
) -> None:
    assert cli.refused(*arguments, status=2) == expected


def test_a_password_that_is_refused_is_no_server_that_is_away(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server(tcp=True)
    server.client.config_set("requirepass", "right")
    monkeypatch.setenv("SKEDULR_REDIS_URL", server.url.replace("//", "//:secret@"))
    line = cli.refused("stats", status=1)
    assert "Redis does not let us in at redis://:***@127.0.0.1" in line
    assert "it refuses this user or password" in line and "secret" not in line


def test_an_unreachable_server_is_named_with_how_it_was_found(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEDULR_REDIS_URL", "redis://ann:secret@127.0.0.1:1/0")
    line = cli.refused("stats", status=1)
    assert "Redis does not answer at redis://ann:***@127.0.0.1:1/0 (from SKEDULR_REDIS_URL)" in line
    assert "secret" not in line


def test_a_submit_that_reached_no_server_says_that_nothing_was_stored(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEDULR_SUBMIT_TIMEOUT", "0.1")
    line = cli.refused("submit", "work", "--redis", "redis://127.0.0.1:1/0", status=1)
    assert line.endswith("; nothing was stored") and "(from --redis)" in line


def test_what_redis_refuses_is_one_line(live: Cli, one_server: Server) -> None:
    one_server.client.set(SpaceKeys("skedulr").pools, "not a hash")
    assert "WRONGTYPE" in live.refused("stats", status=1)


def test_an_error_in_the_file_is_a_configuration_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text("[skedulr]\nlaese = 3\n")
    assert "laese" in cli.refused("config", status=2)


def test_ctrl_c_is_quiet(live: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Client) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "overview", interrupt)
    outcome = live("pools")
    assert (outcome.status, outcome.out, outcome.err) == (130, "", "")


def test_a_reader_that_leaves_is_no_error(one_server: Server) -> None:
    code = "import sys; from skedulr.cli import run; sys.exit(run(['config']))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(20) == 141


# ------------------------------------------------------------------------ the whole system


def test_common_options_count_before_and_after_the_command(cli: Cli, one_server: Server) -> None:
    before = cli.ok("--redis", one_server.url, "--json", "--namespace", "n1", "config").json
    after = cli.ok("config", "--redis", one_server.url, "--json", "--namespace", "n1").json
    assert before == after
    assert before["settings"]["namespace"] == {"value": "n1", "source": "flag --namespace"}


def test_config_tells_each_value_its_source_and_hides_passwords(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text("[tool.skedulr]\nlease = 30\n")
    monkeypatch.setenv("SKEDULR_REDIS_URL", "redis://ann:secret@db:6379/2")
    monkeypatch.setenv("SKEDULR_UI_AUTH", "bob:hidden")
    outcome = cli.ok("config", "--config", str(tmp_path / "mine.toml"))
    assert "lease 30 file mine.toml" in outcome.lines
    assert "redis redis://ann:***@db:6379/2 environment SKEDULR_REDIS_URL" in outcome.lines
    assert outcome.lines[-1] == "server redis://ann:***@db:6379/2 (from SKEDULR_REDIS_URL)"
    assert "secret" not in outcome.out and "hidden" not in outcome.out


def test_namespaces_do_not_see_each_other(live: Cli) -> None:
    live.submit("work", "--namespace", "one")
    assert live.ok("pools", "--json", "--namespace", "two").json == {"items": [], "cursor": None}
    assert live.ok("stats", "--json", "--namespace", "one").json["queued"] == 1


def test_pools_and_stats_agree(live: Cli, one_server: Server) -> None:
    live.submit("work")
    live.submit("work", "--delay", "60")
    live.submit("work", "--pool", "critical")
    Hands(one_server).succeed()
    stats = live.ok("stats", "--json").json
    assert (stats["queued"], stats["scheduled"], stats["succeeded"]) == (1, 1, 1)
    pools = live.ok("pools", "--json").json["items"]
    for pool in (*pools, *stats["pools"]):
        pool.pop("oldest_age")  # it grows while we look
    assert stats["pools"] == pools
    lines = live.ok("pools").lines
    assert lines[0].startswith("POOL STATE WORKERS QUEUED")
    assert lines[1].startswith("critical unserved 0 1 0")
    assert "queued 1" in live.ok("stats").lines


def test_an_empty_namespace_says_so_instead_of_an_empty_table(live: Cli) -> None:
    assert "no pools yet" in live.ok("pools").out
    assert "no node" in live.ok("nodes").out
    assert "no such tasks" in live.ok("list").out


def test_nodes_shows_who_is_at_work_and_who_fell_silent(live: Cli, one_server: Server) -> None:
    write_node(one_server, "aa11")
    write_node(one_server, "bb22", age_s=SILENT_S + 5, started_at=time.time())
    lines = live.ok("nodes").lines
    assert lines[1].startswith("aa11 ok h1 4711 9") and "default=4" in lines[1]
    assert lines[2].startswith("bb22 silent")
    assert [node["id"] for node in live.ok("nodes", "--json").json["items"]] == ["aa11", "bb22"]


def test_check_needs_a_server_and_a_fresh_node(live: Cli, one_server: Server) -> None:
    assert "no node is alive" in live.refused("check", status=1)
    write_node(one_server, "old", age_s=SILENT_S + 5)
    assert "1 stopped writing" in live.refused("check", status=1)
    write_node(one_server, "aa11")
    assert live.ok("check").out.startswith("ok: 1 node, ")
    document = live.ok("check", "--json").json
    assert (document["ok"], document["nodes"]) == (True, ["aa11"])


def test_check_without_a_server_is_1_and_a_document(cli: Cli) -> None:
    outcome = cli("check", "--json", "--redis", "redis://127.0.0.1:1/0")
    assert outcome.status == 1
    assert outcome.json["ok"] is False and "127.0.0.1:1" in outcome.json["why"]
    assert outcome.err.startswith("skedulr check: Redis does not answer at redis://127.0.0.1:1/0")


# --------------------------------------------------------------------------------- output


def table_on(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    monkeypatch.setattr(sys, "stdout", stream)
    out = Output(json=False)
    out.table(
        ("ID", "STATE", "COUNT", "NOTE"),
        [("a", "dead", 1234, "x" * 200), ("b", "ok", None, "日本")], empty="none", **options,
    )
    return stream.getvalue().splitlines()


def test_a_table_is_aligned_and_uncut_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = table_on(io.StringIO(), monkeypatch, cut="NOTE")
    assert lines == [
        "ID  STATE  COUNT  NOTE",
        f"a   dead   1,234  {'x' * 200}",
        "b   ok         -  日本",
    ]


def test_a_terminal_gets_colour_and_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    lines = table_on(Terminal(), monkeypatch, cut="NOTE")
    assert "\x1b[31mdead " in lines[1]
    assert lines[1].endswith("xxx…")
    plain = lines[1].replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert width(plain) == 60


@pytest.mark.parametrize(("name", "text"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_can_decline_colour(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, text)
    assert "\x1b" not in "".join(table_on(Terminal(), monkeypatch))


def test_text_of_tasks_can_not_steer_the_terminal(live: Cli) -> None:
    id = live.submit("work", "--key", "\x1b[2Jgone\n", "--tag", "a\u202eb")
    outcome = live.ok("task", id)
    assert "key        \\x1b[2Jgone\\n" in outcome.out
    assert "a\\u202eb" in outcome.out
    assert printable("plain ünïcode 日本") == "plain ünïcode 日本"


def test_a_terminal_without_unicode_gets_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    Output(json=False).line("né")
    stream.flush()
    assert stream.buffer.getvalue() == b"n\\xe9\n"  # type: ignore[attr-defined]


def test_json_is_one_ascii_document_with_foreign_values_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output(json=True).document({
        "when": datetime(2026, 1, 2, tzinfo=UTC), "cost": Decimal("1.50"), "tags": {"b", "a"},
        "endless": float("inf"), "text": "é\ud800",
    })
    assert capsys.readouterr().out == (
        '{"when": "2026-01-02T00:00:00+00:00", "cost": "1.50", "tags": ["a", "b"], '
        '"endless": "Infinity", "text": "\\u00e9\\ud800"}\n'
    )


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0.0 s"), (0.25, "0.2 s"), (59.6, "1 min"), (95, "1 min 35 s"), (7260, "2 h 1 min"),
    (86_400, "1 d"), (90_061, "1 d 1 h"), (86_405, "1 d"),
])
def test_spans_are_told_in_two_units_at_most(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_distances_look_both_ways() -> None:
    assert distance(100, now=160) == "1 min ago"
    assert distance(160, now=100) == "in 1 min"


def test_times_out_of_range_are_shown_all_the_same() -> None:
    assert output.moment(1e18) == "1000000000000000000 s after 1970"
    assert output.clock(1e18) == "1000000000000000000"
    assert output.clock(None) is None


# ------------------------------------------------------------------------------- progress


def test_progress_shows_part_count_and_rate_on_a_terminal() -> None:
    now = [0.0]
    stream = Terminal()
    with Progress(stream, 200, monotonic=lambda: now[0]) as progress:
        now[0] = 2.0
        progress.count = 1000
        progress.read(100)
        assert stream.getvalue().startswith(
            "\r[############------------]  50%  1,000 tasks  500/s  2 s left"
        )
        written = len(stream.getvalue())
        progress.read(1)
        assert len(stream.getvalue()) == written, "drawn at most ten times a second"
    assert stream.getvalue().endswith("\r\x1b[K")


def test_progress_is_silent_where_nobody_watches() -> None:
    stream = io.StringIO()
    with Progress(stream, None) as progress:
        progress.read(10)
    assert stream.getvalue() == ""

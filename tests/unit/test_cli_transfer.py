"""``skedulr export`` and ``skedulr import``: round trips, and all that may go wrong with them."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kept_store
import pytest
from cli_driver import Cli, Hands, Terminal
from servers import Server, wait_until

import skedulr
import skedulr.doctor
from skedulr import Limit, exporter, transfer
from skedulr.exporter import Exporter
from skedulr.keys import PoolKeys, SpaceKeys
from skedulr.transfer import END, HEAD, Line
from skedulr.wire import Wire

KEPT = Path(__file__).parent.parent / "fixtures" / "store-0.1.0.jsonl"
KEYS, COPY = PoolKeys("skedulr", "default"), PoolKeys("copy", "default")


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], server: Server, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    """The command line in a folder of its own, on each server."""
    for name in list(os.environ):
        if name.startswith("SKEDULR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SKEDULR_REDIS_URL", server.url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(skedulr.doctor, "MOMENT_S", 0.01)
    monkeypatch.chdir(tmp_path)
    return Cli(capsys)


@pytest.fixture
def app(server: Server) -> Iterator[skedulr.Skedulr]:
    """An app on the server."""
    made = skedulr.Skedulr(url=server.url)
    yield made
    made.close()


def put(app: skedulr.Skedulr, uid: str, *args: Any, **options: Any) -> skedulr.Handle[Any]:
    """A task of that id."""
    return app.submit_call(app.remote("work", id=uid, **options).bind(*args))


def lines_of(name: str) -> list[Line]:
    with open(name, "rb") as file:
        return list(transfer.read(file))


def content(name: str) -> list[str]:
    """What is in a file, sorted, without what differs from one export to another."""
    lines = [line for line in lines_of(name) if line["kind"] not in (HEAD, END)]
    for line in lines:
        line.pop("name", None) if "body" in line else None
        if line["kind"] == "edges":
            line["edges"] = sorted(line["edges"])
    return sorted(json.dumps(line, default=repr, sort_keys=True) for line in lines)


# Round trips


@pytest.mark.parametrize("form", ["msgpack", "jsonl"])
def test_every_state_and_key_comes_back_as_it_was(cli: Cli, server: Server, form: str) -> None:
    shown = kept_store.load(KEPT, server)
    cli.ok("export", f"kept.{form}", "--namespace", "kept")
    made = cli("import", f"kept.{form}", "--namespace", "copy")
    assert made.status == 0, made
    assert "skedulr resume lets them go" in made.err
    copied = skedulr.Skedulr(url=server.url, namespace="copy")
    for id, before in shown.items():
        if before["state"] is None:
            continue
        after = copied.client.get(id)
        expected = dict(before)
        if before["state"] == "running":
            expected |= {"state": "queued", "attempt": 0, "progress": None, "note": None}
        assert {part: after.get(part) for part in kept_store.SHOWN} == json.loads(
            json.dumps(expected)) | {"result": after.get("result"), "args": after.get("args")}
    copied.close()
    cli.ok("export", f"copy.{form}", "--namespace", "copy")
    assert content(f"copy.{form}") == content(f"kept.{form}")
    assert cli("doctor", "--namespace", "copy").lines == ["nothing is broken"]


def test_it_says_what_it_did_and_a_second_import_changes_nothing(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    parent = put(app, "a")
    put(app, "b", delay=100)
    put(app, "c", depends_on=[parent], limit=Limit(concurrency=1, name="one"))
    app.schedule_recurring(app.remote("work").bind(), 60, name="hourly")
    put(app, "d")
    Hands(server).succeed()
    exported = cli.ok("export", "x.msgpack", "--json").json
    assert exported == {"pools": ["default"], "tasks": 3, "records": 1, "schedules": 1, "limits": 0}
    assert cli.ok("export", "x.msgpack").out.startswith("3 tasks, 1 finished, 1 schedule exported")
    dry = cli.ok("import", "x.msgpack", "--namespace", "copy", "--dry-run")
    assert dry.lines == ["3 tasks, 1 finished, 1 schedule would be imported"]
    assert server.client.keys("{copy*") == []
    first = cli.ok("import", "x.msgpack", "--namespace", "copy", "--json").json
    assert first == {"tasks": 3, "records": 1, "schedules": 1, "limits": 0, "already": 0,
                     "left_out": 0, "paused": [], "dry_run": False}
    before = {key: server.client.dump(key) for key in server.client.keys("{copy*")}
    again = cli.ok("import", "x.msgpack", "--namespace", "copy")
    assert again.out.startswith("0 tasks imported")
    assert again.out.endswith("; 5 were there already\n")
    assert {key: server.client.dump(key) for key in server.client.keys("{copy*")} == before


def test_the_file_is_in_the_order_in_which_they_would_run(
    cli: Cli, app: skedulr.Skedulr, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "PAGE", 7)
    for n in range(40):
        put(app, f"n{n}", priority=n % 3)
    # As keys that take turns have it: many at one place.
    server.client.zadd(KEYS.ready, dict.fromkeys((f"n{n}" for n in range(10, 30)), 2**50))
    expected = [uid.decode() for uid in server.client.zrange(KEYS.ready, 0, -1)]
    cli.ok("export", "x.msgpack")
    assert [line["uid"] for line in lines_of("x.msgpack") if line["kind"] == "task"] == expected


def test_a_pool_in_streams_goes_through_and_back(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    wire = Wire(server.url, name="test")
    for namespace in ("skedulr", "copy"):
        store = skedulr.store.Store(PoolKeys(namespace, "default"), "streams")
        assert store.settle(wire, 15_000) is None
    wire.close()
    for n in range(5):
        put(app, f"n{n}")
    put(app, "later", delay=100)
    Hands(server).claim(2)
    cli.ok("export", "x.jsonl")
    cli.ok("import", "x.jsonl", "--namespace", "copy")
    entries = [fields[b"t"] for _, fields in server.client.xrange(COPY.stream)]
    assert entries == [b"n0", b"n1", b"n2", b"n3", b"n4"]
    # Into sorted sets, and what has a limit not into a stream.
    cli.ok("import", "x.jsonl", "--namespace", "plain")
    assert server.client.zcard(PoolKeys("plain", "default").ready) == 5
    skedulr.Skedulr(url=server.url, namespace="first").submit_call(
        app.remote("work", id="limited", limit=Limit(concurrency=1)).bind())
    cli.ok("export", "first.jsonl", "--namespace", "first")
    refused = cli("import", "first.jsonl", "--namespace", "copy")
    assert refused.status == 1
    assert "left out: default/limited: it has a limit, and the pool can have none" in refused.err
    assert cli("doctor", "--namespace", "copy").lines == ["nothing is broken"]


def test_a_pool_that_was_paused_is_paused_where_it_is_empty_and_not_where_it_is_at_work(
    cli: Cli, app: skedulr.Skedulr
) -> None:
    put(app, "a")
    put(app, "b", pool="other")
    app.pause("default")
    cli.ok("export", "x.msgpack")
    cli.submit("work", "--namespace", "copy")
    assert cli.ok("import", "x.msgpack", "--namespace", "copy", "--json").json["paused"] == []
    made = cli("import", "x.msgpack", "--namespace", "new")
    assert made.err == "paused, as they were: default; skedulr resume lets them go\n"
    assert {one["name"]: one["paused"] for one in cli.ok(
        "pools", "--namespace", "new", "--json").json["items"]} == {"default": True, "other": False}


def test_limits_that_were_set_are_set_and_those_known_stay(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    put(app, "a", limit=Limit(concurrency=1, name="one"))
    put(app, "b", limit=Limit(concurrency=2, name="two"))
    app.client.set_limit("one", Limit(concurrency=7))
    app.client.set_limit("two", Limit(concurrency=8))
    cli.ok("export", "x.msgpack")
    other = skedulr.Skedulr(url=server.url, namespace="copy")
    put(other, "c", limit=Limit(concurrency=3, name="one"))
    put(other, "d", limit=Limit(concurrency=4, name="two"))
    other.client.set_limit("two", Limit(concurrency=9))
    cli.ok("import", "x.msgpack", "--namespace", "copy")
    assert {one["name"]: (one["concurrency"], one["declared"]["concurrency"])
            for one in other.client.limits()} == {"one": (7, 3), "two": (9, 4)}
    other.close()


def test_schedules_of_code_and_names_that_another_pool_has_stay_away(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    app.schedule_recurring(app.remote("work").bind(), 60, name="made")
    app.schedule_recurring(app.remote("work").bind(), 60, name="taken")
    app.schedule_recurring(app.remote("work").bind(), 60, name="declared")
    state = server.client.hget(KEYS.planned, "declared")
    server.client.hset(KEYS.planned, "declared", state.replace(b" - ", b" code ", 1))
    other = skedulr.Skedulr(url=server.url, namespace="copy")
    other.schedule_recurring(other.remote("work", pool="other").bind(), 60, name="taken")
    cli.ok("export", "x.msgpack")
    made = cli.ok("import", "x.msgpack", "--namespace", "copy", "--json").json
    assert (made["schedules"], made["already"]) == (1, 1)
    assert {one.name: one.info()["pool"] for one in other.schedules()} == {
        "made": "default", "taken": "other"}
    other.close()


def test_a_unique_key_that_is_held_there_leaves_its_task_out(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    put(app, "a", 1, unique="until_done")
    put(app, "b", 2, unique="until_done")
    cli.ok("export", "x.msgpack")
    other = skedulr.Skedulr(url=server.url, namespace="copy")
    put(other, "mine", 1, unique="until_done")
    made = cli("import", "x.msgpack", "--namespace", "copy")
    assert (made.status, made.err) == (
        1, "skedulr import: left out: default/a: its unique key is held by another task\n")
    with pytest.raises(skedulr.DuplicateTask):
        put(other, "again", 2, unique="until_done")
    other.close()


def test_an_id_that_only_a_hand_can_have_made_is_left_out(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    put(app, "a")
    body = server.client.hget(KEYS.tasks, "a")
    server.client.hset(KEYS.tasks, b"by hand \xff", body)
    server.client.hset(KEYS.tasks, "x" * 250 + ".17", body)  # as the steps of a workflow may be
    cli.ok("export", "x.jsonl")
    made = cli("import", "x.jsonl", "--namespace", "copy")
    assert (made.status, made.err.count("\n")) == (1, 1)
    assert "left out: default/by hand" in made.err and "its id is not usable" in made.err
    assert sorted(server.client.hkeys(COPY.tasks)) == [b"a", b"x" * 250 + b".17"]


# Which part, and where to


def test_one_pool_of_several_and_a_pool_of_another_name(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    put(app, "a")
    put(app, "b", pool="other")
    cli.ok("export", "other.msgpack", "--pool", "other")
    assert {line.get("pool") for line in lines_of("other.msgpack")[1:-1]} == {"other"}
    cli.ok("export", "all.msgpack")
    cli.ok("import", "all.msgpack", "--namespace", "copy", "--pool", "other", "--into", "third")
    assert server.client.hkeys(SpaceKeys("copy").pools) == [b"third"]
    assert server.client.hkeys(PoolKeys("copy", "third").tasks) == [b"b"]
    assert "--into takes one pool, and 2 are in it" in cli.refused(
        "import", "all.msgpack", "--into", "third", status=2)
    assert "pool 'othr' is not in it" in cli.refused(
        "import", "all.msgpack", "--pool", "othr", status=2)
    assert "there is no pool 'othr'" in cli.refused(
        "export", "x.msgpack", "--pool", "othr", status=1)
    assert not Path("x.msgpack").exists()


def test_what_waits_for_others_does_not_go_under_another_name(
    cli: Cli, app: skedulr.Skedulr
) -> None:
    put(app, "b", depends_on=[put(app, "a")])
    cli.ok("export", "x.msgpack")
    assert "1 tasks of pool 'default' wait for others" in cli.refused(
        "import", "x.msgpack", "--into", "third", status=2)


def test_without_the_finished_ones_parents_are_kept(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    put(app, "alone")
    put(app, "parent")
    put(app, "other")
    put(app, "child", depends_on=["default/parent", "default/other"])
    app.client.ask(lambda wire: skedulr.delivery.Delivery("skedulr", wire).settle(
        ["default"], ahead_ms=10_000))
    Hands(server).succeed(count=2)
    cli.ok("export", "x.msgpack", "--unfinished")
    found = {line["uid"]: line["kind"] for line in lines_of("x.msgpack") if "body" in line}
    assert found == {"other": "task", "child": "task", "parent": "record"}


# Workflows


def test_what_waits_is_tied_when_all_is_in_and_to_parents_of_any_pool(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    # "a..." is exported first, and its parent is of a pool that comes last.
    put(app, "child", pool="a", depends_on=[put(app, "parent", pool="z")])
    cli.ok("export", "x.jsonl")
    whole_file = Path("x.jsonl").read_bytes().splitlines(keepends=True)
    Path("cut.jsonl").write_bytes(b"".join(
        line for line in whole_file[:-1] if b'"parent"' not in line or b"edges" in line))
    with open("cut.jsonl", "rb") as cut:
        pipe = subprocess.run(
            [sys.executable, "-c", _RUN, "import", "-", "--namespace", "copy", "--redis",
             server.url], input=cut.read(), capture_output=True)
    assert pipe.returncode == 1 and b"the file was cut" in pipe.stderr, pipe
    copy = skedulr.Skedulr(url=server.url, namespace="copy")
    deliver(copy, "a", "z")
    assert copy.get("a/child").state == "waiting"
    # Whatever it takes the half of it for, it leaves alone what the import keeps back.
    cli("doctor", "--fix", "--namespace", "copy")
    assert copy.get("a/child").state == "waiting"
    cli.ok("import", "x.jsonl", "--namespace", "copy")
    deliver(copy, "a", "z")
    assert copy.get("a/child").state == "waiting"
    assert server.client.hexists(PoolKeys("copy", "z").edges, "parent")
    assert cli("doctor", "--namespace", "copy").lines == ["nothing is broken"]
    copy.get("z/parent").cancel()
    deliver(copy, "a", "z")
    assert copy.get("a/child").state == "skipped"
    assert server.client.zcard(PoolKeys("copy", "a").outbox) == 0
    copy.close()


def deliver(app: skedulr.Skedulr, *pools: str) -> None:
    """What the deliverers of these pools do, in time."""
    namespace = app.client.config.namespace
    app.client.ask(lambda wire: skedulr.delivery.Delivery(namespace, wire).settle(
        pools, ahead_ms=10_000))


# Files that are not as they should be

_RUN = "import sys; from skedulr.cli import run; sys.exit(run(sys.argv[1:]))"


@pytest.mark.parametrize("form", ["msgpack", "jsonl"])
def test_a_cut_file_is_refused_before_anything_is_written(
    cli: Cli, app: skedulr.Skedulr, server: Server, form: str
) -> None:
    for n in range(20):
        put(app, f"n{n}")
    cli.ok("export", f"x.{form}")
    data = Path(f"x.{form}").read_bytes()
    Path("cut").write_bytes(data[:len(data) * 3 // 4])
    refused = cli.refused("import", "cut", "--namespace", "copy", status=2)
    assert refused == "skedulr import: cut: it was cut: its end is missing"
    assert server.client.keys("{copy*") == []
    taken = cli("import", "cut", "--namespace", "copy", "--partial")
    assert taken.status == 0 and "what came before it is in" in taken.err
    assert 0 < server.client.hlen(COPY.tasks) < 20
    assert cli("import", f"x.{form}", "--namespace", "copy").status == 0
    assert server.client.hlen(COPY.tasks) == 20


def test_foreign_files_and_newer_ones_are_refused(cli: Cli, server: Server) -> None:
    Path("foreign").write_bytes(b"PK\x03\x04 something else")
    assert cli.refused("import", "foreign", status=2) == (
        "skedulr import: foreign: it is no export of Skedulr")
    Path("empty").write_bytes(b"")
    assert cli.refused("import", "empty", status=2).endswith("empty: it is empty")
    Path("newer").write_text(json.dumps({"kind": HEAD, "format": 7, "release": "9.0.0"}) + "\n")
    assert cli.refused("import", "newer", status=2) == (
        "skedulr import: newer: it has format 7, written by Skedulr 9.0.0; this release "
        f"({skedulr.__version__}) reads format 1")
    assert cli.refused("import", "nowhere", status=2).endswith("nowhere: No such file or directory")
    assert cli.refused("export", "no/where", status=2).endswith("No such file or directory")
    assert server.client.keys("*") == []


def test_a_line_nobody_can_read_stops_it_and_is_named(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    for n in range(3):
        put(app, f"n{n}")
    cli.ok("export", "x.jsonl")
    rows = Path("x.jsonl").read_text().splitlines(keepends=True)
    Path("bad.jsonl").write_text("".join([*rows[:4], "nonsense\n", *rows[4:]]))
    stopped = cli("import", "bad.jsonl", "--namespace", "copy")
    assert stopped.status == 1
    assert "line 5 can not be read" in stopped.err and "run it again for the rest" in stopped.err


# Pipes, and what a terminal is for


def test_through_a_pipe_to_another_namespace(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    put(app, "a")
    command = f'"{sys.executable}" -c "{_RUN}"'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c",
         f"{command} export - | {command} import - --namespace copy"],
        capture_output=True, text=True, env={**os.environ, "SKEDULR_REDIS_URL": server.url})
    assert done.returncode == 0, done
    assert "1 task exported" in done.stderr and "1 task imported" in done.stdout
    assert server.client.hkeys(COPY.tasks) == [b"a"]


def test_the_file_is_its_owners_alone_and_has_its_name_when_it_is_whole(
    cli: Cli, app: skedulr.Skedulr, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(app, "a")
    cli.ok("export", "x.msgpack")
    assert stat.S_IMODE(os.stat("x.msgpack").st_mode) == 0o600
    kept = Path("x.msgpack").read_bytes()

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Exporter, "lines", interrupted)
    assert cli("export", "x.msgpack").status == 130
    assert sorted(os.listdir()) == ["x.msgpack"]
    assert Path("x.msgpack").read_bytes() == kept


def test_what_wants_standard_output_twice_or_a_terminal_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--json and - both want standard output" in cli.refused(
        "export", "-", "--json", status=2)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert "msgpack is not for a terminal" in cli("export", "-").err


def test_a_pool_of_another_transport_is_refused(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    put(app, "a")
    server.client.hset(KEYS.meta, "transport", "elsewhere")
    assert "kept by the transport 'elsewhere'" in cli.refused("export", "x", status=2)


# While everything runs, and while it is broken off


def test_each_is_in_it_once_whatever_it_does_meanwhile(
    app: skedulr.Skedulr, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "PAGE", 5)
    monkeypatch.setattr(exporter, "_FIRST_PAGE", 5)
    for n in range(60):
        put(app, f"n{n:02}", **({"delay": 1000 + n} if n % 4 == 0 else {}))
    hands, wire = Hands(server), Wire(server.url, name="test")
    found: list[str] = []
    for at, line in enumerate(Exporter(wire, "skedulr").lines(["default"])):
        if "body" in line:
            found.append(line["uid"])
        if at in (3, 9, 14, 20):
            hands.succeed(count=2)
            # One comes back from the back, one goes there, one is new.
            due = server.client.zrange(KEYS.delayed, -1, -1)[0]
            server.client.zadd(KEYS.delayed, {due: 1})
            hands.claim(1)
            late = server.client.zrange(KEYS.ready, -1, -1)[0]
            server.client.zrem(KEYS.ready, late)
            server.client.zadd(KEYS.delayed, {late: 1})
            put(app, f"new{at}")
    wire.close()
    assert len(found) == len(set(found))
    assert {f"n{n:02}" for n in range(60)} <= set(found)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_import_that_is_broken_off_is_run_again(
    cli: Cli, app: skedulr.Skedulr, server: Server, how: signal.Signals
) -> None:
    app.submit_many(app.remote("work").bind(n) for n in range(8000))
    put(app, "child", depends_on=[put(app, "parent")])
    cli.ok("export", "x.msgpack")
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, "import", "x.msgpack", "--namespace", "copy"],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "SKEDULR_REDIS_URL": server.url})
    wait_until(lambda: server.client.hlen(COPY.tasks) > 0, what="it has begun")
    process.send_signal(how)
    _, said = process.communicate(timeout=20)
    if process.returncode != 0:  # else it was faster than we
        assert process.returncode in (-how, 130)
        assert how == signal.SIGKILL or b"run it again for the rest" in said
    assert cli("import", "x.msgpack", "--namespace", "copy").status == 0
    assert server.client.hlen(COPY.tasks) == 8002
    order = server.client.zrange(KEYS.ready, 0, -1)
    assert server.client.zrange(COPY.ready, 0, -1) == order
    assert server.client.zscore(COPY.outbox, "a child") < 2**50
    assert cli("doctor", "--namespace", "copy").lines == ["nothing is broken"]


def test_a_server_that_goes_away_leaves_no_file_and_is_named(
    cli: Cli, app: skedulr.Skedulr, fresh_server: Callable[..., Server],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(app, "a")
    cli.ok("export", "kept.msgpack")
    own = fresh_server()
    lines = Exporter.lines

    def cut_off(self: Exporter, pools: Any) -> Iterator[Line]:
        own.kill()
        yield from lines(self, pools)

    monkeypatch.setattr(Exporter, "lines", cut_off)
    skedulr.Skedulr(url=own.url).submit("work")
    assert "Redis does not answer" in cli.refused("export", "x", "--redis", own.url, status=1)
    assert sorted(os.listdir()) == ["kept.msgpack"]
    gone = cli("import", "kept.msgpack", "--redis", own.url)
    assert gone.status == 1
    assert "Redis does not answer" in gone.err and "run it again for the rest" in gone.err


def test_how_far_it_is_shows_on_a_terminal(
    cli: Cli, app: skedulr.Skedulr, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        put(app, f"n{n}")
    for command in (["export", "x.jsonl"], ["import", "x.jsonl", "--namespace", "copy"]):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        assert cli(*command).status == 0
        assert "%" in terminal.getvalue() and terminal.getvalue().endswith("\r\x1b[K")


def test_a_server_that_is_full_stops_it_and_it_goes_on_later(
    cli: Cli, app: skedulr.Skedulr, server: Server
) -> None:
    put(app, "a")
    cli.ok("export", "x.msgpack")
    server.fill()
    stopped = cli("import", "x.msgpack", "--namespace", "copy")
    assert stopped.status == 1 and "run it again for the rest" in stopped.err
    server.client.config_set("maxmemory", "0")
    assert cli("import", "x.msgpack", "--namespace", "copy").status == 0
    assert server.client.hkeys(COPY.tasks) == [b"a"]

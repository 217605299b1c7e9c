"""Logs: the task as fields on every line, one object a line, nothing that forges a line."""

from __future__ import annotations

import contextvars
import io
import json
import logging
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import WORK, Node

from skedulr.context import Context, running
from skedulr.logs import JsonFormatter, LineFormatter, TaskFilter, escape, make_handler

Start = Callable[..., Node]

LOGGING = '''
import contextvars
import logging
import sys

import gevent.local

import skedulr.logs

logging.getLogger().addHandler(skedulr.logs.make_handler(as_json=AS_JSON, stream=sys.stdout))
logging.getLogger().setLevel("INFO")
mine = logging.getLogger("shop")
seen = contextvars.ContextVar("seen", default="nothing")
local = gevent.local.local()


@task(name="speak")
def speak(text, secret):
    mine.info("saying %s", text, extra={"colour": "red"})
    try:
        1 / 0
    except ZeroDivisionError:
        mine.exception("went wrong")


@task(name="probe")
def probe(mark):
    before = seen.get(), getattr(local, "mark", "nothing")
    seen.set(mark)
    local.mark = mark
    time.sleep(0.001)
    return [*before, seen.get(), local.mark]
'''


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    out = io.StringIO()
    logger = logging.getLogger("test.logs")
    logger.propagate, logger.level = False, logging.DEBUG
    logger.handlers = [make_handler(as_json=True, stream=out)]
    yield logger, out
    logger.handlers = []


def inside(run: Callable[[], object]) -> None:
    """Run as if in a task."""
    def go() -> None:
        running.set(Context(
            uid="u1", pool="mail", name="send", args=[], kwargs={}, attempt=3, max_retries=3,
            token="t", due_at=None, headers={},
        ))
        run()

    contextvars.copy_context().run(go)


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_of_a_task_has_its_fields_and_another_has_none(
    logger: tuple[logging.Logger, io.StringIO],
) -> None:
    log, out = logger
    inside(lambda: log.info("hello"))
    log.warning("bye")
    first, second = lines(out)
    assert {name: first[name] for name in ("task_id", "attempt", "pool", "task", "message")} == {
        "task_id": "mail/u1", "attempt": 3, "pool": "mail", "task": "send", "message": "hello",
    }
    assert not {"task_id", "attempt", "pool", "task"} & second.keys()
    assert (second["level"], second["logger"]) == ("warning", "test.logs")


def test_what_extra_says_stays_and_what_json_can_not_carry_becomes_text(
    logger: tuple[logging.Logger, io.StringIO],
) -> None:
    log, out = logger
    inside(lambda: log.info("hello", extra={"pool": "mine", "thing": {1, 2}}))
    assert lines(out)[0]["pool"] == "mine"
    assert lines(out)[0]["thing"] == "{1, 2}"


@pytest.mark.parametrize("nasty", ["a\nb", "\x1b[31mred", "x\r\ny", "\u2028", "\x00", "\x9b1m"])
def test_control_characters_forge_no_line_in_either_form(nasty: str) -> None:
    record = logging.makeLogRecord({"msg": "said %s", "args": (nasty,), "name": "n"})
    TaskFilter().filter(record)
    for formatter in (LineFormatter(), JsonFormatter()):
        text = formatter.format(record)
        assert len(text.splitlines()) == 1
        assert text.isprintable(), text


def test_a_traceback_keeps_its_lines_and_loses_its_escapes() -> None:
    out = io.StringIO()
    handler = make_handler(stream=out)
    log = logging.getLogger("test.trace")
    log.propagate, log.handlers = False, [handler]
    try:
        raise ValueError("\x1b[31mred")
    except ValueError:
        log.exception("failed")
    assert "\n  File " in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_escape_leaves_ordinary_text_alone() -> None:
    assert escape("größer 東京 ok") == "größer 東京 ok"


@pytest.mark.server
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "lines"])
def test_in_a_child_every_line_carries_the_task_once_and_no_secret(
    start: Start, as_json: bool
) -> None:
    work = WORK + LOGGING.replace("AS_JSON", str(as_json))
    node = start(*["--log-json"] * as_json, work=work)
    uid = node.submit("speak", "one\n\x1b[31mtwo", "planted-secret")
    node.wait_state(uid, "succeeded")
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    assert "planted-secret" not in node.log
    assert "\x1b" not in node.log
    assert node.log.count("saying one") == 1
    if not as_json:
        assert f"[default/{uid} #1]" in node.log
        return
    said = [json.loads(line) for line in node.log.splitlines()]
    mine = [one for one in said if one["logger"] == "shop"]
    assert [one["message"] for one in mine] == ["saying one\n\x1b[31mtwo", "went wrong"]
    assert all(one["task_id"] == f"default/{uid}" and one["attempt"] == 1 for one in mine)
    assert mine[0]["colour"] == "red"
    assert "ZeroDivisionError" in mine[1]["exception"]
    assert {"skedulr.master", "skedulr.pool.default"} <= {one["logger"] for one in said}


@pytest.mark.server
def test_each_run_starts_with_fresh_context_variables_and_locals(start: Start) -> None:
    node = start(work=WORK + LOGGING.replace("AS_JSON", "False"), pools="default=3")
    assert node.app is not None
    probe = node.app.remote("probe")
    handles = node.app.submit_many([probe.bind(f"m{n}") for n in range(300)])
    assert node.app.wait(handles, timeout=15)
    for n, handle in enumerate(handles):
        assert handle.result(1) == ["nothing", "nothing", f"m{n}", f"m{n}"]


@pytest.mark.server
def test_the_root_logger_is_left_alone(start: Start) -> None:
    work = WORK + '''
import logging

@task(name="roots")
def roots():
    logging.getLogger("shop").info("nobody asked for this")
    root = logging.getLogger()
    return [len(root.handlers), root.level, logging.getLogger("skedulr").propagate]
'''
    node = start(work=work)
    uid = node.submit("roots")
    assert node.wait_state(uid, "succeeded")["result"] == [0, logging.WARNING, False]
    assert "nobody asked" not in node.log

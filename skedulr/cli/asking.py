"""Questions about tasks: ``task``, ``result``, ``list``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .. import queries
from ..errors import ConfigError, ResultTimeout, TaskFailed
from ..keys import check_name
from . import exits
from .output import clock, json_line, moment
from .session import Session

#: A list with filters looks at this many tasks, then gives a cursor to go on from.
MOST_LOOKED_AT = 20_000


def show_task(session: Session) -> int:
    """``skedulr task ID``."""
    task = session.client.get(session.given.id)
    if session.output.json:
        session.output.document(task)
    else:
        print_task(session, task)
    return exits.OK


def print_task(session: Session, task: Mapping[str, Any]) -> None:
    """A task for people: what is there, in the order of its life."""
    out = session.output
    error = task.get("error") or {}
    retries = task.get("max_retries")
    out.fields([
        ("id", task["id"]), ("name", task["name"]), ("state", task["state"]),
        ("priority", task.get("priority") or None),
        ("attempt", _attempt(task.get("attempt"), retries)),
        ("crashes", task.get("crashes") or None),
        ("progress", _progress(task)), ("key", task.get("key")), ("tags", task.get("tags")),
        ("workflow", task.get("workflow")), ("depends on", task.get("depends_on")),
        ("submitted", moment(task.get("submitted_at"))), ("due", moment(task.get("due_at"))),
        ("started", moment(task.get("started_at"))), ("finished", moment(task.get("finished_at"))),
        ("worker", task.get("worker")),
        ("args", json_line(task["args"]) if task.get("args") else None),
        ("kwargs", json_line(task["kwargs"]) if task.get("kwargs") else None),
        ("result", json_line(task.get("result")) if task["state"] == "succeeded" else None),
        ("error", ": ".join(one for one in (error.get("type"), error.get("message")) if one)),
        ("unreadable", task.get("unreadable")),
    ])
    if error.get("traceback"):
        out.line()
        out.block(error["traceback"])


def _attempt(attempt: int | None, retries: int | None) -> str | None:
    if not attempt:
        return None
    return f"{attempt} of {retries + 1}" if retries is not None else str(attempt)


def _progress(task: Mapping[str, Any]) -> str | None:
    if task.get("progress") is None:
        return None
    note = task.get("note")
    return f"{task['progress']:g} %" + (f", {note}" if note else "")


def show_result(session: Session) -> int:
    """``skedulr result ID``; the exit status tells how the task stands."""
    given, out = session.given, session.output
    try:
        value = session.client.result(given.id, given.timeout)
    except TaskFailed as failed:
        session.complain(str(failed))
        if out.json:
            error = {"type": failed.type, "message": failed.message}
            out.document({"state": failed.state, "error": error})
        return exits.ENDED_OTHERWISE
    except ResultTimeout:
        state = session.client.state(given.id)
        session.complain(f"task {given.id} has not ended yet: it is {state}")
        if out.json:
            out.document({"state": state})
        return exits.NOT_YET
    if out.json:
        out.document({"result": value})
    elif isinstance(value, str):
        out.block(value)
    else:
        out.line(json_line(value))
    return exits.OK


def list_tasks(session: Session) -> int:
    """``skedulr list``."""
    given, out = session.given, session.output
    page = find_tasks(
        session, state=given.state, pool=given.pool, name=given.name, query=given.query,
        limit=given.limit, cursor=given.cursor,
    )
    if out.json:
        out.document(page)
        return exits.OK
    out.table(
        ("ID", "NAME", "STATE", "ATTEMPT", "SUBMITTED", "ERROR"),
        [(task["id"], task["name"], task["state"], task.get("attempt"),
          clock(task.get("submitted_at")), _error_line(task)) for task in page["items"]],
        empty="no such tasks", cut="ERROR",
    )
    if page["cursor"]:
        session.hint(f"there may be more: --cursor {page['cursor']}")
    return exits.OK


def _error_line(task: Mapping[str, Any]) -> str:
    error = task.get("error") or {}
    return ": ".join(one for one in (error.get("type"), error.get("message")) if one)


def find_tasks(
    session: Session, *, state: str | None, pool: str | None, name: str | None, query: str | None,
    limit: int, cursor: str | None,
) -> dict[str, Any]:
    """``{"items": [task, ...], "cursor": text or None}`` over one pool or all of them in turn.

    The cursor is ``<pool>:<place>``. With a filter it may give few items and a cursor: then
    MOST_LOOKED_AT tasks were looked at.
    """
    queries.check_state(state)
    if not 1 <= limit <= queries.MOST_ITEMS:
        raise ConfigError(f"--limit {limit} is not usable: 1 to {queries.MOST_ITEMS}")
    items: list[dict[str, Any]] = []
    looked = 0
    for one, place in _places(session, pool, cursor):
        while place is not None:
            if len(items) >= limit or looked >= MOST_LOOKED_AT:
                return {"items": items, "cursor": f"{one}:{place}"}
            page = session.client.page(
                state=state, pool=one, limit=limit - len(items), cursor=place
            )
            looked += len(page["items"])
            items += [task for task in page["items"] if matches(task, name, query)]
            place = page["cursor"]
    return {"items": items, "cursor": None}


def _places(
    session: Session, pool: str | None, cursor: str | None
) -> Iterator[tuple[str, str | None]]:
    """Each pool to look at, with the place in it to begin at."""
    first, _, place = (cursor or "").rpartition(":")
    if cursor is not None and not (place.isdecimal() and first and pool in (None, first)):
        raise ConfigError(f"--cursor {cursor} is not one that this list gave")
    pools: Iterable[str] = [check_name("pool", pool)] if pool else sorted(
        one["name"] for one in session.client.pools()
    )
    for one in pools:
        if one == first:
            yield one, place
        elif one > first:
            yield one, "0"


def matches(task: Mapping[str, Any], name: str | None, query: str | None) -> bool:
    """Whether a task has this name, and this text in its id, name, key, tags or error."""
    if name is not None and task["name"] != name:
        return False
    if query is None:
        return True
    texts = [task["id"], task["name"], task.get("key"), *(task.get("tags") or []),
             _error_line(task)]
    return any(query.casefold() in str(text).casefold() for text in texts if text)

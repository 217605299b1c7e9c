"""Questions about tasks: ``task``, ``result``, ``list``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import lists, queries
from ..errors import ResultTimeout, TaskFailed, UnknownTask, nearest
from ..lists import Selection
from ..wire import Wire
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


def show_workflow(session: Session) -> int:
    """``skedulr workflow ID``."""
    client, given = session.client, session.given
    if given.cancel:
        session.hint(f"{client.cancel_workflow(given.id):,} cancelled")
    elif given.resubmit:
        session.hint(f"{client.resubmit_workflow(given.id):,} put back")
    view = client.workflow(given.id)
    steps = len(view["ids"])
    del view["ids"]
    out = session.output
    if out.json:
        out.document(view)
        return exits.OK
    counts = ", ".join(f"{count} {state}" for state, count in sorted(view["counts"].items()))
    out.fields([
        ("id", view["id"]), ("name", view["name"]), ("state", view["state"]),
        ("steps", f"{view['ended']} of {view['total']} ended: {counts}"),
        ("submitted", moment(view["submitted_at"])), ("finished", moment(view["finished_at"])),
    ])
    out.line()
    names = {step["id"]: step["name"] or step["id"] for step in view["steps"]}
    out.table(
        ("STEP", "TASK", "STATE", "STARTED", "FINISHED", "WAITS FOR", "ERROR"),
        [(names[step["id"]], step["task"], step["state"], clock(step["started_at"]),
          clock(step["finished_at"]),
          " ".join(names.get(one, one) for one in step["depends_on"] or ()), _error_line(step))
         for step in view["steps"]],
        empty="no steps", cut="ERROR",
    )
    if steps > len(view["steps"]):
        session.hint(f"the first {len(view['steps'])} of {steps:,} steps")
    return exits.OK


def list_tasks(session: Session) -> int:
    """``skedulr list``."""
    given, out = session.given, session.output
    selection = Selection(given.state, given.pool, given.name, given.query)
    items, cursor = find_tasks(session, selection, given.limit, given.cursor)
    if not items and cursor is None:
        check_filters(session)
    if out.json:
        out.document({"items": items, "cursor": cursor})
        return exits.OK
    out.table(
        ("ID", "NAME", "STATE", "ATTEMPT", "SUBMITTED", "ERROR"),
        [(task["id"], task["name"], task["state"], task.get("attempt"),
          clock(task.get("submitted_at")), _error_line(task)) for task in items],
        empty="no such tasks", cut="ERROR",
    )
    if cursor:
        session.hint(f"there may be more: --cursor {cursor}")
    return exits.OK


def check_filters(session: Session) -> None:
    """For a selection that nothing was found by: whether that is by a slip in a name.

    Raises UnknownPool, UnknownTask.
    """
    given, client = session.given, session.client
    if given.pool is not None:
        client.require_pool(given.pool)
    if given.name is not None:
        published = client.ask(lambda wire: wire.call("HKEYS", client.space.names))
        known = {one.decode("utf-8", "replace") for one in published}
        known |= {one["name"] for one in client.stats()["names"]}
        if given.name not in known:
            raise UnknownTask(
                f"no task {given.name!r} was published or run here{nearest(given.name, known)}"
            )


def find_tasks(
    session: Session, selection: Selection, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Up to ``limit`` tasks, and where to go on (None: nowhere).

    A page with a filter may hold few tasks or none; so pages are asked for until there are
    enough, or MOST_LOOKED_AT tasks were looked at.
    """
    page = next_page(session, selection, limit, cursor)
    items, looked_at = page.items, page.looked_at
    while page.cursor and len(items) < limit and looked_at < MOST_LOOKED_AT:
        page = next_page(session, selection, limit - len(items), page.cursor)
        items += page.items
        looked_at += page.looked_at
    return items, page.cursor


def next_page(
    session: Session, selection: Selection, limit: int, cursor: str | None
) -> lists.Page:
    """One page over every pool that the selection means."""
    client = session.client

    def look(wire: Wire) -> lists.Page:
        pools = queries.pool_names(wire, client.space)
        return lists.page(wire, session.settings.namespace, pools, selection, limit, cursor)

    return client.ask(look)


def _error_line(task: Mapping[str, Any]) -> str:
    error = task.get("error") or {}
    return ": ".join(one for one in (error.get("type"), error.get("message")) if one)

"""``skedulr schedules``: list them, run, pause, resume and remove one, preview a cron line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..schedule_client import Schedules
from . import exits
from .output import clock, moment, span
from .session import Session
from .submitting import moment as read_moment


def show(session: Session) -> int:
    """``skedulr schedules list``."""
    given, out = session.given, session.output
    page = _schedules(session).page(limit=given.limit, cursor=given.cursor)
    if out.json:
        out.document(page)
        return exits.OK
    out.table(
        ("NAME", "STATE", "WHEN", "TASK", "POOL", "NEXT", "LAST"),
        [
            (one["name"], _state(one), _when(one), one["task"], one["pool"],
             clock(one["next_due"]), clock(one["last_due"]))
            for one in page["items"]
        ],
        empty="no schedules: @skedulr.every and @skedulr.cron declare them in code, "
              "skedulr.schedule_recurring and schedule_cron make them", cut="WHEN",
    )
    if page["cursor"]:
        session.hint(f"there are more: --cursor {page['cursor']}")
    return exits.OK


def run(session: Session) -> int:
    """``skedulr schedules run NAME``: prints the task."""
    handle = _schedules(session).run(session.given.name)
    if session.output.json:
        session.output.document(session.client.get(handle.id))
    else:
        session.output.line(handle.id)
    return exits.OK


def pause(session: Session) -> int:
    """``skedulr schedules pause NAME``."""
    return _answer(session, _schedules(session).pause(session.given.name).info(), "paused")


def resume(session: Session) -> int:
    """``skedulr schedules resume NAME``."""
    shown = _schedules(session).resume(session.given.name).info()
    due = moment(shown["next_due"])
    return _answer(session, shown, f"goes on, next {due}" if due else "has no further tick")


def remove(session: Session) -> int:
    """``skedulr schedules remove NAME``."""
    schedules = _schedules(session)
    shown = schedules.get(session.given.name).info()
    schedules.remove(session.given.name)
    how = "removed; its code declares it again when it is deployed next" if shown["declared"] else (
        "removed"
    )
    return _answer(session, shown, how)


def preview(session: Session) -> int:
    """``skedulr schedules preview "CRON"``."""
    given, out = session.given, session.output
    start = None if given.start is None else read_moment("--start", given.start)
    times = session.app.preview(
        given.line, given.count, tz=given.tz, start=start, seconds=given.seconds
    )
    if out.json:
        out.document({"items": [one.timestamp() for one in times]})
        return exits.OK
    for one in times:
        out.line(f"{one.strftime('%a')} {one.isoformat(' ', 'seconds')}")
    return exits.OK


def _schedules(session: Session) -> Schedules:
    return Schedules(session.client)


def _answer(session: Session, shown: Mapping[str, Any], done: str) -> int:
    if session.output.json:
        session.output.document(shown)
    else:
        session.output.line(f"{shown['name']}: {done}")
    return exits.OK


def _state(shown: Mapping[str, Any]) -> str:
    if shown["error"]:
        return f"failed: {shown['error']}"
    return "paused" if shown["paused"] else "ended" if shown["ended"] else "ok"


def _when(shown: Mapping[str, Any]) -> str | None:
    if shown["kind"] == "recurring":
        return f"every {span(float(shown['spec']))}"
    return shown["spec"] if shown["tz"] in (None, "UTC") else f"{shown['spec']} {shown['tz']}"

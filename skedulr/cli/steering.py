"""Commands that change what is there: ``cancel``."""

from __future__ import annotations

from . import exits
from .session import Session


def cancel(session: Session) -> int:
    """``skedulr cancel ID``: 1 if it had ended already."""
    client, given, out = session.client, session.given, session.output
    done = client.cancel(given.id)
    task = client.get(given.id)
    if out.json:
        out.document(task)
    if not done:
        session.complain(f"task {task['id']} had ended already: it is {task['state']}")
        return exits.FAILURE
    if not out.json:
        out.line(f"{task['id']}: " + (
            "cancelled" if task["state"] == "cancelled" else "it is running and was told to stop"
        ))
    return exits.OK

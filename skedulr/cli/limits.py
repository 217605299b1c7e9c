"""``skedulr limits``: list them, change one at once, take that back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..limiting import Limit
from . import exits
from .session import Session


def show(session: Session) -> int:
    """``skedulr limits list``."""
    found, out = session.client.limits(session.given.pool), session.output
    if out.json:
        out.document({"items": found})
        return exits.OK
    out.table(
        ("NAME", "POOL", "HOLDS", "DECLARED", "RUNNING", "WAITING KEYS"),
        [
            (one["name"], one["pool"], _text(one), _text(one["declared"]),
             "" if one["running"] is None else one["running"], one["waiting"])
            for one in found
        ],
        empty="no limits yet: a pool knows one once a task with limit=Limit(...) was submitted",
    )
    return exits.OK


def set_(session: Session) -> int:
    """``skedulr limits set NAME``."""
    given = session.given
    if given.concurrency is None and given.rate is None:
        raise ConfigError("what is the limit to be? --concurrency N, or --rate N --per SECONDS")
    limit = Limit(
        concurrency=given.concurrency, rate=given.rate,
        per=1.0 if given.per is None else given.per, burst=given.burst,
    )
    return _change(session, limit)


def reset(session: Session) -> int:
    """``skedulr limits reset NAME``."""
    return _change(session, None)


def _change(session: Session, limit: Limit | None) -> int:
    given, out = session.given, session.output
    found = session.client.set_limit(given.name, limit, given.pool)
    if out.json:
        out.document({"items": found})
        return exits.OK
    for one in found:
        out.line(f"{one['name']} in pool {one['pool']}: {_text(one)}")
    return exits.OK


def _text(one: Mapping[str, Any]) -> str:
    if one["concurrency"] is not None:
        return f"{one['concurrency']:,} at once"
    burst = f", burst {one['burst']:,}" if one["burst"] > 1 else ""
    return f"{one['rate']:,g} per {one['per']:g} s{burst}"

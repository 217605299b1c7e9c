"""Commands that look at the whole: ``stats``, ``pools``, ``nodes``, ``check``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from .. import counts
from ..wire import Wire, WireError
from . import exits
from .output import clock, span
from .session import Session


def stats(session: Session) -> int:
    """``skedulr stats``."""
    found, out = session.app.stats(), session.output
    if out.json:
        out.document(found)
        return exits.OK
    out.fields([
        *((name, found[name]) for name in counts.TOTALS),
        ("rate", f"{found['throughput']:,.1f}/s over the last minute"),
        ("wait", _wait(found["predicted_wait"])), ("leader", found["leader"]),
    ])
    out.line()
    _print_pools(session, found["pools"])
    if found["names"]:
        out.line()
        out.table(
            ("TASK", "POOL", "RUNS", "FAILED", "MEAN", "P50", "P95", "P99"),
            [(one["name"], one["pool"], one["runs"], one["failed"],
              *(_millis(one[time]) for time in ("mean_ms", "p50_ms", "p95_ms", "p99_ms")))
             for one in found["names"]],
            empty="", cut="TASK",
        )
    return exits.OK


def pools(session: Session) -> int:
    """``skedulr pools``."""
    found = session.client.pools()
    if session.output.json:
        session.output.document({"items": found, "cursor": None})
    else:
        _print_pools(session, found)
    return exits.OK


#: A pool's columns, and what stands in them.
POOL_COLUMNS = (
    "POOL", "STATE", "WORKERS", "QUEUED", "SCHEDULED", "RUNNING", "WAITING", "DEAD", "SUCCEEDED",
    "FAILED", "RATE/S", "WAIT",
)


def pool_row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """A pool as a row under POOL_COLUMNS."""
    return (
        one["name"], _pool_state(one), one["workers"], one["queued"], one["scheduled"],
        one["running"], one["waiting"], one["dead"], one["succeeded"], one["failed"],
        round(one["throughput"], 1), _wait(one["predicted_wait"]),
    )


def _print_pools(session: Session, found: Iterable[Mapping[str, Any]]) -> None:
    session.output.table(
        POOL_COLUMNS, [pool_row(one) for one in found],
        empty="no pools yet: none was served or submitted to", cut="POOL",
    )


def _pool_state(pool: Mapping[str, Any]) -> str:
    if pool["paused"]:
        return "paused"
    return "unserved" if pool["unserved"] else "ok"


def _millis(ms: float | None) -> str:
    return "unknown" if ms is None else f"{ms:,.0f} ms" if ms < 10_000 else span(ms / 1000)


def _wait(seconds: float | None) -> str:
    return "unknown" if seconds is None else span(seconds)


def nodes(session: Session) -> int:
    """``skedulr nodes``."""
    found, out = session.client.overview(), session.output
    if out.json:
        out.document({"items": found.nodes, "cursor": None})
        return exits.OK
    out.table(
        ("NODE", "STATE", "HOST", "PID", "VERSION", "STARTED", "BEAT", "POOLS", "BUSY", "LAG"),
        [_node_row(node, found.now_s) for node in found.nodes],
        empty="no node has written its record: is a skedulr-master running in this namespace?",
        cut="POOLS",
    )
    return exits.OK


def _node_row(node: Mapping[str, Any], now_s: float) -> tuple[Any, ...]:
    children = node["children"]
    workers: dict[str, int] = {}
    for child in children:
        workers[child["pool"]] = workers.get(child["pool"], 0) + (child.get("workers") or 0)
    return (
        node["id"], "silent" if node["silent"] else "ok", node.get("host"), str(node.get("pid")),
        node.get("version"), clock(node.get("started_at")),
        f"{span(max(0.0, now_s - node['beat_at']))} ago",
        ", ".join(f"{pool}={count}" for pool, count in sorted(workers.items())),
        sum(child.get("busy") or 0 for child in children),
        f"{max((child.get('lag_ms') or 0 for child in children), default=0):.0f} ms",
    )


def check(session: Session) -> int:
    """``skedulr check``: 0 if Redis answers and a node is alive."""
    given, out = session.given, session.output
    wire = Wire(session.address.url, name="skedulr:check", timeout_s=max(given.timeout, 0.001))
    began = time.monotonic()
    alive: list[str] = []
    try:
        found = counts.look(wire, session.settings.namespace)
        alive = [node["id"] for node in found.nodes if not node["silent"]]
        known = len(found.nodes)
        why = None if alive else (
            f"no node is alive in namespace {session.settings.namespace}"
            + (f": {known} stopped writing" if known else "")
        )
    except WireError as error:
        why = f"Redis does not answer at {session.address}: {error}"
    finally:
        wire.close()
    took_ms = 1000 * (time.monotonic() - began)
    if out.json:
        out.document({"ok": why is None, "why": why, "nodes": alive, "took_ms": round(took_ms, 1)})
    elif why is None:
        count = "1 node" if len(alive) == 1 else f"{len(alive)} nodes"
        out.line(f"ok: {count}, Redis took {took_ms:.0f} ms", "ok")
    if why is not None:
        session.complain(why)
        return exits.FAILURE
    return exits.OK

"""Redis as the UI shows it: memory, persistence, clients, slow commands, and what is wrong.

Only what an operator can act on. Each section is asked for apart, so that a server that forbids one
of them still shows the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from ..client import Client
from ..keys import PoolKeys
from ..redis_scripts import names, script
from ..wire import Wire

Info = dict[str, str]


@dataclass(slots=True)
class Slow:
    """One entry of the server's slow log; times in seconds."""

    at_s: float
    took_s: float
    what: str


@dataclass(slots=True)
class Finding:
    """Something that should be otherwise: ``level`` is "bad" or "warn"."""

    level: str
    title: str
    advice: str


@dataclass(slots=True)
class RedisView:
    """All of it."""

    info: Info = field(default_factory=dict)
    #: In a Cluster each master with its INFO; ``info`` is that of the first, which is looked at.
    masters: list[tuple[str, Info]] = field(default_factory=list)
    slow: list[Slow] = field(default_factory=list)
    commands: list[tuple[str, int, float]] = field(default_factory=list)
    broken: list[tuple[str, int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def number(self, name: str) -> float | None:
        """A number of INFO, or None."""
        try:
            return float(self.info[name])
        except (KeyError, ValueError):
            return None


def look(client: Client, pools: list[str]) -> RedisView:
    """Ask for everything. Raises StorageUnavailable where Redis does not answer."""
    view = RedisView()
    parts: tuple[tuple[str, Callable[[Wire], None]], ...] = (
        ("INFO", lambda wire: _read_info(wire, view)),
        ("INFO commandstats", lambda wire: view.commands.extend(_commands(wire))),
        ("SLOWLOG", lambda wire: view.slow.extend(_slow(wire))),
        ("HLEN", lambda wire: view.broken.extend(_broken(wire, client.config.namespace, pools))),
    )
    for name, part in parts:
        try:
            client.ask(part)
        except RedisError as error:
            view.refused.append(f"{name}: {error}")
    view.findings = _findings(view)
    for name, info in view.masters[1:]:
        view.findings += [
            Finding(one.level, f"{name}: {one.title}", one.advice)
            for one in _findings(RedisView(info))
        ]
    return view


def _read_info(wire: Wire, view: RedisView) -> None:
    nodes = wire.every_node()
    infos = [(str(node.place or ""), _lines(node.call("INFO"))) for node in nodes]
    view.info = infos[0][1]
    view.masters = infos if nodes[0] is not wire else []


def _lines(text: bytes) -> Info:
    pairs = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _commands(wire: Wire) -> list[tuple[str, int, float]]:
    """(command, calls, mean microseconds), the ones that took most of the time first."""
    rows = []
    for name, text in _lines(wire.call("INFO", "commandstats")).items():
        stats = dict(part.partition("=")[::2] for part in text.split(","))
        rows.append((
            name.removeprefix("cmdstat_"), int(stats.get("calls", 0)),
            float(stats.get("usec_per_call", 0)),
        ))
    return sorted(rows, key=lambda row: -row[1] * row[2])[:12]


def _slow(wire: Wire) -> list[Slow]:
    known = {script(name).sha: name for name in names()}
    entries = []
    for entry in wire.call("SLOWLOG", "GET", 20):
        words = [word.decode("utf-8", "replace") for word in entry[3]]
        sha = words[1] if len(words) > 1 and words[0].upper() == "EVALSHA" else ""
        what = f"script {known[sha]}" if sha in known else " ".join(words[:3])[:120]
        entries.append(Slow(float(entry[1]), entry[2] / 1e6, what))
    return entries


def _broken(wire: Wire, namespace: str, pools: list[str]) -> list[tuple[str, int]]:
    """Pools with ids that were set aside since nothing is stored under them."""
    asked = [("HLEN", PoolKeys(namespace, pool).broken) for pool in pools]
    counts = wire.calls(asked) if asked else []
    return [(pool, count) for pool, count in zip(pools, counts, strict=True) if count]


_WRITES = (
    ("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot"),
)


def _findings(view: RedisView) -> list[Finding]:
    info, found = view.info, []
    used, most = view.number("used_memory"), view.number("maxmemory")
    policy = info.get("maxmemory_policy", "noeviction")
    if most and policy != "noeviction":
        found.append(Finding(
            "bad", f"maxmemory-policy is {policy}",
            "a full server would throw tasks away: CONFIG SET maxmemory-policy noeviction",
        ))
    if used and most and used > 0.8 * most:
        found.append(Finding(
            "bad" if used > 0.95 * most else "warn", f"{used / most:.0%} of the memory is used",
            "when it is full nothing can be submitted: raise maxmemory, or keep fewer records",
        ))
    if info.get("aof_enabled") == "0" and not info.get("rdb_saves", "1").strip("0"):
        found.append(Finding(
            "warn", "nothing is written to disk",
            "a restart of the server loses every task: CONFIG SET appendonly yes",
        ))
    for name, what in _WRITES:
        if info.get(name, "ok") != "ok":
            found.append(Finding(
                "bad", f"the last write of the {what} failed", "look at the server's log and disk"
            ))
    if info.get("role") in ("slave", "replica"):
        found.append(Finding(
            "bad", "this server is a replica", "nothing can be written: give the primary's address"
        ))
    found += [
        Finding("warn", f"pool {pool}: {count:,} ids without a task",
                "they were set aside and harm nothing: skedulr doctor --fix removes them")
        for pool, count in view.broken
    ]
    return found


def facts(view: RedisView) -> list[tuple[str, list[tuple[str, Any, str]]]]:
    """(section, [(label, value, kind)]) for the page; kind says how the value is to be shown."""
    info, number = view.info, view.number
    name = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    version = info.get("valkey_version") or info.get("redis_version")
    hits, misses = number("keyspace_hits") or 0, number("keyspace_misses") or 0
    return [
        ("Server", [
            ("Version", f"{name} {version}", "text"), ("Role", info.get("role"), "text"),
            ("Mode", info.get("redis_mode") or info.get("server_mode"), "text"),
            ("Up for", number("uptime_in_seconds"), "duration"),
        ]),
        ("Memory", [
            ("Used", number("used_memory"), "size"), ("Peak", number("used_memory_peak"), "size"),
            ("Limit", number("maxmemory") or None, "size"),
            ("Policy", info.get("maxmemory_policy"), "text"),
            ("Fragmentation", number("mem_fragmentation_ratio"), "ratio"),
        ]),
        ("Persistence", [
            ("Append-only file", "on" if info.get("aof_enabled") == "1" else "off", "text"),
            ("Last AOF write", info.get("aof_last_write_status"), "text"),
            ("Last snapshot", number("rdb_last_save_time"), "moment"),
            ("Changes since", number("rdb_changes_since_last_save"), "count"),
        ]),
        ("Traffic", [
            ("Commands/s", number("instantaneous_ops_per_sec"), "count"),
            ("Clients", number("connected_clients"), "count"),
            ("Blocked clients", number("blocked_clients"), "count"),
            ("Key hits", hits / (hits + misses) if hits + misses else None, "percent"),
            ("Replicas", number("connected_slaves"), "count"),
        ]),
        *_cluster_facts(view),
    ]


def _cluster_facts(view: RedisView) -> list[tuple[str, list[tuple[str, Any, str]]]]:
    if not view.masters:
        return []
    return [("Cluster", [
        ("Nodes with keys", f"{len(view.masters)} masters", "text"),
        ("Shown on this page", view.masters[0][0], "text"),
        *((f"Memory of {name}", float(info.get("used_memory", 0)), "size")
          for name, info in view.masters),
    ])]

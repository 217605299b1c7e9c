"""The check of a server at start: is it new enough, and does it keep what it is given?

It asks INFO and CONFIG GET, each of which an administrator may have forbidden: what can not be
known is not complained of.
"""

from __future__ import annotations

import re
from typing import Any

from redis.exceptions import ResponseError

from .addresses import CLUSTER, kind_of
from .errors import ConfigError
from .wire import Wire

#: The oldest server whose commands the scripts use; Valkey says that it is Redis 7.2.4 as well.
OLDEST = (7, 0)


def check_server(wire: Wire) -> list[str]:
    """Why tasks may be lost on this server, a line each; empty for a sound one.

    Raises ConfigError for a server that is too old, or a node of a Cluster that was given as if it
    were alone; and the errors of a wire.
    """
    alone = kind_of(wire.url) != CLUSTER
    return list(dict.fromkeys(
        warning for node in wire.every_node() for warning in _check(node, alone=alone)
    ))


def _check(wire: Wire, *, alone: bool) -> list[str]:
    server = _info(wire, "server")
    _check_version(server)
    if alone and "cluster" in (server.get("redis_mode"), server.get("server_mode")):
        raise ConfigError(
            "this server is part of a Cluster: write its address as redis+cluster://HOST,HOST"
        )
    found = []
    memory, persistence = _info(wire, "memory"), _info(wire, "persistence")
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        found.append(
            f"Redis drops keys when its memory is full (maxmemory-policy {policy}): tasks may "
            "vanish; set it to noeviction"
        )
    if persistence.get("aof_enabled") == "0" and _setting(wire, "save") == "":
        found.append(
            "Redis keeps nothing on disk: all tasks are gone when it restarts; set appendonly yes"
        )
    return found


def _check_version(server: dict[str, str]) -> None:
    text = server.get("redis_version", "")
    numbers = re.match(r"(\d+)\.(\d+)", text)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise ConfigError(
            f"this server is Redis {text}, which is too old: Skedulr needs Redis 7.0 or Valkey "
            "7.2, or a later one"
        )


def _info(wire: Wire, section: str) -> dict[str, str]:
    """A section of INFO; empty where it is forbidden."""
    text = _asked(wire, "INFO", section) or b""
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}


def _setting(wire: Wire, name: str) -> str | None:
    """A setting of the server; None where that is forbidden or there is none of the name."""
    pair = _asked(wire, "CONFIG", "GET", name)
    return pair[1].decode("utf-8", "replace") if pair else None


def _asked(wire: Wire, *command: str) -> Any:
    try:
        return wire.call(*command)
    except ResponseError:
        return None

"""What a Redis says of itself: what it is, and what a measurement cost it.

A user without the right to INFO or MEMORY USAGE gets fewer figures, not an error.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

from redis.exceptions import ResponseError

from ..wire import Wire

#: How many round trips are timed.
PINGS = 200
#: Of so many entries of a key the size is looked at.
SAMPLES = 100


class Costs(NamedTuple):
    """What the server has spent so far: CPU seconds, calls of scripts, bytes both ways, and the
    bytes of memory it holds now."""

    cpu_s: float
    scripts: int
    wire_bytes: int
    memory: int


class Server:
    """One server, asked through ``wire``."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def costs(self) -> Costs | None:
        """As of now; None where the server does not say."""
        try:
            info = self._info("cpu") | self._info("stats") | self._info("memory")
            info |= self._info("commandstats")
            return Costs(
                float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
                _calls(info, "evalsha") + _calls(info, "eval"),
                int(info["total_net_input_bytes"]) + int(info["total_net_output_bytes"]),
                int(info["used_memory"]),
            )
        except (ResponseError, KeyError, ValueError):
            return None

    def sizes(self, keys: list[str]) -> int | None:
        """Bytes that these keys take in memory; None where the server does not say."""
        try:
            found = [self._wire.call("MEMORY", "USAGE", key, "SAMPLES", SAMPLES) for key in keys]
        except ResponseError:
            return None
        return sum(int(size) for size in found if size is not None)

    def describe(self) -> dict[str, str | int | float | None]:
        """Version, persistence, clients and round-trip time."""
        try:
            info = self._info("server") | self._info("persistence") | self._info("clients")
        except ResponseError:
            info = {}
        name = info.get("server_name", "redis").capitalize()
        version = info.get("valkey_version") or info.get("redis_version") or "unknown"
        return {
            "server": f"{name} {version}",
            "persistence": self._persistence(info),
            # Ours is one of them.
            "other_clients": int(info["connected_clients"]) - 1 if info else None,
            "round_trip_us": self.round_trip_us(),
        }

    def round_trip_us(self) -> float:
        """The median of some PINGs, one right after the other, microseconds."""
        took = []
        for _ in range(PINGS):
            began = time.perf_counter()
            self._wire.call("PING")
            took.append(time.perf_counter() - began)
        return 1e6 * statistics.median(took)

    def clock_ms(self) -> float:
        """How far the server's clock is ahead of this machine's, milliseconds, as the quickest of a
        few answers has it: half of its round trip is the most by which that can be wrong."""
        return min(self._look_at_clock() for _ in range(9))[1]

    def _look_at_clock(self) -> tuple[float, float]:
        """Seconds of the round trip, and how far the server was ahead in the middle of it, ms."""
        before = time.time()
        seconds, micros = self._wire.call("TIME")
        after = time.time()
        return after - before, 1000 * (int(seconds) + int(micros) / 1e6 - (before + after) / 2)

    def _persistence(self, info: dict[str, str]) -> str:
        if not info:
            return "unknown"
        if info.get("aof_enabled") == "1":
            return f"append-only file, fsync {self._setting('appendfsync')}"
        return "snapshots" if self._setting("save") else "none"

    def _setting(self, name: str) -> str:
        try:
            found = self._wire.call("CONFIG", "GET", name)
        except ResponseError:
            return "unknown"
        return found[1].decode() if found else ""

    def _info(self, section: str) -> dict[str, str]:
        text = self._wire.call("INFO", section).decode()
        pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
        return {name: value for name, _, value in pairs}


def _calls(info: dict[str, str], command: str) -> int:
    text = info.get(f"cmdstat_{command}", "calls=0,")
    return int(text.partition("calls=")[2].partition(",")[0])

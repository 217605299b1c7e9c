"""The scripts of schedules, on top of ``Scripts``, with texts as a test writes them down."""

from __future__ import annotations

from typing import Any, NamedTuple

from script_driver import Reply, Scripts

CHANNEL = "control"


class Tick(NamedTuple):
    """What fire.lua takes for one tick."""

    name: str
    tick: int
    following: int | str = "-"
    fires: int = 0
    overlap: str = "a"
    revision: str = "r1"
    options: str | None = None
    envelope: bytes | None = None
    uid: str | None = None


def plan(
    tick: int | str, runs: str = "-", *, revision: str = "r1", by: str = "-", held: int = 0,
    fired: int = 0, skipped: int = 0,
) -> str:
    """A schedule's state as text."""
    return f"{revision} {by} {tick} {held} {fired} {skipped} {runs}"


class Schedules:
    """The scripts of schedules on one pool."""

    def __init__(self, pool: Scripts) -> None:
        self.pool = pool

    def put(
        self, *placed: tuple[str, int | str], revision: str = "r1", by: str = "-",
        fires: int | None = None,
    ) -> Reply:
        """Each is (name, first tick); it fires then, or at ``fires``."""
        rows: list[Any] = []
        for name, tick in placed:
            at = fires if fires is not None else (0 if tick == "-" else tick)
            rows += [name, revision, b"def-" + revision.encode(), tick, at]
        return Reply(self.pool.run("schedule_put", CHANNEL, "schedules default", by, *rows))

    def fire(self, *ticks: Tick, again: str = "") -> Reply:
        rows: list[Any] = []
        for one in ticks:
            uid = one.uid or f"{one.name}@{one.tick}"
            envelope = b"env-" + uid.encode() if one.envelope is None else one.envelope
            options = f"0 @{one.tick} -" if one.options is None else one.options
            fires = one.fires or (0 if one.following == "-" else one.following)
            rows += [one.name, one.revision, one.tick, one.following, fires, one.overlap,
                     uid, envelope, options]
        return Reply(self.pool.run("fire", CHANNEL, b"cancelled", again, *rows))

    def move(self, name: str, tick: int | str, *args: Any, revision: str = "r1") -> int:
        done: int = Reply(self.pool.run(
            "schedule_move", CHANNEL, "schedules default", name, revision, tick, *args
        )).rest[0]
        return done

    def remove(self, *names: str, by: str = "", silent: int = 60_000) -> str:
        return Reply(self.pool.run("schedule_remove", by, silent, *names)).verdicts

    def due(self, offset: int = 0, limit: int = 500) -> Reply:
        return Reply(self.pool.run("schedule_due", offset, limit))

    def declare(self, group: str, what: str = "look", silent: int = 60_000) -> Reply:
        return Reply(self.pool.run("schedule_declare", group, what, silent))

    def run_now(self, name: str, uid: str, revision: str = "r1", options: str = "") -> str:
        return Reply(self.pool.run(
            "schedule_run", name, revision, uid, b"env-" + uid.encode(), options
        )).verdicts

    def state(self, *without: str) -> dict[str, Any]:
        return self.pool.state(*without)

    def planned(self, name: str) -> str:
        found: bytes = self.pool.call("HGET", self.pool.keys.planned, name)
        return found.decode()

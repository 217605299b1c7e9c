"""``skedulr top``: pools and running tasks, live, with keys that steer.

- ``Screen`` holds what was seen last and which pool is chosen; ``lines`` draws it, ``press`` does
  what a key says. It knows no terminal.
- ``top`` gives it one: the alternate screen, keys as they are pressed; all is put back at the end.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import SkedulrError
from ..lists import Selection
from . import exits
from .asking import find_tasks
from .output import clock, span
from .session import Session
from .watching import POOL_COLUMNS, pool_row

_KEYS = (
    ("up, down", "choose a pool"), ("p", "pause or resume it"),
    ("+ -", "a worker more or fewer in each of its processes"),
    ("r", "the workers that --pools says"), ("?", "these keys"), ("q", "end"),
)
#: What a terminal sends for the keys that are not letters.
_NAMED = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\x03": "q",
          "k": "up", "j": "down", "=": "+", "_": "-", "\x1b": "q"}
_MOST_TASKS = 100


def top(session: Session) -> int:
    """``skedulr top``; without a terminal, or for --json, one look."""
    screen = Screen(session)
    if session.output.json:
        screen.look()
        session.output.document({**screen.stats, "items": screen.tasks})
        return exits.OK
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        screen.look()
        for line in screen.lines(1000):
            print(line)
        return exits.OK
    with _raw_terminal():
        _watch(screen, max(session.given.interval, 0.1))
    return exits.OK


class Screen:
    """What is shown. ``stats`` and ``tasks`` are those of the last look."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.stats: dict[str, Any] = {"pools": []}
        self.tasks: list[dict[str, Any]] = []
        self._seen_s = 0.0
        self._chosen = ""
        self._helps = False
        self._said = ""

    def look(self) -> None:
        """Ask Redis; what it could not tell is said instead, and the last look stays."""
        try:
            found = self._session.client.overview()
            running = Selection("running", None, None, None)
            self.tasks = find_tasks(self._session, running, _MOST_TASKS, None)[0]
            self.stats, self._seen_s = found.stats(), found.now_s
        except SkedulrError as error:
            if not self._seen_s:
                raise
            self._said = self._session.explain(error)
        names = [pool["name"] for pool in self.stats["pools"]]
        if self._chosen not in names:
            self._chosen = names[0] if names else ""

    def press(self, key: str) -> bool:
        """Do what a key says; False where it is the end."""
        self._said = ""
        if key == "q":
            return False
        if key == "?":
            self._helps = not self._helps
        elif key in ("up", "down"):
            self._choose(-1 if key == "up" else 1)
        elif key in ("p", "+", "-", "r") and self._chosen:
            try:
                self._said = self._steer(key)
            except SkedulrError as error:
                self._said = self._session.explain(error)
        return True

    def _choose(self, step: int) -> None:
        names = [pool["name"] for pool in self.stats["pools"]]
        if names:
            at = names.index(self._chosen) + step
            self._chosen = names[min(max(at, 0), len(names) - 1)]

    def _steer(self, key: str) -> str:
        """What became of it, for the line at the bottom."""
        client, name = self._session.client, self._chosen
        pool = next(one for one in self.stats["pools"] if one["name"] == name)
        if key == "p":
            client.pause(name, not pool["paused"])
            done = f"{name}: {'resumed' if pool['paused'] else 'paused'}"
        elif key == "r":
            done = f"{name}: back to what --pools says"
            if not client.scale_pool(name, None):
                done = f"{name} had no size of its own"
        else:
            each = round(pool["workers"] / max(pool["processes"], 1))
            workers = max(0, each + (1 if key == "+" else -1))
            client.scale_pool(name, workers)
            done = f"{name}: {workers:,} workers a process within a second"
        self.look()
        return done

    def lines(self, height: int) -> list[str]:
        """The screen from the top, at most ``height`` lines."""
        stats = self.stats
        out = self._session.output
        total = "  ".join(f"{name} {stats.get(name, 0):,}" for name in
                          ("queued", "running", "scheduled", "waiting", "dead"))
        lines = [
            f"skedulr {self._session.settings.namespace}  {clock(self._seen_s)}  "
            f"{stats.get('throughput', 0):,.1f} tasks/s", total, "",
        ]
        rows = [pool_row(pool) for pool in stats["pools"]]
        marks = ["> " if pool["name"] == self._chosen else "  " for pool in stats["pools"]]
        table = out.table_lines(POOL_COLUMNS, rows, cut="POOL")
        lines += [mark + line for mark, line in zip(["  ", *marks], table, strict=False)]
        if not rows:
            lines.append("  no pools yet: none was served or submitted to")
        lines.append("")
        below = [f"{keys:>10}  {what}" for keys, what in _KEYS] if self._helps else self._running()
        lines += below[:max(0, height - len(lines) - 1)]
        lines += [""] * (height - 1 - len(lines) if height < 1000 else 0)
        return [*lines[:height - 1], self._said or "q ends, ? tells the keys"]

    def _running(self) -> list[str]:
        rows = [
            (task["id"], task["name"], task.get("attempt"),
             span(max(0.0, self._seen_s - (task.get("started_at") or self._seen_s))),
             task.get("progress"), task.get("note"), task.get("worker"))
            for task in self.tasks
        ]
        rows.sort(key=lambda row: str(row[0]))
        heads = ("RUNNING", "NAME", "ATTEMPT", "FOR", "%", "NOTE", "WORKER")
        return ["  " + one for one in self._session.output.table_lines(heads, rows, cut="WORKER")]


def _watch(screen: Screen, interval_s: float) -> None:
    """Draw, wait for a key or the time of the next look, and again."""
    due = 0.0
    while True:
        now = time.monotonic()
        if now >= due:
            screen.look()
            due = now + interval_s
        _draw(screen.lines(shutil.get_terminal_size().lines))
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))
        if ready:
            text = os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")
            if not screen.press(_NAMED.get(text, text)):
                return


def _draw(lines: list[str]) -> None:
    """Over what is there, line by line: a screen that is cleared first would flicker."""
    body = "\x1b[K\r\n".join(lines)
    sys.stdout.write(f"\x1b[H{body}\x1b[J")
    sys.stdout.flush()


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Keys come as they are pressed, on the alternate screen, without cursor and line wrap."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[?7l")
        yield
    finally:
        sys.stdout.write("\x1b[?7h\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)

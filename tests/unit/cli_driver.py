"""Runs ``skedulr`` inside the test's process, and stands in for workers.

``Cli`` is called with the arguments and gives status, stdout and stderr. ``Hands`` claims and ends
tasks as a child would, so that tests of commands need no child.
"""

from __future__ import annotations

import io
import json
from itertools import count
from typing import Any, NamedTuple

import pytest
from servers import Server

from skedulr import message, payload
from skedulr.cli import run
from skedulr.keys import PoolKeys
from skedulr.store import END_DEAD, END_SUCCEEDED, Ending, Lane, Store
from skedulr.wire import Wire


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Outcome(NamedTuple):
    """What one run of the command gave."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Stdout's lines with blanks between words made one."""
        return [" ".join(line.split()) for line in self.out.splitlines()]


class Cli:
    """``cli("submit", "work", "--json")``."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Outcome:
        self._capsys.readouterr()
        status = run(arguments)
        return Outcome(status, *self._capsys.readouterr())

    def ok(self, *arguments: str) -> Outcome:
        """A run that must succeed and say nothing on stderr."""
        outcome = self(*arguments)
        assert (outcome.status, outcome.err) == (0, "")
        return outcome

    def refused(self, *arguments: str, status: int) -> str:
        """A run that must fail with one line on stderr; the line."""
        outcome = self(*arguments)
        assert (outcome.status, outcome.out) == (status, ""), outcome
        assert outcome.err.count("\n") == 1 and outcome.err.endswith("\n"), outcome.err
        return outcome.err.rstrip("\n")

    def submit(self, name: str, *arguments: str) -> str:
        """The id of a new task."""
        return self.ok("submit", name, *arguments).out.strip()


_incarnations = count(1)


class Hands:
    """A worker of one pool."""

    def __init__(self, server: Server, pool: str = "default") -> None:
        self._store = Store(PoolKeys("skedulr", pool))
        self._wire = Wire(server.url, name="hands")
        # An owner numbers its calls: two of the same name would repeat each other's.
        owner = f"hands.0.{next(_incarnations)}"
        self._claims = Lane(self._wire, owner)
        self._finishes = Lane(self._wire, owner)

    def claim(self, want: int = 1) -> list[tuple[bytes, bytes]]:
        """Take tasks; uid and token of each."""
        claims = self._store.claim(self._claims, want, want, 60_000)
        return [(uid, claims.token) for uid in claims.rows[::4]]

    def succeed(self, result: Any = None, count: int = 1) -> None:
        """Run the next tasks well."""
        head = message.success_head("hands.0.1")
        entry = message.success(head, 1, 1_700_000_000_000, payload.encode(result))
        self._end(END_SUCCEEDED, entry, count)

    def fail(self, type: str = "ValueError", text: str = "boom", count: int = 1) -> None:
        """Run the next tasks into the dead-letter queue."""
        value = [type, text, f"Traceback (most recent call last):\n{type}: {text}\n"]
        entry = message.entry(message.DEAD, "hands.0.1", 1, 1_700_000_000_000, value)
        self._end(END_DEAD, entry, count)

    def _end(self, kind: str, entry: bytes, count: int) -> None:
        taken = self.claim(count)
        assert len(taken) == count
        endings = [Ending(uid, token, kind, entry) for uid, token in taken]
        assert self._store.finish(self._finishes, endings) == "k" * count

"""What Redis holds of a schedule: its definition, which only Python reads, and its state.

A definition is a msgpack map; its digest is the schedule's revision, so that whoever acts on an old
copy is found out. A state is a text that scripts read and write, see ``includes/plan_text.lua``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import msgpack

from . import message, payload
from .codecs import Codec
from .cronline import CronLine
from .errors import PayloadError
from .prepare import prepare
from .scheduling import Declaration, Plan, Policy
from .store import Submission

VERSION = 1
#: ``by`` of a schedule that was made through the API, by nobody's code.
NOBODY = "-"
#: Why a schedule rests, as scripts and pages know it.
PAUSED, ENDED, UNDECLARED, ERROR = "paused", "ended", "undeclared", "error"


@dataclass(frozen=True)
class Definition:
    """A schedule as it is stored. ``envelope`` and ``placing`` are those of its runs."""

    name: str
    task: str
    plan: Plan
    policy: Policy
    envelope: bytes
    placing: str

    @cached_property
    def packed(self) -> bytes:
        """What is stored; equal definitions give equal bytes."""
        plan, policy = self.plan, self.policy
        line = None if plan.line is None else [plan.line.text, plan.line.seconds]
        packed: bytes = msgpack.packb([
            VERSION, self.name, self.task,
            [plan.every_ms, line, plan.zone, plan.start_ms, plan.end_ms, plan.jitter_ms],
            [policy.catch_up, policy.window_ms, policy.overlap], self.envelope, self.placing,
        ])
        return packed

    @property
    def ranked(self) -> bool:
        """Whether its runs have a priority or limits, which a pool that runs in order has not."""
        priority, _, _, *rest = (self.placing or "0 - -").split(" ")
        return priority != "0" or bool(rest)

    @cached_property
    def revision(self) -> str:
        """Twelve hex digits that change with the definition."""
        return blake2b(self.packed, digest_size=6).hexdigest()

    def call(self) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """The arguments, keyword arguments and options of its runs, as far as they can be read."""
        journal = message.read_journal(self.envelope)
        return journal.args, journal.kwargs, journal.extras

    def submission(self, tick_ms: int, due_ms: int, codec: Codec | None = None) -> Submission:
        """The task that a tick becomes, due when the tick was fired. With a codec, sealed anew:
        PayloadError where the definition was not."""
        version, name, call, extras = payload.decode(message.open_call(self.envelope, codec))
        envelope = payload.encode([version, name, call, {**(extras or {}), "tick": tick_ms}])
        if codec is not None:
            envelope = message.seal_call(envelope, codec)
        priority, when, *rest = (self.placing or "0 - -").split(" ")
        due_ms += int(when[1:]) if when.startswith("+") else 0
        placing = f"{priority} @{due_ms} {' '.join(rest)}"
        return Submission(f"{self.name}@{tick_ms}", envelope, placing)


def define(
    declared: Declaration, payload_limit: int, codec: Codec | None = None
) -> tuple[str, Definition]:
    """The pool and the definition of what a user gave; raises PayloadError, ConfigError."""
    pool, submission = prepare(declared.call, "", payload_limit, codec)
    return pool, Definition(
        declared.name, declared.call.task.name, declared.plan, declared.policy,
        submission.envelope, submission.options,
    )


def read_definition(packed: bytes) -> Definition:
    """A definition from what is stored; PayloadError for what this release can not read."""
    try:
        version, name, task, plan, policy, envelope, placing = msgpack.unpackb(packed)
        if version != VERSION:
            raise PayloadError(
                f"the schedule has version {version!r}; this release reads {VERSION}"
            )
        every_ms, line, zone, start_ms, end_ms, jitter_ms = plan
        return Definition(
            name, task,
            Plan(every_ms, CronLine.parse(*line) if line else None, zone, start_ms, end_ms,
                 jitter_ms),
            Policy(*policy), envelope, placing,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise PayloadError(f"not a schedule of Skedulr: {error}") from None


@dataclass(frozen=True, slots=True)
class State:
    """Where a schedule is: its next tick (None: it has no more), and what it did."""

    revision: str
    by: str
    tick_ms: int | None
    held: bool
    fired: int
    skipped: int
    #: The last runs, newest first: what follows ``<name>@`` in their uids.
    runs: tuple[str, ...]


def read_state(text: bytes) -> State:
    """A state from its text."""
    revision, by, tick, held, fired, skipped, runs = text.decode().split(" ")
    return State(
        revision, by, None if tick == "-" else int(tick), held == "1", int(fired), int(skipped),
        () if runs == "-" else tuple(runs.split(",")),
    )

"""Failovers under load: a producer that goes on submitting, and what is made of the history.

Redis answers before its replica has a write. What a master had acknowledged in its last moments may
be lost with it: tasks submitted then may be gone, and runs that ended then may run again. That is
counted; whatever else the history checker finds is a violation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from history import History, Violation
from world import World

#: What was acknowledged this long before a master died may be lost with it, seconds.
LAST_MOMENTS_S = 0.5
#: What a lost write can come to.
OF_LOST_WRITES = ("lost", "doubled", "attempt", "stale", "counts", "places", "unfinished")


@dataclass(slots=True)
class Report:
    """What a failover cost."""

    submitted: int
    refused: int
    maybe: int
    #: Violations that the loss of acknowledged writes explains, by rule.
    excused: dict[str, int]
    violations: list[Violation]
    #: Seconds from the death until the first run after it began.
    pause_s: float

    def __str__(self) -> str:
        return (
            f"{self.submitted} submitted ({self.refused} refused, {self.maybe} maybe stored), "
            f"work went on {self.pause_s:.2f} s after the death; lost writes: {self.excused or 0}; "
            f"violations: {[str(one) for one in self.violations]}"
        )


@dataclass(slots=True)
class Load:
    """Submits until ``stop`` is called; when each answer came is in ``answered``."""

    world: World
    pause_s: float = 0.01
    answered: dict[str, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def run(self, submit: Callable[[], str]) -> None:
        """Until the end."""
        while not self._stop.wait(self.pause_s):
            self.answered[submit()] = time.monotonic()

    def stop(self) -> None:
        """After the submit under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(30)

    def start(self, submit: Callable[[], str]) -> Load:
        """On a thread of its own."""
        self._thread = threading.Thread(target=self.run, args=(submit,), daemon=True)
        self._thread.start()
        return self


@contextmanager
def load(world: World, submit: Callable[[], str], threads: int = 2) -> Iterator[list[Load]]:
    """Producers for the length of the block."""
    loads = [Load(world).start(submit) for _ in range(threads)]
    try:
        yield loads
    finally:
        for one in loads:
            one.stop()


def report(history: History, loads: list[Load], died_at: float) -> Report:
    """What the history says of a master's death at that time."""
    answered = {uid: at for one in loads for uid, at in one.answered.items()}
    runs = history.runs()
    excused: dict[str, int] = {}
    violations = []
    for one in history.verdict():
        told_at = answered.get(one.uid, 0.0)
        near = died_at - LAST_MOMENTS_S <= told_at <= died_at + 0.2 or not one.uid or (
            # A run whose claim or end was lost; one that the checker knows of was under way then.
            one.rule != "lost" and any(
                run.began <= died_at + 0.2 and run.over >= died_at - LAST_MOMENTS_S
                for run in runs.get(one.uid, ())
            )
        )
        if one.rule in OF_LOST_WRITES and near:
            excused[one.rule] = excused.get(one.rule, 0) + 1
        else:
            violations.append(one)
    after = [run.began for several in runs.values() for run in several if run.began > died_at + 0.1]
    answers = [one.answer for one in history.submitted]
    return Report(
        len(answers), answers.count("refused"), answers.count("maybe"), excused, violations,
        min(after, default=float("inf")) - died_at,
    )

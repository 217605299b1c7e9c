"""The recorder: writes what runs came to, in batches of whatever gathered meanwhile.

Nothing counts before Redis answered. While it does not, outcomes wait here and their claims are
renewed by the heart, so that nobody else runs them. A verdict "lost" means that the claim was
recovered or released: the outcome is dropped, because another run of the task decides now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import gevent
from gevent.event import Event

from .. import message
from ..storage import (
    BATCH,
    CANCEL_MEANWHILE,
    END_CANCELLED,
    END_DEAD,
    KEPT,
    LOST,
    Deferral,
    Ending,
    Failure,
    Lane,
    Relocation,
    Storage,
    Suspension,
)
from ..wire import Gone

log = logging.getLogger("skedulr.pool")

Outcome = Ending | Failure | Deferral | Relocation | Suspension


class Recorder:
    """Finishes and retries. ``on_recorded(batch)`` is called once nothing more is owed for the
    claims of these outcomes, each of which begins with uid and token."""

    def __init__(
        self, *, store: Storage, lane: Lane, on_gone: Callable[[], None],
    ) -> None:
        self._store, self.lane, self._on_gone = store, lane, on_gone
        self._endings: list[Ending] = []
        self._failures: list[Failure] = []
        self._deferrals: list[Deferral] = []
        self._relocations: list[Relocation] = []
        self._suspensions: list[Suspension] = []
        self._work = Event()
        self._asleep = True
        self._greenlet: gevent.Greenlet | None = None
        self._quiet = Event()
        self._quiet.set()
        self.on_recorded: Callable[[Sequence[Outcome]], None] = _ignore
        #: What began since the last call, by uid; read and emptied here.
        self.started: dict[bytes, bytes] = {}
        #: Called when a retry is due this soon (seconds): the wheel should know.
        self.on_retry: Callable[[float], None] = _ignore
        #: Moves tasks to other pools; see ``Mover.move``.
        self.relocate: Callable[[Sequence[Relocation]], Iterable[tuple[Relocation, str | Ending]]]
        self.lost = 0
        self.recorded = 0

    def start(self) -> None:
        """Begin to write."""
        self._greenlet = gevent.spawn(self._run)

    def end(self, ending: Ending) -> None:
        """A run ended for good."""
        self._endings.append(ending)
        if self._asleep:
            self._wake()

    def fail(self, failure: Failure) -> None:
        """An attempt failed and is to be tried again."""
        self._failures.append(failure)
        if self._asleep:
            self._wake()

    def defer(self, deferral: Deferral) -> None:
        """A task is put off because its name is not known here."""
        self._deferrals.append(deferral)
        if self._asleep:
            self._wake()

    def move(self, relocation: Relocation) -> None:
        """A task goes to the pool its name belongs to."""
        self._relocations.append(relocation)
        if self._asleep:
            self._wake()

    def suspend(self, suspension: Suspension) -> None:
        """A task is to wait for others."""
        self._suspensions.append(suspension)
        if self._asleep:
            self._wake()

    def flush(self, timeout_s: float) -> bool:
        """Wait until all is written; False where that took longer."""
        return bool(self._quiet.wait(timeout_s))

    @property
    def greenlets(self) -> list[gevent.Greenlet]:
        """Those that must live for it to work."""
        return [self._greenlet] if self._greenlet is not None else []

    def stop(self) -> None:
        """End the greenlet; what is unwritten stays so. Safe twice."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None

    def _wake(self) -> None:
        self._asleep = False
        self._quiet.clear()
        self._work.set()

    def _run(self) -> None:
        while True:
            if not (self._endings or self._failures or self._deferrals or self._relocations
                    or self._suspensions):
                self._asleep = True
                self._quiet.set()
                self._work.clear()
                self._work.wait()
            try:
                if self._endings:
                    self._finish()
                if self._failures:
                    self._retry()
                if self._deferrals:
                    self._put_off()
                if self._relocations:
                    self._relocate()
                if self._suspensions:
                    self._hold()
            except Gone:
                self._on_gone()
                return
            except Exception:
                log.exception("a batch of outcomes could not be written; it is tried again")
                gevent.sleep(0.5)

    def _finish(self) -> None:
        batch = self._endings[:BATCH]
        started = list(islice(self.started.items(), BATCH))
        verdicts = self._store.finish(self.lane, batch, started)
        # Only now: had the call failed, they would still be here.
        del self._endings[:len(batch)]
        for uid, _ in started:
            self.started.pop(uid, None)
        self._settle(batch, verdicts)

    def _retry(self) -> None:
        batch = self._failures[:BATCH]
        verdicts = self._store.retry(self.lane, batch)
        del self._failures[:len(batch)]
        self._settle_delayed(batch, verdicts)

    def _put_off(self) -> None:
        batch = self._deferrals[:BATCH]
        verdicts = self._store.defer(self.lane, batch)
        del self._deferrals[:len(batch)]
        self._settle_delayed(batch, verdicts)

    def _hold(self) -> None:
        batch = self._suspensions[:BATCH]
        verdicts = self._store.suspend(self.lane, batch)
        del self._suspensions[:len(batch)]
        self._settle([
            one for one, verdict in zip(batch, verdicts, strict=True)
            if not self._cancelled_meanwhile(one, verdict)
        ], verdicts.replace(CANCEL_MEANWHILE, ""))

    def _relocate(self) -> None:
        batch = self._relocations[:BATCH]
        outcomes = list(self.relocate(batch))
        del self._relocations[:len(batch)]
        for one, outcome in outcomes:
            if isinstance(outcome, Ending):
                if outcome.kind == END_DEAD:
                    # It never ran, so no run of it tells hooks: the mourner does, once it ended.
                    self._note_death(one.uid)
                self.end(outcome)
            else:
                self._settle([one], outcome)

    def _note_death(self, uid: bytes) -> None:
        self.lane.insist(lambda: self._store.note_death(self.lane.wire, uid))

    def _settle_delayed(self, batch: Sequence[Failure | Deferral], verdicts: str) -> None:
        for one, verdict in zip(batch, verdicts, strict=True):
            if self._cancelled_meanwhile(one, verdict):
                continue
            self._settle([one], verdict)
            if verdict == KEPT:
                self.on_retry(one.delay_ms / 1000)

    def _cancelled_meanwhile(self, one: Failure | Deferral | Suspension, verdict: str) -> bool:
        if verdict == CANCEL_MEANWHILE:
            # An attempt was a run all the same.
            sample = one.sample if isinstance(one, Failure) else ""
            end = f"{END_CANCELLED} {sample}" if sample else END_CANCELLED
            self.end(Ending(one.uid, one.token, end, message.entry(
                message.CANCELLED, self.lane.owner, 0, 0, "cancelled while it ran"
            )))
        return verdict == CANCEL_MEANWHILE

    def _settle(self, batch: Sequence[Outcome], verdicts: str) -> None:
        """Nothing more is owed for these; a verdict letter each."""
        if LOST in verdicts:
            for one, verdict in zip(batch, verdicts, strict=True):
                if verdict == LOST:
                    self.lost += 1
                    log.warning("the claim of task %s was lost: its outcome is dropped",
                                one.uid.decode())
        self.recorded += len(batch) - verdicts.count(LOST)
        self.on_recorded(batch)


def _ignore(value: object) -> None:
    """Until someone listens."""

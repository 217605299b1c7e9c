"""The history checker: did what happened keep what DESIGN section 1 promises?

A ``History`` is what was acknowledged at submit, what the tasks did (the effect log), which faults
were injected when, where every task is in Redis at the end, and samples of the queue while it ran.
``verdict`` states all that is wrong with it, as ``Violation``s; an empty list is a clean bill.

The rules, by the names that violations carry:

- ``lost``       an acknowledged task is nowhere in Redis
- ``unfinished`` it is somewhere, but in no end state
- ``places``     it is in more places than one, or in half of one
- ``end``        it ended otherwise than its kind of task must
- ``refused``    a submit that said "certainly not stored" did store it
- ``doubled``    a run was followed by another though no fault touched it
- ``attempt``    an attempt was counted that did not fail, or a failure was not counted
- ``stale``      the recorded outcome is not that of the last run that began
- ``counts``     the pool's totals are not those of its records
- ``idle``       a ready task waited over 2 s while workers were idle and Redis well
- ``held``       the same for a task that was claimed, and not started

What is asked of workflows beside that stands in ``flow_rules.py``.

A run is *touched* by a fault if its process was killed or told to stop, or was frozen or cut off
from Redis for long enough that its lease could run out, between the run's beginning and the moment
its outcome can be taken for recorded. What a touched run did may happen again: at least once.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from flow_rules import SLACK_MS, End, Flow, FlowRules

from skedulr import message
from skedulr.keys import PoolKeys

#: Promised: no ready task beside an idle worker for longer than this, seconds.
MOST_IDLE_S = 2.0
#: An outcome is recorded this long after the handler's end, if nothing is in the way, seconds.
RECORDED_S = 1.0
#: After Redis was away: the longest pause of a process between two tries, and the try, seconds.
SETTLE_S = 3.0
FOREVER = float("inf")


class Effect(NamedTuple):
    """One line of the effect log; ``at`` is monotonic seconds, ``epoch`` the wall clock's."""

    uid: str
    attempt: int
    token: str
    phase: str
    pid: int
    at: float
    epoch: float = 0.0
    given: str = ""


class Submitted(NamedTuple):
    """What a producer was told. ``answer``: "stored", "maybe" or "refused"."""

    uid: str
    answer: str
    ends: tuple[str, ...] = ("succeeded",)


class Fault(NamedTuple):
    """Something that was done to processes ``pids``, or (none) to the server for everybody.

    ``kind``: "killed", "stopped" (asked to drain), "frozen", "cut off", or for the server "outage"
    (away or refusing for a while) and "blip" (connections or scripts dropped).
    """

    kind: str
    begin: float
    end: float
    pids: frozenset[int] = frozenset()


class Sample(NamedTuple):
    """A pool at one moment: tasks that are ready or due, claimed, and workers that live."""

    at: float
    ready: int
    claimed: int
    workers: int
    pool: str = ""


class Final(NamedTuple):
    """Where a task is at the end, and what its record says; ``state`` "begun" of a workflow."""

    places: frozenset[str]
    state: str | None = None
    token: str | None = None
    failures: int = 0
    #: Whether it is dead because its processes died.
    crashed: bool = False
    #: Its result, if it succeeded.
    value: Any = None
    #: How it ended, each time, and when it was put back or opened again in between, ms.
    ends: tuple[End, ...] = ()
    opened: tuple[float, ...] = ()


class Violation(NamedTuple):
    """One broken promise."""

    rule: str
    uid: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.uid or 'the pool'}: {self.text}"


@dataclass(slots=True)
class Run:
    """One run of a task, as it stands in the effect log."""

    uid: str
    attempt: int
    token: str
    pid: int
    began: float
    over: float = FOREVER
    phase: str = "vanished"
    epoch: float = 0.0
    given: str = ""


@dataclass
class History:
    """All that is known of one test; ``lease_s`` is that of its nodes. ``idle_s`` is how long a
    task may wait beside an idle worker: a test on a loaded machine is more generous than DESIGN."""

    lease_s: float
    idle_s: float = MOST_IDLE_S
    submitted: list[Submitted] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    finals: dict[str, Final] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    #: Which pool's child a process was, where samples are of several pools.
    pool_of: dict[int, str] = field(default_factory=dict)
    #: The pool's own totals, "succeeded" and "failed"; empty: not looked at.
    totals: dict[str, int] = field(default_factory=dict)

    def verdict(self) -> list[Violation]:
        """Everything that is wrong, in the order of the rules above."""
        return [
            *self._ends(), *self._runs(), *self._counts(), *self._waits(), *self._flows(),
        ]

    # Where tasks ended

    def _ends(self) -> Iterator[Violation]:
        began = {one.uid for one in self.effects}
        runs, touching = self.runs(), _Touching(self)
        for uid, answer, ends in self.submitted:
            final = self.finals.get(uid, Final(frozenset()))
            if answer == "refused":
                if final.places or uid in began:
                    yield Violation("refused", uid, f"it is in {_list(final.places)}")
            elif final.places or answer == "stored":
                # Three crashes are an end for every kind of task; their runs say if they were.
                crashes = sum(map(touching.touched, runs.get(uid, ())))
                yield from _end_of(
                    uid, final, (*ends, "dead") if final.crashed and crashes >= 3 else ends
                )

    # What runs did

    def runs(self) -> dict[str, list[Run]]:
        """The runs of each task, in the order they began."""
        open_runs: dict[tuple[str, str, int], Run] = {}
        found: dict[str, list[Run]] = defaultdict(list)
        for one in sorted(self.effects, key=lambda effect: effect.at):
            key = one.uid, one.token, one.pid
            if one.phase == "began":
                run = open_runs[key] = Run(
                    one.uid, one.attempt, one.token, one.pid, one.at, epoch=one.epoch,
                    given=one.given,
                )
                found[one.uid].append(run)
            elif one.phase == "given":
                if key in open_runs:
                    open_runs[key].given = one.given
            elif key in open_runs:
                open_runs[key].over, open_runs[key].phase = one.at, one.phase
        return found

    def _runs(self) -> Iterator[Violation]:
        touching = _Touching(self)
        for uid, runs in self.runs().items():
            final = self.finals.get(uid)
            for run, after in pairwise(runs):
                if not _opened_between(run, after, final):
                    yield from self._followed(run, after, touching)
            if final is not None and final.state == "succeeded":
                yield from _last_run(uid, runs[-1], final)

    def _followed(self, run: Run, after: Run, touching: _Touching) -> Iterator[Violation]:
        step = after.attempt - run.attempt
        retried = run.phase == "failed" and step == 1
        if not retried and not touching.touched(run):
            yield Violation(
                "doubled", run.uid,
                f"{_name(run)} was untouched, and yet {_name(after)} followed {_gap(run, after)}",
            )
        if step != 0 and not retried:
            yield Violation(
                "attempt", run.uid, f"{_name(run)} {run.phase}; {_name(after)} followed"
            )

    # Totals

    def _counts(self) -> Iterator[Violation]:
        if not self.totals:
            return
        states = Counter(final.state for final in self.finals.values())
        failures = sum(final.failures for final in self.finals.values())
        for name, counted in (("succeeded", states["succeeded"]), ("failed", failures)):
            if self.totals[name] != counted:
                yield Violation(
                    "counts", "", f"{name} is {self.totals[name]}, the records say {counted}"
                )

    # Waiting beside idle workers

    def _waits(self) -> Iterator[Violation]:
        for pool in sorted({one.pool for one in self.samples}):
            yield from self._waits_in(pool)

    def _waits_in(self, pool: str) -> Iterator[Violation]:
        executing = _Executing(
            run for runs in self.runs().values() for run in runs
            if self.pool_of.get(run.pid, pool) == pool
        )
        faults = [*self.faults, *self._own_deaths()]
        for rule, settle_s in (("idle", SETTLE_S), ("held", self.lease_s + 6 + SETTLE_S)):
            since: float | None = None
            for sample in sorted(one for one in self.samples if one.pool == pool):
                running = executing.at(sample.at)
                idle = sample.workers > running
                waiting = sample.ready if rule == "idle" else sample.claimed - running
                if not idle or waiting <= 0 or self._troubled(
                    faults, sample.at, rule, settle_s
                ):
                    since = None
                    continue
                since = sample.at if since is None else since
                if sample.at - since > self.idle_s:
                    yield Violation(rule, pool and f"pool {pool}", (
                        f"{waiting} tasks waited for over {self.idle_s:g} s with {running} of "
                        f"{sample.workers} workers busy, at {sample.at:.3f}"
                    ))
                    since = None

    def _own_deaths(self) -> Iterator[Fault]:
        """Of processes that their tasks killed."""
        for one in self.effects:
            if one.phase == "dying":
                yield Fault("killed", one.at, one.at, frozenset((one.pid,)))

    @staticmethod
    def _troubled(faults: Iterable[Fault], at: float, rule: str, settle_s: float) -> bool:
        # A dead child's workers are not among those that live: only what it held is excused.
        return any(
            fault.begin <= at <= fault.end + settle_s
            for fault in faults
            if rule == "held" or fault.kind in ("outage", "blip", "cut off", "stopped", "frozen")
        )


    # Workflows

    def _flows(self) -> Iterator[Violation]:
        runs, touching = self.runs(), _Touching(self)
        for flow in self.flows:
            rules = FlowRules(flow, self.finals, runs, self._deaf)
            for uid in (flow.uid, *(one.uid for one in flow.steps), *rules.children()):
                final = self.finals.get(uid)
                if final is None:
                    continue  # all of it has to be there, or nothing: that is the rule "half"
                crashes = sum(map(touching.touched, runs.get(uid, ())))
                if final.crashed and crashes < 3:
                    yield Violation("end", uid, f"it is dead of {crashes} crashes")
                if final.places != frozenset(("records", "done")):
                    yield from _end_of(uid, final, (final.state or "",))
            yield from (Violation(*one) for one in rules.broken())

    def _deaf(self, run: Run, at: float) -> bool:
        """Whether the run's process may not have heard yet of what was said at that time."""
        return any(
            fault.begin <= run.began <= fault.end + SETTLE_S and fault.end + SETTLE_S >= at
            and (not fault.pids or run.pid in fault.pids)
            for fault in self.faults if fault.kind in ("outage", "blip", "cut off", "frozen")
        )


def _opened_between(run: Run, after: Run, final: Final | None) -> bool:
    """Whether the task was put back, or opened again, when the first run was over."""
    return final is not None and any(
        run.epoch * 1000 - SLACK_MS <= at_ms <= after.epoch * 1000 + SLACK_MS
        for at_ms in final.opened
    )


class _Touching:
    """Which runs a fault touched."""

    def __init__(self, history: History) -> None:
        # Renewed each third of the lease, by a heart that looks up four times a second.
        self._enough_s = max(0.1, history.lease_s * 2 / 3 - 0.3)
        self._of: dict[int, list[Fault]] = defaultdict(list)
        for fault in history.faults:
            for pid in fault.pids:
                self._of[pid].append(fault)
        for death in history._own_deaths():
            for pid in death.pids:
                self._of[pid].append(death)
        self._outages = sorted(
            (fault.begin, fault.end) for fault in history.faults
            if fault.kind in ("outage", "blip", "cut off", "frozen")
        )

    def touched(self, run: Run) -> bool:
        until = self._recorded(run.over)
        return any(
            fault.begin <= until and fault.end >= run.began and self._matters(fault)
            for fault in self._of[run.pid]
        )

    def _matters(self, fault: Fault) -> bool:
        if fault.kind in ("killed", "stopped"):
            return True
        return fault.kind in ("frozen", "cut off") and fault.end - fault.begin >= self._enough_s

    def _recorded(self, over: float) -> float:
        """By when the outcome of a run that was over then is recorded."""
        until = over + RECORDED_S
        for begin, end in self._outages:
            if begin <= until and end + SETTLE_S > over:
                until = max(until, end + SETTLE_S)
        return until


class _Executing:
    """How many runs were under way at a time."""

    def __init__(self, runs: Iterable[Run]) -> None:
        every = list(runs)
        self._begun = sorted(run.began for run in every)
        self._over = sorted(run.over for run in every if run.over != FOREVER)
        # Of a run that vanished with its process the next one, if any, tells at the latest.
        last: dict[str, Run] = {}
        for run in sorted(every, key=lambda one: one.began):
            before = last.get(run.uid)
            if before is not None and before.over == FOREVER:
                bisect.insort(self._over, run.began)
            last[run.uid] = run

    def at(self, moment: float) -> int:
        return bisect.bisect_right(self._begun, moment) - bisect.bisect_right(self._over, moment)


def _end_of(uid: str, final: Final, ends: tuple[str, ...]) -> Iterator[Violation]:
    """One task, in exactly one place, and that an end."""
    if not final.places:
        yield Violation("lost", uid, "it was acknowledged and is nowhere")
    elif "records" not in final.places:
        yield Violation("unfinished", uid, f"it is in {_list(final.places)}")
    elif final.places not in (frozenset(("records", "done")), frozenset(("records", "dead"))):
        yield Violation("places", uid, f"it ended and is in {_list(final.places)}")
    elif final.state not in ends:
        yield Violation("end", uid, f"it is {final.state}, not {' or '.join(ends)}")


def _last_run(uid: str, last: Run, final: Final) -> Iterator[Violation]:
    if final.token != last.token:
        yield Violation(
            "stale", uid, f"the outcome of {final.token} was recorded; {_name(last)} began last"
        )
    elif last.phase != "ended":
        yield Violation("stale", uid, f"it succeeded, and {_name(last)} {last.phase}")


def _name(run: Run) -> str:
    return f"attempt {run.attempt} under {run.token} (pid {run.pid}, began {run.began:.3f})"


def _gap(run: Run, after: Run) -> str:
    if after.began >= run.over:
        return f"{after.began - run.over:.3f} s after it {run.phase}"
    return f"{after.began - run.began:.3f} s after it began, while it ran"


def _list(places: Iterable[str]) -> str:
    return ", ".join(sorted(places)) or "no place"


# Reading


def read_effects(file: Path) -> list[Effect]:
    """The effect log so far."""
    if not file.exists():
        return []
    text = file.read_text()
    # The last line may be half written.
    return [
        Effect(words[0], int(words[1]), words[2], words[3], int(words[4]), float(words[5]),
               float(words[6]), words[7] if len(words) > 7 else "")
        for words in (line.split() for line in text[: text.rfind("\n") + 1].splitlines())
    ]


#: Where an id can be: hashes, sets and sorted sets of a pool.
_HASHES = ("tasks", "claims", "info", "records", "broken", "waiting")
_ZSETS = ("ready", "delayed", "suspects", "leases", "done", "dead", "held")


def read_finals(client: Any, keys: PoolKeys) -> dict[str, Final]:
    """Where every task of a pool is, straight from Redis, whoever submitted it."""
    places: dict[str, set[str]] = defaultdict(set)
    for name in _ZSETS:
        for uid in client.zrange(getattr(keys, name), 0, -1):
            places[uid.decode()].add(name)
    for name in _HASHES:
        if name != "records":
            for uid in client.hkeys(getattr(keys, name)):
                places[uid.decode()].add(name)
    gone = {uid for uid in client.hkeys(keys.removed) if uid}
    for _, fields in client.xrange(keys.stream):
        # What was taken out stays until a claim gets there, and is no place.
        if fields[b"t"] not in gone:
            places[fields[b"t"].decode()].add("stream")
    for uid in client.smembers(keys.cancels):
        places[uid.decode()].add("cancels")
    finals = {}
    for uid, record in client.hscan_iter(keys.records, count=1000):
        places[uid.decode()].add("records")
        finals[uid.decode()] = _final(places[uid.decode()], record)
    for uid, where in places.items():
        if uid not in finals:
            finals[uid] = Final(frozenset(where))
    return finals


def _final(places: set[str], record: bytes) -> Final:
    try:
        journal = message.read_journal(record)
    except Exception:
        return Final(frozenset(places), "unreadable")
    last = journal.entries[-1]
    value = last.value if last.kind == message.SUCCEEDED else None
    # A task returns its token, or a list that begins with it.
    token = value[0] if isinstance(value, list) and value else value
    failures = sum(1 for one in journal.entries if one.kind in (message.FAILED, message.DEAD))
    crashed = isinstance(last.value, list) and last.value[0] == message.CRASHED_TYPE
    return Final(
        frozenset(places), "begun" if "steps" in journal.extras else journal.end_state,
        token if isinstance(token, str) else None, failures, crashed, value,
        tuple(End(message.END_STATES[one.kind], one.at_ms) for one in journal.entries
              if one.kind in message.END_STATES),
        tuple(one.at_ms for one in journal.entries if one.kind == message.RESUBMITTED),
    )


def read_totals(client: Any, keys: PoolKeys) -> dict[str, int]:
    """The pool's own totals."""
    return {name: int(client.hget(keys.stats, name) or 0) for name in ("succeeded", "failed")}


def ready_pids(log: str) -> dict[int, int]:
    """From a node's log: how many workers the child of each process id said it has."""
    found = re.findall(r"(\d+) workers ready, pid (\d+)", log)
    return {int(pid): int(count) for count, pid in found}


def pools_of_pids(log: str) -> dict[int, str]:
    """From a node's log: whose child each process id was."""
    found = re.findall(r"pool (\S+): \d+ workers ready, pid (\d+)", log)
    return {int(pid): pool for pool, pid in found}

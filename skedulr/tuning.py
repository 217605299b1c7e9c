"""Tuning: how many workers a pool needs so that what is submitted now waits no longer than wanted.

Pure: ``decide(state, seen)`` takes what is known and what is seen and gives what is known then,
and a decision with its reason, if there is one. It keeps no time and asks nobody.

Three things are told apart:

- *work*: how many workers are busy, and how many more would be, since the queue grows. By Little's
  law that is the arrival rate times the mean run time, without having to know either.
- *mean run time*: seconds of busy workers over runs that ended, of the last half minute or so. As
  long as nothing has ended it is what has been worked so far, which is too little: that a pool of
  long tasks needs more workers is seen when it has worked long enough to say so.
- *wait*: what is queued, times the mean run time, over the workers there are.

Up goes fast: once the wait is over the band, or will be within a few looks, to the size that brings
it down to the lower edge in the time of the upper one. Down goes slowly: only when work has been
small for a while, and then by a quarter at most, to where the workers are busy four fifths of their
time at the greatest work of that while. A pool that has to grow again soon after it shrank was
shrunk too early: each time it waits twice as long before it does so again, up to eight times, and
forgets that by and by.

Example: 10 workers, band 1..5 s, tasks of 2 s, 12 of them submitted a second. Work is 24 workers:
10 are busy and the queue grows by 7 tasks a second, which is 14 more. With 12 queued the wait is
2.4 s and grows by 1.4 s a second, so in three seconds it will be 6.6: over the band. Wanted are
(24 * 5 + 12 * 2) / (5 + 1) = 24 workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

#: What was seen longer ago than this, seconds, says nothing of the time in between.
GAP_S = 15.0
#: Over how long work is smoothed, and the mean run time, seconds.
WORK_S, RUNS_S = 3.0, 30.0
#: How far ahead the wait is seen to leave the band, seconds.
AHEAD_S = 3.0
#: Between two steps up, seconds: the one before has to be seen.
UP_S = 3.0
#: Up at most to so many times the size, or by so many workers.
MOST_TIMES, MOST_MORE = 4, 8
#: How long the work must have been small before the first step down, and between two, seconds.
CALM_S, DOWN_S = 15.0, 5.0
#: The part of their time that workers are to be busy, after a step down.
BUSY = 0.8
#: Of a size at most this part goes at once; and less than that part (or one worker) too many is
#: let be.
MOST_DOWN, LET_BE = 0.25, 0.1
#: Growing again within this after shrinking was a mistake, seconds; how often it may double the
#: calm time; and after how long without one it is halved, seconds.
FLAP_S, MOST_PENALTY, FORGIVEN_S = 60.0, 8, 300.0
#: The greatest work is kept for spans of this, seconds.
SPAN_S = 5.0

GROW, SHRINK, BOUNDS, LIMIT = "grow", "shrink", "bounds", "limit"
CPU, MEMORY, MAX = "cpu", "memory", "max"


class Seen(NamedTuple):
    """One look at a pool in the whole cluster.

    ``at_s`` is Redis' time; ``ended`` counts attempts since ever; ``least`` and ``most`` bound the
    workers, ``low_s`` and ``high_s`` the wait; ``limit`` says why more workers would not help
    (CPU), or may not be (MEMORY).
    """

    at_s: float
    queued: int
    busy: int
    workers: int
    ended: int
    least: int
    most: int
    low_s: float
    high_s: float
    limit: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a pool. A new leader goes on with ``kept`` of it; the rest comes back."""

    size: int
    grew_at_s: float = -math.inf
    shrank_at_s: float = -math.inf
    penalty: float = 1
    penalized_at_s: float = -math.inf
    #: The last look: None after a gap.
    last: Seen | None = None
    #: Seconds worked and runs ended, older ones counting less.
    worked_s: float = 0.0
    ended: float = 0.0
    #: Workers that would be busy if there were enough, smoothed; and the greatest of each span.
    work: float = 0.0
    peaks: tuple[tuple[float, float], ...] = ()
    #: Since when the wait has been under the band.
    calm_since_s: float = math.inf
    #: The limit that was said last, so that it is said once.
    said: str = ""

    def kept(self) -> dict[str, Any]:
        """What a successor is to know."""
        return {
            "size": self.size, "grew": self.grew_at_s, "shrank": self.shrank_at_s,
            "penalty": self.penalty, "penalized": self.penalized_at_s,
        }

    @classmethod
    def of(cls, kept: dict[str, Any]) -> State:
        """The state that a predecessor kept. Raises KeyError, TypeError, ValueError for none."""
        return cls(
            int(kept["size"]), float(kept["grew"]), float(kept["shrank"]),
            float(kept["penalty"]), float(kept["penalized"]),
        )


class Decision(NamedTuple):
    """What is done (GROW, SHRINK, BOUNDS) or can not be (LIMIT), with the reason in words."""

    kind: str
    before: int
    after: int
    why: str
    wait_s: float
    work: float


def decide(state: State, seen: Seen) -> tuple[State, Decision | None]:
    """What a pool's state is after this look, and the decision it leads to, if any."""
    size = min(seen.most, max(seen.least, state.size))
    if size != state.size:
        why = f"it may have {seen.least} to {seen.most} workers"
        return (
            replace(state, size=size, last=seen),
            Decision(BOUNDS, state.size, size, why, wait_s(state, seen), state.work),
        )
    known = _learn(state, seen)
    if known.last is None or seen.workers <= 0:
        # The first look, or one after a gap, or none there to judge by: hold.
        return replace(known, last=seen), None
    wait = wait_s(known, seen)
    known = replace(known, last=seen, calm_since_s=(
        min(known.calm_since_s, seen.at_s) if wait < seen.low_s else math.inf
    ))
    if _leaves_the_band(known, seen, wait):
        return _grow(known, seen, wait)
    if wait < seen.low_s:
        return _shrink(_forgiven(replace(known, said=""), seen), seen, wait)
    return known, None


def wait_s(state: State, seen: Seen) -> float:
    """How long what is submitted now will wait, seconds."""
    over = max(0, seen.queued - max(0, seen.workers - seen.busy))
    return over * run_s(state) / max(1, seen.workers)


def run_s(state: State) -> float:
    """The mean run time, seconds; less than that while nothing has ended."""
    return state.worked_s / max(1.0, state.ended)


def _learn(state: State, seen: Seen) -> State:
    """The state with what this look adds; without a last look where there is a gap."""
    last = state.last
    elapsed = seen.at_s - last.at_s if last is not None else math.inf
    if last is None or not 0 < elapsed <= GAP_S or seen.ended < last.ended:
        return replace(state, last=None, calm_since_s=math.inf, peaks=(), work=float(seen.busy))
    fading = math.exp(-elapsed / RUNS_S)
    known = replace(
        state, worked_s=state.worked_s * fading + elapsed * (last.busy + seen.busy) / 2,
        ended=state.ended * fading + seen.ended - last.ended,
    )
    # What the queue gained would have kept so many more busy; what it lost, so many fewer.
    now = max(0.0, seen.busy + (seen.queued - last.queued) / elapsed * run_s(known))
    work = state.work + (now - state.work) * (1 - math.exp(-elapsed / WORK_S))
    return replace(known, work=work, peaks=_peaks(state, seen.at_s, work))


def _peaks(state: State, at_s: float, work: float) -> tuple[tuple[float, float], ...]:
    """The greatest work of each span of the calm time."""
    span = at_s // SPAN_S * SPAN_S
    since = at_s - CALM_S * state.penalty - SPAN_S
    peaks = [one for one in state.peaks if one[0] >= since]
    if peaks and peaks[-1][0] == span:
        peaks[-1] = (span, max(peaks[-1][1], work))
    else:
        peaks.append((span, work))
    return tuple(peaks)


# Up


def _leaves_the_band(state: State, seen: Seen, wait: float) -> bool:
    if wait > seen.high_s:
        return True
    rise = state.work / seen.workers - 1 if wait > 0 else 0.0
    return wait > seen.low_s and wait + rise * AHEAD_S > seen.high_s


def _grow(state: State, seen: Seen, wait: float) -> tuple[State, Decision | None]:
    low, high = seen.low_s, seen.high_s
    wanted = max(state.work, (state.work * high + seen.queued * run_s(state)) / (high + low))
    wanted = min(math.ceil(wanted), max(state.size * MOST_TIMES, state.size + MOST_MORE))
    if wanted <= state.size or seen.at_s - state.grew_at_s < UP_S:
        return state, None
    limit = seen.limit or (MAX if state.size >= seen.most else "")
    if limit:
        return _say(state, seen, wait, limit)
    after = min(wanted, seen.most)
    # Once for each time it shrank, however many steps it takes to come back.
    flapped = state.grew_at_s < state.shrank_at_s and seen.at_s - state.shrank_at_s < FLAP_S
    grown = replace(
        state, size=after, grew_at_s=seen.at_s, said="",
        penalty=min(MOST_PENALTY, state.penalty * 2) if flapped else state.penalty,
        penalized_at_s=seen.at_s if flapped else state.penalized_at_s,
    )
    why = f"the wait is {wait:.1f} s" if wait > high else f"the wait is {wait:.1f} s and rises"
    if flapped:
        why += f"; it shrank {seen.at_s - state.shrank_at_s:.0f} s ago, so the next time later"
    return grown, Decision(GROW, state.size, after, why, wait, state.work)


_LIMITS = {
    CPU: "its processes are out of CPU and more workers do not help: give it more processes, as "
         "in {name}=MIN..MAXx2, on nodes with free cores",
    MEMORY: "its nodes are out of memory",
    MAX: "{most} workers are the most it may have",
}


def _say(state: State, seen: Seen, wait: float, limit: str) -> tuple[State, Decision | None]:
    if limit == state.said:
        return state, None
    why = f"the wait is {wait:.1f} s, but " + _LIMITS[limit].replace("{most}", str(seen.most))
    return (
        replace(state, said=limit),
        Decision(LIMIT, state.size, state.size, why, wait, state.work),
    )


# Down


def _forgiven(state: State, seen: Seen) -> State:
    if state.penalty > 1 and seen.at_s - state.penalized_at_s > FORGIVEN_S:
        return replace(state, penalty=state.penalty / 2, penalized_at_s=seen.at_s)
    return state


def _shrink(state: State, seen: Seen, wait: float) -> tuple[State, Decision | None]:
    calm_s = CALM_S * state.penalty
    last_step = max(state.grew_at_s + calm_s, state.shrank_at_s + DOWN_S)
    if seen.at_s - state.calm_since_s < calm_s or seen.at_s < last_step:
        return state, None
    greatest = max((work for _, work in state.peaks), default=state.work)
    wanted = max(seen.least, math.ceil(greatest / BUSY))
    if state.size - wanted < max(1, state.size * LET_BE):
        return state, None
    after = max(wanted, state.size - max(1, math.ceil(state.size * MOST_DOWN)))
    why = f"no more than {greatest:.1f} were busy for {calm_s:.0f} s"
    return (
        replace(state, size=after, shrank_at_s=seen.at_s),
        Decision(SHRINK, state.size, after, why, wait, state.work),
    )

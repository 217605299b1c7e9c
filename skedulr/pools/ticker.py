"""The ticker: fires the schedules of a pool. Every child of the pool has one, and none is special.

It sleeps on one entry of the wheel, set to the next tick of the pool. When that comes it looks what
is due, decides, and tries to fire it; the script lets one of all that try succeed. So a tick is
fired as long as one child of the pool lives, and a ``kill -9`` in the middle costs nothing: the
tick is either fired with its next one stored, or untouched for the others. The master does not
tick: its death drains its children, and it knows none of the code.

- What the code declares is registered at boot, with one heartbeat for all of it (a *set*, named by
  its digest) instead of one for each schedule. A server that was flushed does not know the set, and
  is told everything again.
- A child fires what its own code declares, and what was made through the API. So a schedule that
  was removed from the code is silent as soon as the last child with the old code is gone; after an
  hour without one it is removed.
- A server whose clock was set back would leave schedules silent until the old time comes again:
  they are planned anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from .. import message
from ..app import Skedulr
from ..clock import Clock
from ..codecs import Codec
from ..errors import ConfigError, PayloadError, SkedulrError
from ..hub.alarm import Alarm
from ..hub.driver import Driver, Repeat
from ..schedule_records import (
    ERROR,
    NOBODY,
    Definition,
    State,
    define,
    read_definition,
)
from ..schedule_store import (
    ALIVE,
    EARLY,
    FIRED,
    HELD,
    IN_ORDER,
    LATE,
    MOST_DUE,
    MOST_PUT,
    NEW,
    PAGE,
    PASSED,
    SAME,
    SKIPPED,
    Directory,
    Due,
    Firing,
    Look,
    ScheduleStore,
    place,
)
from ..scheduling import decide
from ..storage import without_priorities
from ..wire import WireError
from ..wires import SharedWire

log = logging.getLogger("skedulr.schedules")

#: Between two heartbeats, seconds: how long a flushed server stays without its schedules at most.
BEAT_S = 5.0
#: A set that was not heard for this long is gone, and after this long its schedules go, ms.
SILENT_MS, RETIRE_MS = 60_000, 3_600_000
#: Between two searches for schedules that nobody declares any more, ms.
SWEEP_MS = 60_000
#: What got lost is looked for at every so many heartbeats: it costs an idle pool three commands.
SWEEP_BEATS = 6
#: After a look that failed, the next one comes in this many seconds.
AGAIN_S = 0.5
#: A clock that goes back by more than this was set back, ms.
STEP_BACK_MS = 5_000
#: Definitions kept in memory.
MOST_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Times:
    """How long is long, for tests: see SILENT_MS, RETIRE_MS."""

    beat_s: float = BEAT_S
    silent_ms: int = SILENT_MS
    retire_ms: int = RETIRE_MS


class Ticker:
    """Ticks for one pool. ``declared`` are the schedules of its code in this pool, ``store_of``
    gives another pool's store, ``owner`` signs the cancels of runs before."""

    def __init__(
        self, *, store: ScheduleStore, store_of: Callable[[str], ScheduleStore],
        directory: Directory, wire: SharedWire, driver: Driver, clock: Clock, owner: str,
        declared: Iterable[Definition], times: Times | None = None, codec: Codec | None = None,
    ) -> None:
        self._codec = codec
        self._store, self._store_of, self._directory = store, store_of, directory
        self._wire, self._driver, self._clock = wire, driver, clock
        self._pool, self._times = store.keys.pool, times or Times()
        self._declared = {definition.name: definition for definition in declared}
        #: The digest of all that is declared, '' for nothing.
        self.set = _digest(self._declared.values())
        self._entry = message.entry(
            message.CANCELLED, owner, 0, 0, "cancelled by the next tick of its schedule"
        )
        self._kept: dict[str, Definition] = dict(self._declared)
        self._silent: dict[str, int] = {}
        #: Schedules that were said to be unreadable.
        self._complained: set[str] = set()
        #: The silent sets whose schedules were looked for last, and when.
        self._swept: set[str] = set()
        self._swept_ms = 0
        self._repeat: Repeat | None = None
        self._beats = 0
        self._alarm = Alarm(driver, self.look, internal=True)
        self._looking = self._look_again = self._stopping = False
        #: Redis time of the first look: what came due before may have been missed.
        self._since_ms: int | None = None
        self._latest_ms = 0
        self._stepped_from_ms = 0
        #: How many ticks this process fired.
        self.fired = 0

    def start(self) -> None:
        """Register what is declared, and tick from now on."""
        self._repeat = self._driver.every(self._times.beat_s, self.beat, jitter=0.2, internal=True)
        self._driver.after(0, self.beat, internal=True)

    def stop(self) -> None:
        """Fire nothing more. Safe twice."""
        self._stopping = True
        if self._repeat is not None:
            self._repeat.cancel()
        self._alarm.cancel()

    def on_change(self) -> None:
        """A schedule may have been made, changed, or let go by the run it waited for."""
        if not self._stopping:
            self._driver.after(0, self.look, internal=True)

    def beat(self) -> None:
        """Say that the code lives, registering it where needed; look; mend what got lost."""
        seldom = self._beats % SWEEP_BEATS == 0
        # Code that declares nothing has nothing to keep alive.
        steps = [self.declare] if self._declared or seldom else []
        for step in [*steps, self.look, *([self.sweep] if seldom else [])]:
            try:
                step()
            except WireError as error:
                log.debug("pool %s: can not see to the schedules: %s", self._pool, error)
                return
            except Exception:
                # Something in Redis that nobody foresaw: it must silence nothing else.
                log.exception("pool %s: seeing to the schedules failed", self._pool)
        self._beats += 1

    # Declaring

    def declare(self) -> None:
        """One heartbeat for everything that the code declares."""
        now_ms, verdict = self._say("look")
        if verdict != ALIVE:
            self._say("registering")
            self._register(now_ms)
            self._say("registered")

    def _say(self, what: str) -> tuple[int, str]:
        now_ms, verdict, self._silent = self._store.declare(
            self._wire, self.set, self._times.silent_ms, what
        )
        return now_ms, verdict

    def _register(self, now_ms: int) -> None:
        definitions = list(self._declared.values())
        counts = dict.fromkeys((NEW, SAME), 0)
        for at in range(0, len(definitions), MOST_PUT):
            page = definitions[at:at + MOST_PUT]
            self._take_from_other_pools([definition.name for definition in page])
            verdicts = self._store.put(
                self._wire, [place(definition, now_ms) for definition in page], by=self.set
            )
            for letter in counts:
                counts[letter] += verdicts.count(letter)
            self._stop_ranked(page)
        log.info("pool %s: %d schedules of the code: %d new, %d changed", self._pool,
                 len(definitions), counts[NEW], len(definitions) - sum(counts.values()))

    def _stop_ranked(self, definitions: Sequence[Definition]) -> None:
        """Those whose priority or limits this pool would not heed are not run without."""
        names = [definition.name for definition in definitions if definition.ranked]
        if not names or not self._store.runs_in_order(self._wire):
            return
        for name, stored in zip(names, self._store.get(self._wire, names), strict=True):
            if stored is not None and not stored.why:
                self._stop_failing(name, stored.state, ConfigError(without_priorities(self._pool)))

    def _take_from_other_pools(self, names: Sequence[str]) -> None:
        """A schedule that moves to this pool leaves the other one first: it must not tick twice."""
        found = self._wire.calls([
            *(self._directory.question(name) for name in names),
            self._directory.addition(self._pool, names),
        ])
        for name, answer in zip(names, found, strict=False):
            for pool in self._directory.answer(answer):
                if pool != self._pool:
                    self._store_of(pool).remove(self._wire, [name])
                    self._directory.drop(self._wire, pool, [name])

    # Looking

    def look(self) -> None:
        """Fire what is due, and be there for the next tick."""
        if self._looking:
            self._look_again = True
            return
        self._looking = True
        try:
            self._look_again = True
            while self._look_again and not self._stopping:
                self._look_again = False
                self._look_once()
        except WireError as error:
            log.debug("pool %s: can not look at the schedules: %s", self._pool, error)
            self._ring_in(AGAIN_S)
        except Exception:
            log.exception("pool %s: looking at the schedules failed", self._pool)
            self._ring_in(self._times.beat_s)
        finally:
            self._looking = False

    def _look_once(self) -> None:
        offset = 0
        while True:
            look = self._store.look(self._wire, offset)
            self._take_time(look.now_ms)
            if look.next_due_ms is not None:
                self._ring_at(look.next_due_ms)
            if look.paused:
                return
            self._complain(look.unreadable)
            offset += self._fire(look) + len(look.unreadable)
            if len(look.due) + len(look.unreadable) < MOST_DUE:
                return

    def _complain(self, unreadable: Sequence[str]) -> None:
        """Say once of each schedule that its state can not be read: it can not be fired."""
        for name in unreadable:
            if name not in self._complained and len(self._complained) < MOST_KEPT:
                self._complained.add(name)
                log.error("schedule %s/%s can not be fired: its state can not be read; "
                          "see skedulr doctor", self._pool, name)

    def _take_time(self, now_ms: int) -> None:
        self._clock.anchor(now_ms)
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms < self._latest_ms - STEP_BACK_MS:
            log.warning("the server's clock was set back by %.1f s: schedules are planned anew",
                        (self._latest_ms - now_ms) / 1000)
            self._stepped_from_ms, self._latest_ms, self._since_ms = self._latest_ms, now_ms, now_ms
            self._plan_anew(now_ms)
        self._latest_ms = max(self._latest_ms, now_ms)

    def _fire(self, look: Look) -> int:
        """Fire a page of due ticks; how many of them stay due."""
        mine = [
            due for due in look.due if due.state.by == NOBODY or due.name in self._declared
        ]
        stay = len(look.due) - len(mine)
        definitions = self._definitions([(due.name, due.state) for due in mine])
        firings = []
        for due in mine:
            definition = definitions.get(due.name)
            firing = None if definition is None else self._decide(definition, due, look.now_ms)
            if firing is not None:
                firings.append(firing)
        for at in range(0, len(firings), PAGE):
            page = firings[at:at + PAGE]
            verdicts = self._store.fire(self._wire, page, self._entry, self._again(look.now_ms))
            for firing, verdict in zip(page, verdicts, strict=True):
                stay += self._after(firing, verdict, look.now_ms)
            refused = [
                firing.definition for firing, verdict in zip(page, verdicts, strict=True)
                if verdict == IN_ORDER
            ]
            self._stop_ranked(refused)
        return stay

    def _decide(self, definition: Definition, due: Due, now_ms: int) -> Firing | None:
        """What becomes of a due tick; a schedule whose arithmetic fails stops alone."""
        tick_ms = due.state.tick_ms
        assert self._since_ms is not None
        if tick_ms is None:
            return None
        plan = definition.plan
        try:
            decision = decide(
                plan, definition.policy, name=due.name, tick_ms=tick_ms, now_ms=now_ms,
                watching_since_ms=self._since_ms, held=due.state.held,
            )
            if decision.next_ms is not None and decision.next_ms <= tick_ms:
                raise SkedulrError(f"the tick after {tick_ms} came out as {decision.next_ms}")
            run = None
            if decision.fire_ms is not None:
                run = definition.submission(
                    decision.fire_ms, plan.fires_at(due.name, decision.fire_ms), self._codec
                )
        except Exception as error:
            self._stop_failing(due.name, due.state, error)
            return None
        next_fires_ms = 0 if decision.next_ms is None else plan.fires_at(due.name, decision.next_ms)
        return Firing(definition, tick_ms, decision.next_ms, next_fires_ms, run)

    def _after(self, firing: Firing, verdict: str, now_ms: int) -> int:
        """Take note of a verdict; 1 where the tick stays due."""
        name = firing.definition.name
        if verdict == FIRED:
            self.fired += 1
            log.debug("schedule %s/%s fired %s", self._pool, name, firing.tick_ms)
        elif verdict == HELD:
            return 1
        elif verdict == EARLY:
            self._ring_in(0.01)
            return 1
        elif verdict == SKIPPED:
            log.debug("schedule %s/%s: its tick is skipped, the run before goes on",
                      self._pool, name)
        elif verdict == PASSED:
            log.info("schedule %s/%s: missed ticks are passed over", self._pool, name)
        elif verdict == IN_ORDER or (verdict == LATE and firing.next_ms is None):
            return 0
        if firing.next_ms is not None:
            # Also where another process was first: it stored the same tick.
            self._ring_at(firing.next_fires_ms)
            if firing.next_fires_ms <= now_ms and verdict != LATE:
                self._look_again = True
        return 0

    def _again(self, now_ms: int) -> str:
        """What goes behind ids that were used before the clock was set back."""
        if now_ms >= self._stepped_from_ms:
            return ""
        return f"+{self._stepped_from_ms // 1000}"

    # Definitions

    def _definitions(self, wanted: Sequence[tuple[str, State]]) -> dict[str, Definition]:
        """The definitions of these states' revisions; those gone or unreadable are left out."""
        missing = [
            (name, state) for name, state in wanted
            if name not in self._kept or self._kept[name].revision != state.revision
        ]
        if len(self._kept) + len(missing) > MOST_KEPT:
            self._kept = dict(self._declared)
        for at in range(0, len(missing), MOST_DUE):
            page = missing[at:at + MOST_DUE]
            found = self._store.definitions(self._wire, [name for name, _ in page])
            for (name, state), packed in zip(page, found, strict=True):
                if packed is not None:
                    self._read(name, state, packed)
        return {
            name: self._kept[name] for name, state in wanted
            if name in self._kept and self._kept[name].revision == state.revision
        }

    def _read(self, name: str, state: State, packed: bytes) -> None:
        try:
            self._kept[name] = read_definition(packed)
        except (PayloadError, SkedulrError) as error:
            self._stop_failing(name, state, error)

    def _stop_failing(self, name: str, state: State, error: Exception) -> None:
        log.error("schedule %s/%s stops: %s: %s", self._pool, name, type(error).__name__, error)
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        self._store.rest(self._wire, name, state, f"{ERROR} {text}")

    # Mending

    def sweep(self) -> None:
        """Retire what nobody declares any more, and give back next ticks that got lost."""
        whole = self._store.is_whole(self._wire)
        silent = set(self._silent)
        waited_ms = self._latest_ms - self._swept_ms
        # What waits to be retired need not be looked for with each beat.
        if whole and (not silent or (silent <= self._swept and waited_ms < SWEEP_MS)):
            return
        self._swept, self._swept_ms = silent, self._latest_ms
        left = self._mend_all(mending=not whole)
        for name in silent - left:
            self._store.forget(self._wire, name)

    def _mend_all(self, *, mending: bool) -> set[str]:
        """One pass over all states; the silent sets that still declare something."""
        left: set[str] = set()
        cursor = 0
        while True:
            cursor, states = self._store.scan(self._wire, cursor)
            silent = [(name, state) for name, state in states if state.by in self._silent]
            left |= {state.by for _, state in silent}
            self._retire(silent)
            if mending:
                self._mend([name for name, _ in states])
            if cursor == 0:
                return left

    def _retire(self, silent: Sequence[tuple[str, State]]) -> None:
        if not silent:
            return
        stored = self._store.get(self._wire, [name for name, _ in silent])
        for (name, state), now in zip(silent, stored, strict=True):
            if self._is_over(self._silent[state.by]):
                if self._store.remove(self._wire, [name], state.by, self._times.retire_ms)[0]:
                    self._directory.drop(self._wire, self._pool, [name])
                    log.warning("schedule %s/%s is removed: no code declares it any more",
                                self._pool, name)
            elif now is not None and not now.why:
                self._store.retire(self._wire, name, now.state, self._times.silent_ms)

    def _is_over(self, heard_ms: int) -> bool:
        return self._latest_ms - heard_ms >= self._times.retire_ms

    def _mend(self, names: Sequence[str]) -> None:
        """A schedule without a next tick and without a reason gets the tick it had."""
        if not names:
            return
        self._wire.call(*self._directory.addition(self._pool, names))
        for name, stored in zip(names, self._store.get(self._wire, names), strict=True):
            if stored is None:
                # A part of it was deleted by hand: what is left can not be fired.
                self._store.remove(self._wire, [name])
            elif stored.fires_ms is None and not stored.why:
                tick_ms = stored.state.tick_ms
                log.warning("schedule %s/%s had lost its next tick", self._pool, name)
                self._store.replan(self._wire, name, stored.state, tick_ms, tick_ms or 0)

    def _plan_anew(self, now_ms: int) -> None:
        """After the clock was set back: a next tick that is further away than it should be."""
        cursor = 0
        while True:
            cursor, states = self._store.scan(self._wire, cursor)
            definitions = self._definitions(states)
            for name, state in states:
                definition, tick_ms = definitions.get(name), state.tick_ms
                if definition is None or tick_ms is None:
                    continue
                placed = place(definition, now_ms, tick_ms)
                if placed.tick_ms is not None and placed.tick_ms < tick_ms:
                    self._store.replan(self._wire, name, state, placed.tick_ms, placed.fires_ms)
            if cursor == 0:
                self._look_again = True
                return

    # The alarm

    def _ring_in(self, seconds: float) -> None:
        self._set_alarm(self._clock.monotonic_ms() + round(seconds * 1000))

    def _ring_at(self, redis_ms: int) -> None:
        self._set_alarm(self._clock.to_monotonic(redis_ms))

    def _set_alarm(self, due_ms: int) -> None:
        if not self._stopping:
            self._alarm.set(due_ms)


def _digest(definitions: Iterable[Definition]) -> str:
    listed = sorted(f"{one.name} {one.revision}" for one in definitions)
    return blake2b("\n".join(listed).encode(), digest_size=8).hexdigest() if listed else ""


def definitions_of(
    app: Skedulr, pool: str, payload_limit: int, served: Iterable[str], codec: Codec | None = None
) -> list[Definition]:
    """The schedules of an app whose runs go to ``pool``; says once which go to pools that this
    node does not serve, since those are registered by nobody here.

    Raises what is wrong with one of them: PayloadError, ConfigError.
    """
    defined = [define(declared, payload_limit, codec) for declared in app.declared.values()]
    if pool == min(served, default=pool):
        for name in sorted({name for name, _ in defined}.difference(served)):
            log.warning("%d schedules of the code are for pool %r, which this node does not serve",
                        sum(1 for other, _ in defined if other == name), name)
    return [definition for name, definition in defined if name == pool]

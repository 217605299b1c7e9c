"""A plain model of what the scripts promise: tasks with a state each, moved by one method a script.

Each method takes Redis time and the script's arguments, changes the model and returns what the
script is to answer; ``state()`` is everything Redis is to hold then, in the form of
``Scripts.state``. Written from the headers of the scripts, not from their text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from script_driver import Task, place, stamp

QUEUED, SCHEDULED, SUSPECT, RUNNING, DONE, DEAD = (
    "ready", "delayed", "suspects", "running", "done", "dead"
)
UNSTARTED = (QUEUED, SCHEDULED, SUSPECT)
LIVE = (*UNSTARTED, RUNNING)
NO_LOCK = "-"
CRASH, KILLED = b"crash", b"killed"


class ModelGone(Exception):
    """The owner was released."""


@dataclass
class Header:
    priority: int = 0
    attempts: int = 0
    crashes: int = 0
    due: int = 0
    unique: str = NO_LOCK
    since: int = 0
    losses: int = 0
    blamed: str = ""

    def text(self) -> str:
        crashes = f"{self.crashes}+{self.losses}" if self.losses else self.crashes
        parts: list[object] = [self.priority, self.attempts, crashes, self.due, self.unique]
        if self.blamed:
            parts += [self.since, self.blamed]
        elif self.since:
            parts.append(self.since)
        return " ".join(map(str, parts))


@dataclass
class Entry:
    """One task. ``score`` is its place in ready or suspects, its due time, or when it ended."""

    uid: str
    envelope: bytes
    journal: bytes
    state: str
    score: int = 0
    header: Header | None = None
    token: str = ""
    expiry: int = 0
    started: int = 0
    marked: bool = False

    def claim(self) -> str:
        return f"{self.token} {self.score} {self.started}" + (" s" if self.marked else "")

    def owner(self) -> str:
        return self.token.rpartition(":")[0] if self.state == RUNNING else ""

    def touch(self) -> Header:
        self.header = self.header or Header()
        return self.header


@dataclass
class Owner:
    held: set[str] = field(default_factory=set)
    lanes: dict[str, str] = field(default_factory=dict)
    #: The last group of suspects: from when the next may start, its size, those not known to have
    #: ended.
    group: tuple[int, int, list[str]] | None = None

    def stored(self) -> dict[str, str]:
        if self.group is None:
            return self.lanes
        since, size, named = self.group
        return {**self.lanes, "suspect": " ".join([str(since), str(size), *named])}

    @property
    def gone(self) -> bool:
        return "gone" in self.lanes


def priority_of(score: int) -> int:
    return 100 - score // 2**44


class Model:
    """The tasks of one pool."""

    def __init__(self) -> None:
        self.tasks: dict[str, Entry] = {}
        self.owners: dict[str, Owner] = {}
        self.unique: dict[str, tuple[str, int]] = {}
        self.windows: dict[str, int] = {}
        self.cancels: set[str] = set()
        #: Of which no hook was told yet, and when they died.
        self.deaths: dict[str, int] = {}
        self.progress_of: dict[str, str] = {}
        self.watched: dict[str, list[str]] = {}
        self.stats: dict[str, int] = {}
        self.meta: dict[str, int] = {}
        self.sequence = 0
        self.woken = False

    # -- what Redis is to hold --------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """In the form of ``Scripts.state``: keys that are empty do not exist."""
        live = [one for one in self.tasks.values() if one.state in LIVE]
        running = self._in(RUNNING)
        whole = {
            "tasks": {one.uid: one.journal for one in live},
            "records": {one.uid: one.journal for one in self._in(DONE, DEAD)},
            **{
                name: {one.uid: one.score for one in self._in(name)}
                for name in (QUEUED, SCHEDULED, SUSPECT, DONE, DEAD)
            },
            "leases": {one.uid: one.expiry for one in running},
            "claims": {one.uid: one.claim() for one in running},
            "info": {one.uid: one.header.text() for one in live if one.header},
            "unique": {digest: f"{uid} {end}" for digest, (uid, end) in self.unique.items()},
            "windows": self.windows,
            "cancels": self.cancels,
            "deaths": self.deaths,
            "progress": self.progress_of,
            "watch": {uid: " ".join(channels) for uid, channels in self.watched.items()},
            "stats": {name: str(count) for name, count in self.stats.items()},
            "meta": {name: str(value) for name, value in self.meta.items()}
            | ({"sequence": str(self.sequence)} if self.sequence else {}),
            "wake": ["1"] if self.woken else [],
            **{f"owned:{name}": owner.held for name, owner in self.owners.items()},
            **{f"own:{name}": owner.stored() for name, owner in self.owners.items()},
        }
        return {name: value for name, value in whole.items() if value}

    def _in(self, *states: str) -> list[Entry]:
        return [one for one in self.tasks.values() if one.state in states]

    # -- shared steps -----------------------------------------------------------------------------

    def _wake(self) -> None:
        if "paused" not in self.meta:
            self.woken = True

    def _next_place(self, priority: int) -> int:
        self.sequence += 1
        return place(self.sequence, priority)

    def _next_due(self) -> int:
        return min((one.score for one in self._in(SCHEDULED)), default=-1)

    def _promote(self, now: int, limit: int) -> int:
        due = sorted((one.score, one.uid) for one in self._in(SCHEDULED) if one.score <= now)
        for at, uid in due[:limit]:
            entry = self.tasks[uid]
            header = entry.touch()
            if not header.since:
                header.due = at
            entry.state, entry.score = QUEUED, self._next_place(header.priority)
        return min(len(due), limit)

    def _unlock(self, entry: Entry, modes: str) -> None:
        mode, _, digest = (entry.header.unique if entry.header else NO_LOCK).partition(":")
        if mode in modes and digest in self.unique and self.unique[digest][0] == entry.uid:
            del self.unique[digest]

    def _forget(self, entry: Entry, modes: str) -> None:
        self._unlock(entry, modes)
        entry.header = None
        self.cancels.discard(entry.uid)
        self.progress_of.pop(entry.uid, None)
        self.watched.pop(entry.uid, None)

    def _end(self, now: int, uid: str, kind: str, text: bytes) -> None:
        entry = self.tasks[uid]
        entry.journal += text + stamp(now)
        self._forget(entry, "dsw" if kind == "c" else "ds")
        entry.state, entry.score = (DEAD if kind == "d" else DONE), now
        counted = {
            "s": ("succeeded",), "d": ("failed", "dead"), "c": ("cancelled",), "e": ("expired",),
        }
        for total in counted.get(kind, ()):
            self._count(total)

    def _count(self, total: str) -> None:
        self.stats[total] = self.stats.get(total, 0) + 1

    def _give_back(self, entry: Entry, *, suspected: bool = False) -> None:
        entry.state = SUSPECT if entry.marked or suspected else QUEUED

    def _holds(self, uid: str, token: str) -> bool:
        entry = self.tasks.get(uid)
        return entry is not None and entry.state == RUNNING and entry.token == token

    def _lane(self, owner: str, lane: str, number: int) -> str | None:
        """The stored answer of a repeat, or None."""
        known = self.owners.setdefault(owner, Owner())
        if known.gone:
            raise ModelGone
        last, _, answer = known.lanes.get(lane, "0 ").partition(" ")
        assert number >= int(last), "the machine does not go back"
        return answer if number == int(last) else None

    def _suspect_left(self, owner: Owner, uids: Iterable[str]) -> None:
        if owner.group is None:
            return
        since, size, named = owner.group
        left = [uid for uid in named if uid not in set(uids)]
        owner.group = since, size, left
        if len(left) < len(named) and not left and self._in(SUSPECT):
            self._wake()

    def _group_allowed(self, now: int, owner: str) -> tuple[int, int | None]:
        """How many suspects an owner may take, or from when."""
        group, wary = self.owners[owner].group, self.meta.get("wary", 0)
        if group is None:
            return 1, None
        since, size, named = group
        held = any(self.tasks[uid].owner() == owner for uid in named if uid in self.tasks)
        if held and (now < since or wary == 2):
            return 0, since if wary < 2 else None
        return (1 if wary else min(64, 2 * size)), None

    def _forgive(self, pairs: Iterable[tuple[str, str]]) -> None:
        for uid, token in pairs:
            entry = self.tasks.get(uid)
            if entry and entry.state in LIVE and entry.header and entry.header.blamed == token:
                entry.header.blamed = ""
                entry.header.crashes = max(0, entry.header.crashes - 1)

    # -- the scripts ------------------------------------------------------------------------------

    def _lock_of(self, now: int, digest: str) -> str | None:
        uid, end = self.unique.get(digest, ("", -1))
        living = uid in self.tasks and self.tasks[uid].state in LIVE
        return uid if end > now or (end == 0 and living) else None

    def _room(self, capacity: int) -> int:
        return capacity - len(self._in(QUEUED, SCHEDULED)) if capacity else 10**9

    def _enqueue(self, now: int, uid: str, options: str) -> None:
        entry = self.tasks[uid]
        priority, when, unique = options.split() if options else ("0", "-", "-")
        entry.header = None
        due = 0
        if when != "-":
            due = int(when[1:]) + (now if when[0] == "+" else 0)
        at = self._next_place(int(priority))
        entry.state, entry.score = (SCHEDULED, due) if due > now else (QUEUED, at)
        if unique != "-":
            mode, _, window, digest = unique.split(":")
            end = now + int(window) if mode == "w" else 0
            self.unique[digest] = (uid, end)
            if end:
                self.windows[digest] = end
            unique = f"{mode}:{digest}"
        if int(priority) or unique != "-" or 0 < due <= now:
            entry.header = Header(int(priority), due=due, unique=unique)

    def submit(self, now: int, batch: list[Task], capacity: int, cancel: bytes) -> list[Any]:
        verdicts, holders, replaced, first_due = "", [], [], self._next_due()
        room, queued, earliest = self._room(capacity), False, None
        for one in batch:
            known = self.tasks.get(one.uid)
            parts = one.options.split()[2].split(":") if one.options else ["-"]
            holder = self._lock_of(now, parts[3]) if len(parts) == 4 else None
            held = self.tasks.get(holder or "")
            if holder == one.uid:
                holder = None
            if known:
                verdicts += "a" if known.envelope == one.envelope else "d"
            elif holder and not (parts[1] == "p" and held and held.state in UNSTARTED):
                verdicts += "u"
                holders.append(holder)
            elif not holder and room <= 0:
                verdicts += "f"
            else:
                verdicts += "s"
                entry = Entry(one.uid, one.envelope, one.envelope + stamp(now), QUEUED)
                self.tasks[one.uid] = entry
                self._enqueue(now, one.uid, one.options)
                if entry.state == QUEUED:
                    queued = True
                else:
                    earliest = min(earliest or entry.score, entry.score)
                if holder:
                    replaced.append(holder)
                else:
                    room -= 1
        if queued or (earliest and (first_due == -1 or earliest < first_due)):
            self._wake()
        for uid in replaced:
            self._end(now, uid, "c", cancel)
        return [verdicts, holders] if holders else [verdicts]

    def claim(
        self, now: int, owner: str, number: int, want: int, starting: int, lease: int
    ) -> tuple[int, list[str], list[tuple[str, int, bytes, str]]]:
        token, known = f"{owner}:{number}", self._lane(owner, "claim", number)
        if known is not None:
            return self._claimed([
                self.tasks[uid] for uid in known.split() if self._holds(uid, token)
            ])
        mine = self.owners[owner]
        if want == 0:
            mine.lanes["claim"] = f"{number} "
            return -1, [], []
        if "paused" in self.meta:
            return -1, [], []
        self._promote(now, 500)
        allowed, next_group = 0, None
        if starting and self._in(SUSPECT):
            allowed, next_group = self._group_allowed(now, owner)
        group = min(allowed, starting, want)
        marked = group > 0
        source, limit = (SUSPECT, group) if marked else (QUEUED, want)
        taken = sorted(self._in(source), key=lambda one: one.score)[:limit]
        for n, one in enumerate(taken):
            one.state, one.token, one.expiry, one.marked = RUNNING, token, now + lease, marked
            one.started = now if n < starting else 0
            mine.held.add(one.uid)
            if n < starting:
                self._unlock(one, "s")
        if taken:
            mine.lanes["claim"] = f"{number} {' '.join(one.uid for one in taken)}"
            if marked:
                mine.group = now + 500, group, [one.uid for one in taken]
                if self._in(SUSPECT) and self.meta.get("wary", 0) < 2:
                    next_group = now + 500
            if self._in(QUEUED, SUSPECT):
                self._wake()
        return self._claimed(taken, now if taken and self._in(QUEUED) else next_group)

    def _claimed(
        self, taken: list[Entry], next_group: int | None = None
    ) -> tuple[int, list[str], list[tuple[str, int, bytes, str]]]:
        times = [at for at in (self._next_due(), next_group or -1) if at != -1]
        return min(times, default=-1), [one.uid for one in taken if one.uid in self.cancels], [
            (one.uid, one.score, one.journal, one.header.text() if one.header else "")
            for one in taken
        ]

    def finish(
        self, now: int, owner: str, number: int, ended: list[tuple[str, str, str, bytes]],
        started: list[tuple[str, str]],
    ) -> str:
        known = self._lane(owner, "finish", number)
        if known is not None:
            return known
        mine, verdicts = self.owners[owner], ""
        for uid, token, kind, text in ended:
            kept = self._holds(uid, token)
            verdicts += "k" if kept else "l"
            if not kept:
                self._forgive([(uid, token)])
            else:
                mine.held.discard(uid)
                self._end(now, uid, kind, text)
        for uid, token in started:
            if self._holds(uid, token):
                self.tasks[uid].started = now
                self._unlock(self.tasks[uid], "s")
        self._suspect_left(mine, [uid for uid, *_ in ended])
        mine.lanes["finish"] = f"{number} {verdicts}"
        return verdicts

    def put_off(
        self, now: int, owner: str, number: int, batch: list[tuple[str, str, int]],
        text: bytes | None,
    ) -> str:
        """retry (with the attempt's entry) and defer (None)."""
        known = self._lane(owner, "finish", number)
        if known is not None:
            return known
        mine, verdicts, first_due, dues = self.owners[owner], "", self._next_due(), []
        for uid, token, delay in batch:
            if not self._holds(uid, token):
                verdicts += "l"
                if text is not None:
                    self._forgive([(uid, token)])
            elif uid in self.cancels:
                verdicts += "c"
            else:
                verdicts += "k"
                entry = self.tasks[uid]
                header = entry.touch()
                header.priority = priority_of(entry.score)
                entry.state, entry.score = SCHEDULED, now + delay
                mine.held.discard(uid)
                dues.append(entry.score)
                if text is None:
                    header.since = header.since or now
                else:
                    header.attempts, header.due, header.since = header.attempts + 1, now + delay, 0
                    entry.journal += text + stamp(now)
                    self.progress_of.pop(uid, None)
                    self._count("failed")
        if dues and (first_due == -1 or min(dues) < first_due):
            self._wake()
        self._suspect_left(mine, [uid for uid, *_ in batch])
        mine.lanes["finish"] = f"{number} {verdicts}"
        return verdicts

    def renew(
        self, now: int, owner: str, pairs: list[tuple[str, str]], lease: int
    ) -> tuple[list[str], list[str]]:
        lost = []
        for uid, token in pairs:
            if self._holds(uid, token):
                self.tasks[uid].expiry = now + lease
            else:
                lost.append(uid)
                self._forgive([(uid, token)])
                entry = self.tasks.get(uid)
                if entry is None or entry.owner() != owner:
                    self.owners[owner].held.discard(uid)
        return lost, [uid for uid, _ in pairs if uid in self.cancels]

    def release(self, owner: str, pairs: list[tuple[str, str]]) -> list[str]:
        given = [uid for uid, token in pairs if self._holds(uid, token)]
        for uid in given:
            self._give_back(self.tasks[uid])
            self.owners[owner].held.discard(uid)
        if given:
            self._wake()
        return given

    def _judge(
        self, now: int, dead: list[Entry], culprit: str, limit: int, judging: bool,
        loss: bool = False, presumed: bool = False,
    ) -> tuple[list[str], list[str], list[str]]:
        back, charged, buried = [], [], []
        nameless = judging and not culprit
        ran_suspects = [one.owner() for one in dead if one.marked and one.started > 0]
        if nameless and dead:
            if len(set(ran_suspects)) < len(ran_suspects):
                self.meta["wary"] = min(2, self.meta.get("wary", 0) + 1)
            elif not ran_suspects and not self._in(SUSPECT):
                self.meta.pop("wary", None)
        for one in dead:
            ran = nameless and one.started > 0
            alone = ran_suspects.count(one.owner()) == 1
            if one.uid == culprit or (ran and one.marked and alone):
                header = one.touch()
                header.priority = priority_of(one.score)
                header.crashes += not loss
                header.losses += loss
                if not loss:
                    self._count("crashed")
                if presumed:
                    header.blamed = one.token
                if (header.losses if loss else header.crashes) >= limit:
                    buried.append(one.uid)
                    self._end(now, one.uid, "d", KILLED)
                    self.deaths[one.uid] = now
                    continue
                charged.append(one.uid)
                one.journal += CRASH + stamp(now)
                self._give_back(one)
            else:
                self._give_back(one, suspected=ran)
            back.append(one.uid)
        if back:
            self._wake()
        return back, charged, buried

    def release_owner(
        self, now: int, owner: str, culprit: str, limit: int, judging: bool, loss: bool
    ) -> tuple[list[str], list[str], list[str]]:
        mine = self.owners.setdefault(owner, Owner())
        dead = [
            self.tasks[uid] for uid in mine.held
            if uid in self.tasks and self.tasks[uid].owner() == owner
        ]
        mine.held.clear()
        mine.lanes["gone"] = "1"
        return self._judge(now, dead, culprit, limit, judging, loss)

    def recover(
        self, now: int, lease: int, gap: int, limit: int
    ) -> tuple[list[str], list[str], list[str]]:
        swept, after = self.meta.get("swept"), self.meta.get("recover_after", 0)
        if swept is None or now - swept > gap or now < swept:
            after = self.meta["recover_after"] = now + lease
        self.meta["swept"] = now
        if now < after <= now + lease:
            return [], [], []
        expired = [one for one in self._in(RUNNING) if one.expiry <= now]
        return self._judge(now, expired, "", limit, judging=True, presumed=True)

    def promote(self, now: int, limit: int) -> list[int]:
        moved = self._promote(now, limit)
        if moved or self._in(SUSPECT):
            self._wake()
        return [moved, self._next_due()]

    def cancel(self, now: int, uid: str, text: bytes) -> str:
        entry = self.tasks.get(uid)
        if entry is None:
            return "unknown"
        if entry.state == RUNNING:
            self.cancels.add(uid)
            return "running"
        if entry.state not in UNSTARTED:
            return "ended"
        was = "scheduled" if entry.state == SCHEDULED else "queued"
        self._end(now, uid, "c", text)
        return was

    def resubmit(
        self, now: int, batch: list[tuple[str, str, bytes]], capacity: int
    ) -> list[Any]:
        verdicts, holders, first_due = "", [], self._next_due()
        room, queued, earliest = self._room(capacity), False, None
        for uid, options, text in batch:
            entry = self.tasks.get(uid)
            parts = options.split()[2].split(":") if options else ["-"]
            holder = self._lock_of(now, parts[3]) if len(parts) == 4 else None
            if entry is None:
                verdicts += "n"
            elif entry.state in LIVE:
                verdicts += "a"
            elif holder and holder != uid:
                verdicts += "u"
                holders.append(holder)
            elif room <= 0:
                verdicts += "f"
            else:
                verdicts += "s"
                room -= 1
                entry.journal += text + stamp(now)
                self._enqueue(now, uid, options)
                queued = queued or entry.state == QUEUED
                if entry.state == SCHEDULED:
                    earliest = min(earliest or entry.score, entry.score)
        if queued or (earliest and (first_due == -1 or earliest < first_due)):
            self._wake()
        return [verdicts, holders] if holders else [verdicts]

    def purge(self, which: str, uids: list[str]) -> int:
        states = UNSTARTED if which == "unstarted" else (DONE, DEAD)
        gone = [uid for uid in uids if uid in self.tasks and self.tasks[uid].state in states]
        for uid in gone:
            if which == "unstarted":
                self._forget(self.tasks[uid], "dsw")
            del self.tasks[uid]
        return len(gone)

    def progress(self, reports: list[tuple[str, str, bytes]]) -> str:
        verdicts = ""
        for uid, token, text in reports:
            kept = self._holds(uid, token)
            verdicts += "k" if kept else "l"
            if not kept:
                self._forgive([(uid, token)])
            else:
                self.progress_of[uid] = text.decode()
        return verdicts

    def watch(self, uid: str, channel: str) -> Any:
        entry = self.tasks.get(uid)
        if entry is None:
            return None
        if entry.state in (DONE, DEAD):
            return entry.journal
        channels = self.watched.setdefault(uid, [])
        if channel not in channels:
            channels.append(channel)
        return 1

    def unwatch(self, uid: str, channel: str) -> None:
        left = [one for one in self.watched.pop(uid, []) if one != channel]
        if left:
            self.watched[uid] = left

    def trim(self, now: int, age: int) -> int:
        old = [one for one in self._in(DONE, DEAD) if one.score <= now - age]
        for one in old:
            del self.tasks[one.uid]
        for digest, end in [*self.windows.items()]:
            if end <= now:
                del self.windows[digest]
        for digest, (_, end) in [*self.unique.items()]:
            if 0 < end <= now:
                del self.unique[digest]
        return len(old)

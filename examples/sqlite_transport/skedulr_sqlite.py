"""A transport of your own: the tasks of a pool in an SQLite file, for the processes of one machine.

    pip install ./examples/sqlite_transport
    skedulr-master --pools local=4:sqlite myapp.tasks

A file a pool, in the folder that ``TASKS_FOLDER`` names (it must be known to producers and
masters alike), by default ``.tasks`` here. Each method of ``Storage`` is one transaction;
whoever waits for work looks fifty times a second. It has priorities, delays, retries and unique
keys, and neither limits nor workflows. It is written to be read: a pool on Redis is many times as
fast, and serves many machines.

A step opens the file anew, so that threads, greenlets and forks share no connection. While it waits
for the file, everything in its process waits: SQLite knows nothing of greenlets.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from skedulr.keys import PoolKeys
from skedulr.storage import (
    ALREADY,
    BATCH,
    CANCEL_MEANWHILE,
    DUPLICATE,
    FULL,
    KEPT,
    LOST,
    PRIORITY,
    STORED,
    TAKEN,
    UNKNOWN,
    Claims,
    Deferral,
    Ending,
    Failure,
    Flags,
    Judgement,
    Lane,
    Records,
    Returned,
    Standing,
    Submission,
    Suspension,
    Trimmed,
)
from skedulr.wire import Gone, NotAnswered

#: Between two looks for work, seconds.
LOOK_S = 0.02
#: How long a step waits for others to be done with the file, seconds.
BUSY_S = 5.0
#: Records younger than this stay: a submit that is repeated must find them.
YOUNG_MS = 60_000
#: A death that was taken to be told of comes again after this long.
UNTOLD_MS = 30_000

TABLES = """
CREATE TABLE IF NOT EXISTS tasks (
  uid TEXT PRIMARY KEY, state TEXT, body BLOB, priority INT, place INT, since INT,
  due INT DEFAULT 0, mode TEXT DEFAULT '', digest TEXT DEFAULT '',
  attempts INT DEFAULT 0, crashes INT DEFAULT 0, losses INT DEFAULT 0, suspect INT DEFAULT 0,
  owner TEXT, token BLOB, started INT, expiry INT, cancelled INT DEFAULT 0, note BLOB, ended INT);
CREATE INDEX IF NOT EXISTS by_order ON tasks (state, priority DESC, place);
CREATE INDEX IF NOT EXISTS by_due ON tasks (state, due);
CREATE INDEX IF NOT EXISTS by_expiry ON tasks (state, expiry);
CREATE INDEX IF NOT EXISTS by_owner ON tasks (owner);
CREATE TABLE IF NOT EXISTS locks (digest TEXT PRIMARY KEY, uid TEXT, until INT);
CREATE TABLE IF NOT EXISTS lanes (owner TEXT, kind TEXT, number INT, answer BLOB,
  PRIMARY KEY (owner, kind));
CREATE TABLE IF NOT EXISTS deaths (uid TEXT PRIMARY KEY, at INT);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INT);
"""
#: What a task that is nobody's any more is set back to.
NOBODYS = "owner = NULL, token = NULL, started = 0, expiry = 0, note = NULL"


def open_storage(keys: PoolKeys) -> SqliteStorage:
    """What the entry point names: the storage of this pool."""
    folder = Path(os.environ.get("TASKS_FOLDER", ".tasks"))
    folder.mkdir(parents=True, exist_ok=True)
    return SqliteStorage(keys, folder / f"{keys.namespace}-{keys.pool}.sqlite")


class Placing(NamedTuple):
    """The options of a submission: ``"<priority> <when> <unique>[ more]"``, or ''."""

    priority: int = 0
    due_ms: int = 0
    mode: str = ""
    on_duplicate: str = ""
    window_ms: int = 0
    digest: str = ""
    #: Limits, or what it waits for: not to be had here.
    more: bool = False

    @classmethod
    def read(cls, text: str, now_ms: int) -> Placing:
        if not text:
            return cls()
        priority, when, unique, *more = text.split(" ")
        due_ms = 0 if when == "-" else int(when[1:]) + (now_ms if when[0] == "+" else 0)
        if unique == "-":
            return cls(int(priority), due_ms, more=bool(more))
        mode, on_duplicate, window, digest = unique.split(":")
        return cls(int(priority), due_ms, mode, on_duplicate, int(window), digest, bool(more))


class SqliteStorage:
    """One pool's tasks; ``skedulr.storage.Storage`` says what each method promises. ``now_ms`` is
    the clock by which leases end and tasks are due; the wires that callers bring are not used."""

    def __init__(
        self, keys: PoolKeys, file: Path,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.keys, self.flags = keys, Flags()
        self.on_told: Callable[[], None] = _nobody
        self._file, self._now_ms = file, now_ms
        with self._step() as db:
            for table in filter(str.strip, TABLES.split(";")):
                db.execute(table)

    @contextmanager
    def _step(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing."""
        try:
            db = sqlite3.connect(self._file, timeout=BUSY_S, isolation_level=None)
            try:
                db.row_factory = sqlite3.Row
                db.execute("PRAGMA journal_mode = WAL")
                # A machine that loses its power may lose the last steps, as with `everysec`.
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            finally:
                db.close()  # without a commit, nothing has happened
        except sqlite3.OperationalError as error:
            # As a Redis that is away: callers ride it out. Whether the commit came to pass is open.
            raise NotAnswered(f"{self._file}: {error}", sent=True) from error

    def _numbered(
        self, lane: Lane, kind: str, act: Callable[[sqlite3.Connection, int], Any]
    ) -> Any:
        """A step whose number, repeated, gets the first answer again."""
        def turn(number: int) -> Any:
            with self._step() as db:
                last = db.execute(
                    "SELECT number, answer FROM lanes WHERE owner = ? AND kind = ?",
                    (lane.owner, kind),
                ).fetchone()
                if last is not None and last["number"] == number:
                    return msgpack.unpackb(last["answer"])
                answer = act(db, number)
                db.execute("REPLACE INTO lanes VALUES (?, ?, ?, ?)",
                           (lane.owner, kind, number, msgpack.packb(answer)))
                return answer

        return lane.turn(turn)

    # For producers

    def submit(
        self, wire: Any, batch: Sequence[Submission], capacity: int = 0, replaced: bytes = b"",
    ) -> tuple[str, list[str]]:
        verdicts, holders, now = "", [], self._now_ms()
        with self._step() as db:
            for one in batch:
                placing = Placing.read(one.options, now)
                known, holder = _task(db, one.uid), _holder(db, placing.digest, now)
                in_turn = holder is not None and _replaceable(db, holder, placing)
                if known is not None:
                    verdict = ALREADY if known["body"].startswith(one.envelope) else DUPLICATE
                elif placing.more or one.waits is not None:
                    verdict = PRIORITY
                elif holder is not None and not in_turn:
                    verdict = TAKEN
                    holders.append(holder)
                elif capacity and not in_turn and _waiting(db) >= capacity:
                    verdict = FULL
                else:
                    verdict = STORED
                    if holder is not None:
                        _end(db, holder, "done", replaced, now)
                    db.execute("INSERT INTO tasks (uid, body) VALUES (?, ?)",
                               (one.uid, one.envelope + _stamp(now)))
                    _enqueue(db, one.uid, placing, now)
                verdicts += verdict
        return verdicts, holders

    def resubmit(
        self, wire: Any, batch: Iterable[tuple[str, str, bytes]], capacity: int = 0,
        ended_by_ms: int = 0,
    ) -> str:
        verdicts, now = "", self._now_ms()
        with self._step() as db:
            for uid, options, entry in batch:
                placing, known = Placing.read(options, now), _task(db, uid)
                holder = _holder(db, placing.digest, now)
                if known is None:
                    verdict = UNKNOWN
                elif not known["ended"] or (ended_by_ms and known["ended"] > ended_by_ms):
                    verdict = ALREADY
                elif holder not in (None, uid):
                    verdict = TAKEN
                elif capacity and _waiting(db) >= capacity:
                    verdict = FULL
                else:
                    verdict = STORED
                    _note(db, uid, entry, now)
                    db.execute(
                        "UPDATE tasks SET attempts = 0, crashes = 0, losses = 0, suspect = 0, "
                        "cancelled = 0, ended = NULL WHERE uid = ?", (uid,),
                    )
                    _enqueue(db, uid, placing, now)
                verdicts += verdict
        return verdicts

    def cancel(self, wire: Any, uid: str, entry: bytes, channel: str) -> str:
        with self._step() as db:
            known = _task(db, uid)
            if known is None:
                return "unknown"
            if known["ended"]:
                return "ended"
            if known["token"] is not None:
                db.execute("UPDATE tasks SET cancelled = 1 WHERE uid = ?", (uid,))
                return "running"
            _end(db, uid, "done", entry, self._now_ms())
            return "scheduled" if known["state"] == "delayed" else "queued"

    def purge(self, wire: Any, uids: Sequence[bytes | str], *, ended: bool) -> int:
        there = "ended IS NOT NULL" if ended else "ended IS NULL AND token IS NULL"
        with self._step() as db:
            return sum(
                db.execute(f"DELETE FROM tasks WHERE uid = ? AND {there}", (_text(uid),)).rowcount
                for uid in uids
            )

    def pause(self, wire: Any, paused: bool) -> bool:
        with self._step() as db:
            changed = bool(_fact(db, "paused")) is not paused
            _set_fact(db, "paused", int(paused))
            return changed

    def watch(self, wire: Any, uid: str, channel: str) -> bytes | bool:
        with self._step() as db:
            known = _task(db, uid)
        # Nobody is told: who waits for a result looks again every few seconds.
        return False if known is None else known["body"] if known["ended"] else True

    def unwatch(self, wire: Any, uid: str, channel: str) -> None:
        """Nothing was kept of it."""

    # For workers

    def claim(
        self, lane: Lane, want: int, starting: int, lease_ms: int, aging_ms: int = 0,
        sleep_s: float = 0.0,
    ) -> Claims:
        def act(db: sqlite3.Connection, number: int) -> Any:
            if _fact(db, f"gone {lane.owner}"):
                raise Gone(f"GONE this owner, {lane.owner}")
            now, token = self._now_ms(), f"{lane.owner}:{number}".encode()
            _promote(db, now, BATCH)
            rows: list[bytes] = []
            old = now - aging_ms if aging_ms else 0
            for n, one in enumerate(_choose(db, lane.owner, want, old)):
                started = now if n < starting else 0
                db.execute(
                    "UPDATE tasks SET state = 'claimed', owner = ?, token = ?, started = ?, "
                    "expiry = ? WHERE uid = ?",
                    (lane.owner, token, started, now + lease_ms, one["uid"]),
                )
                if started:
                    _unlock_started(db, one["uid"])
                rows += one["uid"].encode(), b"%d" % one["place"], one["body"], _header(one)
            more = bool(rows) and _is_ready(db, now)
            return [now, now if more else _next_due(db), rows, token]

        self._sleep(sleep_s)
        now_ms, next_due_ms, rows, token = self._numbered(lane, "claim", act)
        return Claims(now_ms, next_due_ms, [], rows, token)

    def _sleep(self, seconds: float) -> None:
        """Until something is ready, at most so long. Everybody looks for himself."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self._step() as db:
                if _is_ready(db, self._now_ms()):
                    return
            time.sleep(LOOK_S)

    def finish(
        self, lane: Lane, endings: Sequence[Ending], started: Iterable[tuple[bytes, bytes]] = ()
    ) -> str:
        begun = list(started)

        def act(db: sqlite3.Connection, number: int) -> str:
            now, verdicts = self._now_ms(), ""
            for uid, token in begun:
                if _held(db, uid, token) is not None:
                    db.execute("UPDATE tasks SET started = ? WHERE uid = ?", (now, _text(uid)))
                    _unlock_started(db, _text(uid))
            for one in endings:
                if _held(db, one.uid, one.token) is None:
                    verdicts += LOST
                    continue
                _end(db, _text(one.uid), "dead" if one.kind[0] == "d" else "done", one.entry, now)
                verdicts += KEPT
            return verdicts

        return str(self._numbered(lane, "finish", act))

    def retry(self, lane: Lane, failures: Sequence[Failure]) -> str:
        def again(db: sqlite3.Connection, one: Failure, now: int) -> None:
            _note(db, _text(one.uid), one.entry, now)
            db.execute("UPDATE tasks SET attempts = attempts + 1, suspect = 0 WHERE uid = ?",
                       (_text(one.uid),))
            _delay(db, one.uid, now + one.delay_ms)

        return self._each(lane, failures, again)

    def defer(self, lane: Lane, batch: Iterable[Deferral]) -> str:
        return self._each(lane, list(batch), lambda db, one, now: _delay(
            db, one.uid, now + one.delay_ms
        ))

    def moved(self, lane: Lane, batch: Iterable[tuple[bytes, bytes, bytes]]) -> str:
        gone = [Ending(uid, token, "s", entry) for uid, token, entry in batch]
        return self._each(lane, gone, lambda db, one, now: _end(
            db, _text(one.uid), "done", one.entry, now
        ))

    def _each(
        self, lane: Lane, batch: Sequence[Any], act: Callable[[sqlite3.Connection, Any, int], None]
    ) -> str:
        """Do this with claimed tasks that are not to be cancelled."""
        def step(db: sqlite3.Connection, number: int) -> str:
            now, verdicts = self._now_ms(), ""
            for one in batch:
                known = _held(db, one.uid, one.token)
                if known is None:
                    verdicts += LOST
                elif known["cancelled"]:
                    verdicts += CANCEL_MEANWHILE
                else:
                    act(db, one, now)
                    verdicts += KEPT
            return verdicts

        return str(self._numbered(lane, "finish", step))

    def suspend(self, lane: Lane, batch: Iterable[Suspension]) -> str:
        raise NotImplementedError("there are no workflows here, so nothing waits for others")

    def progress(self, wire: Any, batch: Iterable[tuple[bytes, bytes, bytes]]) -> str:
        verdicts = ""
        with self._step() as db:
            for uid, token, what in batch:
                held = _held(db, uid, token) is not None
                if held:
                    db.execute("UPDATE tasks SET note = ? WHERE uid = ?", (what, _text(uid)))
                verdicts += KEPT if held else LOST
        return verdicts

    def renew(
        self, wire: Any, owner: str, held: Iterable[tuple[bytes, bytes]], lease_ms: int
    ) -> tuple[int, list[bytes], list[bytes]]:
        now, lost, cancelled = self._now_ms(), [], []
        with self._step() as db:
            for uid, token in held:
                known = _held(db, uid, token)
                if known is None:
                    lost.append(uid)
                    continue
                db.execute("UPDATE tasks SET expiry = ? WHERE uid = ?",
                           (now + lease_ms, _text(uid)))
                if known["cancelled"]:
                    cancelled.append(uid)
        return now, lost, cancelled

    def release(self, wire: Any, owner: str, held: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
        with self._step() as db:
            mine = [uid for uid, token in held if _held(db, uid, token) is not None]
            for uid in mine:
                _give_back(db, _text(uid))
        return mine

    def promote(self, wire: Any, limit: int = BATCH) -> tuple[int, int, int | None]:
        now = self._now_ms()
        with self._step() as db:
            return now, _promote(db, now, limit), _next_due(db)

    # For whoever looks after the workers

    def recover(
        self, wire: Any, lease_ms: int, gap_ms: int, judgement: Judgement, limit: int = BATCH
    ) -> Returned:
        now = self._now_ms()
        with self._step() as db:
            swept, after = _fact(db, "swept"), _fact(db, "recover_after") or 0
            if swept is None or not 0 <= now - swept <= gap_ms:
                # Nobody swept, so nobody could renew either: those who live get time to.
                after = now + lease_ms
                _set_fact(db, "recover_after", after)
            _set_fact(db, "swept", now)
            if now < after <= now + lease_ms:
                return Returned([], [], [], False)
            over = db.execute("SELECT * FROM tasks WHERE state = 'claimed' AND expiry <= ? LIMIT ?",
                              (now, limit)).fetchall()
            return _judge(db, over, judgement, now, more=len(over) == limit)

    def release_owner(
        self, wire: Any, owner: str, judgement: Judgement | None = None
    ) -> Returned:
        nobody = Judgement(b"", 0, b"", b"", suspecting=False)
        with self._step() as db:
            _set_fact(db, f"gone {owner}", 1)
            theirs = db.execute("SELECT * FROM tasks WHERE owner = ? LIMIT ?",
                                (owner, BATCH)).fetchall()
            return _judge(db, theirs, judgement or nobody, self._now_ms(), len(theirs) == BATCH)

    def mourn(
        self, wire: Any, told: Sequence[tuple[bytes, bytes]], limit: int = 20
    ) -> tuple[bytes, list[tuple[bytes, bytes, bytes]]]:
        now = self._now_ms()
        found = []
        with self._step() as db:
            for uid, at in told:
                db.execute("DELETE FROM deaths WHERE uid = ? AND at = ?", (_text(uid), int(at)))
            untold = db.execute("SELECT uid FROM deaths WHERE at <= ? ORDER BY at LIMIT ?",
                                (now, limit)).fetchall()
            for one in untold:
                # Who takes it may die before its hooks are told: then it comes again.
                db.execute("UPDATE deaths SET at = ? WHERE uid = ?", (now + UNTOLD_MS, one["uid"]))
                known = _task(db, one["uid"])
                body, ended = (known["body"], known["ended"]) if known else (b"", None)
                found.append((one["uid"].encode(), *((body, b"") if ended else (b"", body))))
        return b"%d" % (now + UNTOLD_MS), found

    def note_death(self, wire: Any, uid: bytes) -> None:
        with self._step() as db:
            db.execute("REPLACE INTO deaths VALUES (?, 0)", (_text(uid),))

    def standing(self, wire: Any, uid: bytes) -> Standing | None:
        with self._step() as db:
            known = _task(db, uid)
        if known is None or known["token"] is None:
            return None
        return Standing(known["token"], known["started"], known["body"], known["attempts"])

    def held_by(self, wire: Any, owner: str) -> list[tuple[bytes, bytes]]:
        with self._step() as db:
            rows = db.execute("SELECT uid, token FROM tasks WHERE owner = ?", (owner,))
            return [(one["uid"].encode(), one["token"]) for one in rows]

    def last_number(self, wire: Any, owner: str, kind: str) -> int:
        with self._step() as db:
            last = db.execute("SELECT number FROM lanes WHERE owner = ? AND kind = ?",
                              (owner, kind)).fetchone()
        return last["number"] if last else 0

    def records(self, wire: Any) -> Records:
        with self._step() as db:
            done, dead, mean = db.execute(
                "SELECT COALESCE(SUM(state = 'done'), 0), COALESCE(SUM(state = 'dead'), 0), "
                "COALESCE(AVG(LENGTH(body)), 0) FROM tasks WHERE ended IS NOT NULL"
            ).fetchone()
        return Records(done, dead, mean)

    def fold(self, wire: Any, pages: int = 20) -> int:
        return 0  # no statistics are kept

    def trim(
        self, wire: Any, age_ms: int, most_done: int, most_dead: int, limit: int = BATCH,
        passed: tuple[int, int] = (0, 0), loose: Sequence[bytes] = (),
    ) -> Trimmed:
        now, forgotten = self._now_ms(), 0
        with self._step() as db:
            for state, most in (("done", most_done), ("dead", most_dead)):
                [count] = db.execute("SELECT COUNT(*) FROM tasks WHERE state = ?",
                                     (state,)).fetchone()
                old = db.execute(
                    "SELECT uid, ended FROM tasks WHERE state = ? AND ended < ? ORDER BY ended "
                    "LIMIT ?", (state, now - YOUNG_MS, limit),
                ).fetchall()
                for n, one in enumerate(old):
                    if count - n > most or one["ended"] < now - age_ms:
                        db.execute("DELETE FROM tasks WHERE uid = ?", (one["uid"],))
                        forgotten += 1
        return Trimmed(forgotten, [], [])


# One task, inside of a step


def _task(db: sqlite3.Connection, uid: str | bytes) -> Any:
    return db.execute("SELECT * FROM tasks WHERE uid = ?", (_text(uid),)).fetchone()


def _held(db: sqlite3.Connection, uid: bytes, token: bytes) -> Any:
    """A claimed task, if the claim is the one of this token."""
    return db.execute("SELECT * FROM tasks WHERE uid = ? AND token = ?",
                      (_text(uid), token)).fetchone()


def _enqueue(db: sqlite3.Connection, uid: str, placing: Placing, now: int) -> None:
    """Ready, or delayed; and its unique key is its own."""
    state = "delayed" if placing.due_ms > now else "queued"
    db.execute(
        "UPDATE tasks SET state = ?, priority = ?, place = ?, since = ?, due = ?, mode = ?, "
        "digest = ? WHERE uid = ?",
        (state, placing.priority, _next_place(db), now, placing.due_ms, placing.mode,
         placing.digest, uid),
    )
    if placing.digest:
        until = now + placing.window_ms if placing.mode == "w" else 0
        db.execute("REPLACE INTO locks VALUES (?, ?, ?)", (placing.digest, uid, until))


def _promote(db: sqlite3.Connection, now: int, limit: int) -> int:
    """What is due is ready, behind what was ready before."""
    due = db.execute("SELECT uid FROM tasks WHERE state = 'delayed' AND due <= ? ORDER BY due "
                     "LIMIT ?", (now, limit)).fetchall()
    for one in due:
        db.execute("UPDATE tasks SET state = 'queued', place = ?, since = ? WHERE uid = ?",
                   (_next_place(db), now, one["uid"]))
    return len(due)


def _choose(db: sqlite3.Connection, owner: str, want: int, old: int) -> list[Any]:
    """What a claim takes: a suspect alone, while its owner runs no other one; else in order."""
    if want == 0 or _fact(db, "paused"):
        return []
    order = "ORDER BY since <= ? DESC, priority DESC, place LIMIT ?"
    alone = not db.execute("SELECT 1 FROM tasks WHERE owner = ? AND suspect", (owner,)).fetchone()
    queued = "SELECT * FROM tasks WHERE state = 'queued' AND"
    suspects = db.execute(f"{queued} suspect {order}", (old, 1)).fetchall() if alone else []
    most = min(want, BATCH)
    return suspects or db.execute(f"{queued} NOT suspect {order}", (old, most)).fetchall()


def _delay(db: sqlite3.Connection, uid: bytes, due: int) -> None:
    db.execute(f"UPDATE tasks SET state = 'delayed', due = ?, {NOBODYS} WHERE uid = ?",
               (due, _text(uid)))


def _give_back(db: sqlite3.Connection, uid: str) -> None:
    """Ready again, where it stood."""
    db.execute(f"UPDATE tasks SET state = 'queued', {NOBODYS} WHERE uid = ?", (uid,))


def _note(db: sqlite3.Connection, uid: str, entry: bytes, now: int) -> None:
    """A line of its journal, and when that was."""
    # Put together here: what `||` makes of bytes is text.
    body = _task(db, uid)["body"] + entry + _stamp(now)
    db.execute("UPDATE tasks SET body = ? WHERE uid = ?", (body, uid))


def _end(db: sqlite3.Connection, uid: str, state: str, entry: bytes, now: int) -> None:
    """It is over: what is left of it is its record."""
    _note(db, uid, entry, now)
    db.execute(f"UPDATE tasks SET state = ?, ended = ?, cancelled = 0, suspect = 0, {NOBODYS} "
               "WHERE uid = ?", (state, now, uid))


def _judge(
    db: sqlite3.Connection, theirs: Sequence[Any], judgement: Judgement, now: int, more: bool
) -> Returned:
    """Give back what dead owners held. The culprit is charged; where there is none, what ran is
    suspect, and a suspect that was the only one its owner ran is charged."""
    back, charged, dead = [], [], []
    nameless = judgement.suspecting and not judgement.culprit
    ran = [one["owner"] for one in theirs if one["suspect"] and one["started"]]
    for one in theirs:
        uid, suspect = one["uid"].encode(), nameless and one["started"]
        guilty = suspect and one["suspect"] and ran.count(one["owner"]) == 1
        if judgement.limit and (uid == judgement.culprit or guilty):
            count = "losses" if judgement.loss else "crashes"
            if one[count] + 1 >= judgement.limit:
                _end(db, one["uid"], "dead", judgement.death, now)
                db.execute("REPLACE INTO deaths VALUES (?, ?)", (one["uid"], now))
                dead.append(uid)
                continue
            _note(db, one["uid"], judgement.back, now)
            db.execute(f"UPDATE tasks SET {count} = {count} + 1, suspect = 0 WHERE uid = ?",
                       (one["uid"],))
            charged.append(uid)
        elif suspect:
            db.execute("UPDATE tasks SET suspect = 1 WHERE uid = ?", (one["uid"],))
        _give_back(db, one["uid"])
        back.append(uid)
    return Returned(back, charged, dead, more, bool(dead))


def _header(one: Any) -> bytes:
    """What a worker is told of a task that is not plain (see header.lua)."""
    counts = one["priority"], one["attempts"], one["crashes"], one["due"]
    return b"" if counts == (0, 0, 0, 0) else b"%d %d %d %d -" % counts


# Unique keys


def _holder(db: sqlite3.Connection, digest: str, now: int) -> str | None:
    """Who holds a key: for a window, or until its task has ended (or started)."""
    lock = db.execute("SELECT * FROM locks WHERE digest = ?", (digest,)).fetchone()
    if lock is None:
        return None
    known = _task(db, lock["uid"])
    living = known is not None and not known["ended"]
    return lock["uid"] if lock["until"] > now or (living and not lock["until"]) else None


def _replaceable(db: sqlite3.Connection, holder: str, placing: Placing) -> bool:
    known = _task(db, holder)
    return placing.on_duplicate == "p" and known is not None and (
        known["state"] in ("queued", "delayed")
    )


def _unlock_started(db: sqlite3.Connection, uid: str) -> None:
    db.execute("DELETE FROM locks WHERE uid = ? AND digest = "
               "(SELECT digest FROM tasks WHERE uid = ? AND mode = 's')", (uid, uid))


# The pool


def _waiting(db: sqlite3.Connection) -> int:
    ready_or_delayed = "SELECT COUNT(*) FROM tasks WHERE state IN ('queued', 'delayed')"
    return int(db.execute(ready_or_delayed).fetchone()[0])


def _is_ready(db: sqlite3.Connection, now: int) -> bool:
    """Whether there is something to take."""
    return not _fact(db, "paused") and bool(db.execute(
        "SELECT 1 FROM tasks WHERE state = 'queued' OR state = 'delayed' AND due <= ? LIMIT 1",
        (now,),
    ).fetchone())


def _next_due(db: sqlite3.Connection) -> int | None:
    [due] = db.execute("SELECT MIN(due) FROM tasks WHERE state = 'delayed'").fetchone()
    return due


def _next_place(db: sqlite3.Connection) -> int:
    place = (_fact(db, "sequence") or 0) + 1
    _set_fact(db, "sequence", place)
    return place


def _fact(db: sqlite3.Connection, name: str) -> int | None:
    found = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return int(found["value"]) if found else None


def _set_fact(db: sqlite3.Connection, name: str, value: int) -> None:
    db.execute("REPLACE INTO facts VALUES (?, ?)", (name, value))


def _stamp(ms: int) -> bytes:
    """What follows each part of a journal: a msgpack uint64."""
    return b"\xcf" + ms.to_bytes(8, "big")


def _text(uid: str | bytes) -> str:
    return uid if isinstance(uid, str) else uid.decode()


def _nobody() -> None:
    """Until someone listens."""

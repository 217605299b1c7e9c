"""The mourner: tells the app's ``dead`` hooks of tasks that no run of theirs could tell of.

Where a handler fails for good, its process calls the hooks. But a task may also die with its
process (the master, or the sweep of another child, finds out), by the master's hand because it
hung, by a doctor's, who found a body that nobody can read, or because it could not go to the pool
where it belongs; and only children have the code in which hooks are. So such a death is noted in
Redis, by the script that brings it about (``note_deaths.lua``) or just before, and some child of
the pool tells.

Each is told at least once: a note goes only after the hooks have returned. A child that dies, or is
stopped, between the two has another one tell again after a while. A child whose app has no such
hooks lets the notes go: all of a pool's children run the same app, but for the length of a deploy.
"""

from __future__ import annotations

import logging

import gevent
from gevent.event import Event

from .. import message
from ..app import Skedulr
from ..codecs import Codec
from ..context import Context
from ..errors import PayloadError, TaskFailed
from ..message import DEAD, FAILED, RESUBMITTED, Journal
from ..storage import Storage
from ..tasks import MAX_RETRIES
from ..wire import Wire, WireError

log = logging.getLogger("skedulr.pool")


class Mourner:
    """Tells for one child, on a greenlet of its own: a hook may take its time."""

    def __init__(
        self, *, store: Storage, wire: Wire, app: Skedulr, codec: Codec | None = None
    ) -> None:
        self._store, self._wire, self._app, self._codec = store, wire, app, codec
        self._work = Event()
        self._greenlet: gevent.Greenlet | None = None

    def start(self) -> None:
        """Tell from now on, when somebody says that there is something to tell."""
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """No more. What was not told is told elsewhere. Safe twice."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None

    def wake(self) -> None:
        """A task of this pool has died without a word."""
        self._work.set()

    def run_once(self) -> int:
        """Tell of all that is noted; how many tasks."""
        count, told = 0, list[tuple[bytes, bytes]]()
        while True:
            score, deaths = self._store.mourn(self._wire, told)
            if not deaths:
                return count
            told = []
            for uid, record, living in deaths:
                if self._tell(uid, record or living):
                    count += 1
                elif living and not record:
                    continue  # it is about to end, and comes again
                told.append((uid, score))

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            try:
                self.run_once()
            except WireError as error:
                # What was taken comes again, and the next sweep says so.
                log.debug("can not tell of the dead: %s", error)
            except Exception:
                log.exception("dead tasks could not be told of; they are looked at again")

    def _tell(self, uid: bytes, body: bytes) -> bool:
        """Call the hooks; False where this task has not died, or nothing is known of it."""
        if not body or not self._app.hooks.has("dead"):
            return bool(body)
        try:
            journal = message.read_journal(body)
        except PayloadError as error:
            log.warning("task %s/%s is dead, and no hook can be told what it was: %s",
                        self._store.keys.pool, uid.decode(), error)
            return True
        last = next((one for one in reversed(journal.entries) if one.kind == DEAD), None)
        if last is None:
            return False
        kind, text = ([*last.value, "", ""] if isinstance(last.value, list) else ["", ""])[:2]
        context = self._context(uid.decode(), body, journal)
        self._app.hooks.fire("dead", context, TaskFailed(context.id, "dead", kind, text))
        return True

    def _context(self, uid: str, body: bytes, journal: Journal) -> Context:
        """The last run as far as its record tells; without arguments where only a codec that this
        process has not could open them."""
        try:
            _, args, kwargs, extras = message.read_call(body, self._codec)
        except PayloadError:
            args, kwargs, extras = [], {}, journal.extras
        task = self._app.tasks.get(journal.name)
        most = MAX_RETRIES if task is None else task.option("max_retries", MAX_RETRIES)
        return Context(
            uid=uid, pool=self._store.keys.pool, name=journal.name, args=args, kwargs=kwargs,
            attempt=_attempt(journal), max_retries=extras.get("max_retries", most), token="",
            due_at=None, headers=extras.get("headers") or {},
            tick=extras["tick"] / 1000 if "tick" in extras else None,
        )


def _attempt(journal: Journal) -> int:
    """Which attempt was the last: those that failed since it was submitted, and one."""
    failed, last = 0, 1
    for one in journal.entries:
        if one.kind == RESUBMITTED:
            failed = 0
        elif one.kind == FAILED:
            failed += 1
        elif one.kind == DEAD:
            last = one.attempt or failed + 1
    return last

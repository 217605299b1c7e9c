"""``skedulr dead``: the dead-letter queues; resubmit or purge what is in them, in bulk.

Bulk work goes page by page and may be interrupted at any point: run again, it goes on with what is
left. Tasks that die while it runs are not touched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import DuplicateTask, QueueFull, SkedulrError, TaskNotFound
from ..lists import Selection
from ..queries import MOST_ITEMS
from ..store import FULL, STORED
from . import exits
from .asking import check_filters, list_tasks, next_page
from .pace import Pace
from .progress import Progress
from .session import Session
from .steering import store_of


def show(session: Session) -> int:
    """``skedulr dead list``."""
    session.given.state = "dead"
    return list_tasks(session)


def resubmit(session: Session) -> int:
    """``skedulr dead resubmit``."""
    pace = Pace(session.given.rate)

    def put_back(pool: str, uids: list[str]) -> int:
        return sum(_resubmit(session, pool, list(part)) for part in pace.parts(uids))

    return _bulk(session, "resubmitted", put_back)


def _resubmit(session: Session, pool: str, uids: list[str]) -> int:
    try:
        verdicts = session.client.resubmit_all(pool, uids)
    except (TaskNotFound, DuplicateTask):
        return 0  # the only one of its page: gone meanwhile, or its key is taken
    if FULL in verdicts:
        raise QueueFull(f"pool {pool!r} is full")
    return verdicts.count(STORED)


def purge(session: Session) -> int:
    """``skedulr dead purge``."""
    if not _is_sure(session):
        session.complain("nothing was removed")
        return exits.FAILURE

    def remove(pool: str, uids: list[str]) -> int:
        store = store_of(session, pool)
        return session.client.ask(lambda wire: store.purge(wire, uids, ended=True))

    return _bulk(session, "removed", remove)


def _is_sure(session: Session) -> bool:
    """Ask a person at a terminal; a script knows what it does."""
    given = session.given
    if given.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    filters = [f"{name} {getattr(given, name)}" for name in ("pool", "name", "query")
               if getattr(given, name)]
    which = " with " + ", ".join(filters) if filters else ", all of them,"
    print(f"Remove the dead tasks{which} for good? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _bulk(session: Session, done: str, act: Callable[[str, list[str]], int]) -> int:
    """``act(pool, uids)`` on each page of the dead that are meant; it tells how many it changed."""
    given = session.given
    selection = Selection("dead", given.pool, given.name, given.query)
    total = sum(
        pool["dead"] for pool in session.client.pools() if given.pool in (None, pool["name"])
    )
    found, cursor = 0, None
    with Progress(sys.stderr, total) as progress:
        try:
            while True:
                page = next_page(session, selection, MOST_ITEMS, cursor)
                found += len(page.items)
                for pool, uids in _by_pool(page.items).items():
                    progress.count += act(pool, uids)
                progress.read(page.looked_at)
                cursor = page.cursor
                if cursor is None:
                    break
        except SkedulrError as error:
            session.complain(f"{session.explain(error)}; {progress.count:,} tasks are {done}, "
                             "run it again for the rest")
            return exits.FAILURE
        except KeyboardInterrupt:
            session.complain(f"interrupted: {progress.count:,} tasks are {done}")
            raise
    if not found:
        check_filters(session)
    left = found - progress.count
    if session.output.json:
        session.output.document({done: progress.count, "left": left})
    else:
        why = f"; {left:,} could not be" if left else ""
        tasks = "1 task is" if progress.count == 1 else f"{progress.count:,} tasks are"
        session.output.line(f"{tasks} {done}{why}")
    return exits.OK


def _by_pool(tasks: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for task in tasks:
        grouped.setdefault(task["pool"], []).append(task["uid"])
    return grouped

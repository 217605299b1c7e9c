"""``skedulr doctor``: what is broken in Redis, and with ``--fix`` its repair, while all goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ..committer import unavailable
from ..doctor import MOST_FINDINGS, Doctor
from ..errors import UnknownPool, nearest
from ..findings import Finding
from ..wire import Wire, WireError
from . import exits
from .progress import Progress
from .session import Session

#: A mend may bring another fault to light: after so many examinations what is left stays.
MOST_TURNS = 3
#: Rows of the table; ``--json`` has all.
MOST_ROWS = 200


def doctor(session: Session) -> int:
    """The command: 0 if nothing is broken, or nothing any more."""
    wire = Wire(session.address.url, name="skedulr:doctor", timeout_s=30.0)
    try:
        practice = _Practice(session, wire)
        left, mended, turns = practice.examine(), list[Finding](), 0
        while session.given.fix and turns < MOST_TURNS:
            done = practice.mend(left)
            if not done:
                break
            mended += done
            # Where there was more than one examination shows, mending has to go on.
            turns += len(left) < MOST_FINDINGS
            # What counts is what is there now, not what the scripts have answered.
            left = practice.examine()
    except WireError as error:
        raise unavailable(error) from error
    finally:
        wire.close()
    _show(session, mended, left)
    return exits.FAILURE if left else exits.OK


class _Practice:
    """A doctor, with a line on stderr that shows how far it is."""

    def __init__(self, session: Session, wire: Wire) -> None:
        self._session, self._wire = session, wire

    def examine(self) -> list[Finding]:
        """What is broken, in the pool that was named or in all and what belongs to none."""
        given = self._session.given.pool
        with Progress(sys.stderr, what="keys") as progress:
            doctor = self._doctor(progress)
            pools = _chosen(doctor.pools(), given)
            total = sum(doctor.size(pool) for pool in pools)
        with Progress(sys.stderr, total, what="looked at") as progress:
            doctor.on_progress = _counts(progress)
            found = [one for pool in pools for one in doctor.examine(pool)]
            return found if given is not None else found + doctor.examine_namespace()

    def mend(self, found: Sequence[Finding]) -> list[Finding]:
        """What could be mended of that."""
        with Progress(sys.stderr, len(found), what="mended") as progress:
            return self._doctor(progress).mend(found)

    def _doctor(self, progress: Progress) -> Doctor:
        settings = self._session.settings
        return Doctor(
            self._wire, settings.namespace, lease_s=settings.lease, on_progress=_counts(progress)
        )


def _counts(progress: Progress) -> Callable[[int], None]:
    def count(more: int) -> None:
        progress.count += more
        progress.read(more)

    return count


def _chosen(known: Sequence[str], pool: str | None) -> Sequence[str]:
    if pool is None:
        return known
    if pool not in known:
        raise UnknownPool(f"there is no pool {pool!r}{nearest(pool, known)}")
    return [pool]


def _show(session: Session, mended: Sequence[Finding], left: Sequence[Finding]) -> None:
    out = session.output
    states = [(one, "mended") for one in mended]
    states += [(one, "broken" if one.fixable else "shown") for one in left]
    if out.json:
        out.document({"items": [{**one.view(), "mended": state == "mended"}
                                for one, state in states], "cursor": None})
        return
    if not states:
        out.line("nothing is broken", "ok")
        return
    out.table(
        ("POOL", "KIND", "ABOUT", "STATE", "WHAT"),
        [(one.pool, one.kind, one.uid, state, one.text) for one, state in states[:MOST_ROWS]],
        empty="", cut="WHAT",
    )
    if len(states) > MOST_ROWS:
        out.line(f"... and {len(states) - MOST_ROWS:,} more: --json gives all")
    out.line()
    out.line(_summary(mended, left, fixed=session.given.fix))


def _summary(mended: Sequence[Finding], left: Sequence[Finding], *, fixed: bool) -> str:
    fixable = sum(one.fixable for one in left)
    parts = []
    if mended:
        parts.append(f"{len(mended):,} mended")
    if fixable:
        parts.append(f"{fixable:,} broken" + ("" if fixed else " (--fix mends them)"))
    if len(left) > fixable:
        parts.append(f"{len(left) - fixable:,} shown that --fix leaves alone")
    return ", ".join(parts)

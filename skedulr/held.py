"""What ``waiting`` holds of a task that waits for others: read, judged, and made anew. Pure.

``"<round> <priority> <when> <unique>[ <limits>] <letters>"``, a letter a parent: S, A, F while that
is open, s, a, f, x once it is known. hold_back.lua and resolve.lua say what each stands for. Only
news of a parent frees a task, so one of these texts that can not be read, or that has nothing open,
would keep its task for ever.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from . import message
from .dependencies import Waits
from .spreading import AGAIN, round_of, waiting_text, waits_now

#: What resolve.lua can read. Options that it can not read stop all that is told in the same call.
_TEXT = re.compile(
    rb"(\d+) (-?\d+ (?:-|[+@]\d+) (?:-|[dsw]:[xrp]:\d+:[\w-]+)"
    rb"(?: l:[^/\s]+/[^\s,|]+\|[^\s,|]+\|[^\s,|]+(?:,[^\s,|]+\|[^\s,|]+\|[^\s,|]+)*)?(?: f:\S+)?)"
    rb" ([SAFsafx]+)"
)
_OPEN = re.compile(rb"[SAF]")


class Held(NamedTuple):
    """Such a text, in its parts."""

    round: int
    placing: str
    letters: bytes

    @classmethod
    def read(cls, text: bytes) -> Held | None:
        """None for one that resolve.lua passes over, or stops at."""
        found = _TEXT.fullmatch(text)
        return None if found is None else cls(int(found[1]), found[2].decode(), found[3])

    @property
    def open(self) -> list[int]:
        """Which parents, from 0, nothing is known of yet."""
        return [found.start() for found in _OPEN.finditer(self.letters)]

    @property
    def hangs(self) -> bool:
        """Whether it would be free, or skipped, at the next news, and there is none to come."""
        letters = self.letters
        spent = b"f" in letters and b"F" not in letters and b"x" not in letters
        free = (
            b"S" not in letters and b"A" not in letters
            and (b"x" in letters or (b"F" not in letters and b"f" not in letters))
        )
        return spent or free or not self.open


def is_start(journal: message.Journal) -> bool:
    """Whether this task holds back the steps of a workflow until all of them are stored."""
    return "steps" in journal.extras


def waits_of(id: str, journal: message.Journal) -> Waits | None:
    """The parents of a task and their letters, as ``waiting`` has to have them; None for a task
    that waits for nothing. What stands for a workflow has a letter, and no parent."""
    return Waits((), "A") if is_start(journal) else waits_now(id, journal)


def wrong_with(held: Held | None, waits: Waits | None, journal: message.Journal) -> str:
    """Why news of its parents would never free a task; ``""`` where they would."""
    if waits is None:
        return "it waits, and its envelope names nothing that it would wait for"
    if held is None:
        return "what it waits for can not be read"
    if held.round != round_of(journal):
        return "its parents would tell an earlier or a later wait of it than this one"
    if held.letters.upper().replace(b"X", b"F") != waits.letters.encode():
        return "what it waits for is not what its envelope says"
    return "all it waited for is known, and it waits on" if held.hangs else ""


def made_anew(id: str, journal: message.Journal, before: Held | None = None) -> str:
    """What ``waiting`` is to hold of a task that asks all its parents once more; ``""`` for one
    that waits for nothing. The options are those of ``before``, or as its envelope says them: of a
    delay that was given with it nothing is known any more."""
    waits = waits_of(id, journal)
    if waits is None:
        return ""
    if before is not None:
        return f"{round_of(journal)} {before.placing} {waits.letters}"
    if round_of(journal):
        return waiting_text(journal, waits.letters, more_rounds=0)
    priority, _, *rest = str(journal.extras.get("placing", "0 - -")).split(" ")
    when = "+0" if "expires" in journal.extras else "-"
    return f"0 {priority} {when} {' '.join(rest)} {waits.letters}"


def was_freed(journal: message.Journal) -> bool:
    """Whether a task that waits for others, and is in no place, has been in the queue already."""
    if not journal.entries:
        return False
    last = journal.entries[-1]
    return last.kind != message.SPREAD and (last.kind, last.value) != (message.RESUBMITTED, AGAIN)


def mend_detail(seen: bytes | None, text: str) -> bytes:
    """For ``hold`` of mend.lua: what waiting held, and what it is to hold."""
    return b"%d %s%s" % (-1 if seen is None else len(seen), seen or b"", text.encode())

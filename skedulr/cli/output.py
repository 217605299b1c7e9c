"""What a command prints: one JSON document for programs, aligned tables for people.

- ``document`` for ``--json``; ``table``, ``fields`` and ``line`` otherwise.
- Colour only on a terminal that wants it (``NO_COLOR``, ``TERM=dumb`` say no).
- Text that came with a task is shown, never obeyed: control characters are escaped.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..ui.plain import plain

_COLOURS = {
    "succeeded": "32", "running": "36", "queued": "34", "scheduled": "34", "waiting": "34",
    "dead": "31", "cancelled": "33", "skipped": "33", "expired": "33",
    "ok": "32", "paused": "33", "silent": "31",
}
_BOLD, _DIM = "1", "2"
#: A column is not cut below this many characters.
_NARROWEST = 12


class Output:
    """Standard output of one command; ``json`` tells which of the two forms is wanted."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._terminal = sys.stdout.isatty()
        self._coloured = (
            self._terminal and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM", "") != "dumb"
        )

    def document(self, value: Any) -> None:
        """The one JSON document, as HTTP would answer it: foreign values are text, see plain.py."""
        indent = 2 if self._terminal else None
        self._print(json.dumps(plain(value), allow_nan=False, indent=indent))

    def line(self, text: str = "", colour: str | None = None) -> None:
        """One line for people."""
        self._print(self._paint(printable(text), _COLOURS.get(colour or "")))

    def block(self, text: str) -> None:
        """Several lines as they are, such as a traceback."""
        self._print("\n".join(printable(line) for line in text.splitlines()))

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Names and values one under the other; what is None or empty is left out."""
        shown = [(name, cell(value)) for name, value in pairs if value not in (None, "", [], {})]
        room = max((len(name) for name, _ in shown), default=0)
        for name, text in shown:
            colour = _COLOURS.get(text) if name == "state" else None
            self._print(f"{self._paint(name.ljust(room), _DIM)}  {self._paint(text, colour)}")

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str, cut: str = ""
    ) -> None:
        """An aligned table: numbers to the right; None is ``-``. ``empty`` is said for no rows.

        The column ``cut`` gives way where the terminal is too narrow; into a pipe nothing is cut.
        """
        for line in self.table_lines(columns, rows, cut=cut) or [printable(empty)]:
            self._print(line)

    def table_lines(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, cut: str = ""
    ) -> list[str]:
        """The lines of such a table, its heading first; none for no rows."""
        given = [list(row) for row in rows]
        if not given:
            return []
        right = [
            all(isinstance(row[i], (int, float, type(None))) for row in given)
            and any(row[i] is not None for row in given)
            for i in range(len(columns))
        ]
        cells = [[cell(value) for value in row] for row in given]
        widths = [
            max(width(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))
        ]
        self._fit(columns, cells, widths, cut)
        sizes = list(zip(columns, widths, right, strict=True))
        heads = [_pad(head, room, to) for head, room, to in sizes]
        lines = [self._paint("  ".join(heads).rstrip(), _BOLD)]
        for row in cells:
            painted = []
            for text, (head, room, to) in zip(row, sizes, strict=True):
                colour = _COLOURS.get(text) if head == "STATE" else None
                painted.append(self._paint(_pad(text, room, to), colour))
            lines.append("  ".join(painted).rstrip())
        return lines

    def _fit(
        self, columns: Sequence[str], cells: list[list[str]], widths: list[int], cut: str
    ) -> None:
        if not self._terminal or cut not in columns:
            return
        at = columns.index(cut)
        over = sum(widths) + 2 * (len(widths) - 1) - shutil.get_terminal_size().columns
        if over <= 0:
            return
        widths[at] = max(widths[at] - over, _NARROWEST, len(cut))
        for line in cells:
            line[at] = _shortened(line[at], widths[at])

    def _paint(self, text: str, code: str | None) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if code and self._coloured else text

    @staticmethod
    def _print(text: str) -> None:
        try:
            print(text)
        except UnicodeEncodeError:
            # A terminal without Unicode: better an escape than no answer.
            encoding = sys.stdout.encoding or "ascii"
            print(text.encode(encoding, "backslashreplace").decode(encoding))


def json_line(value: Any) -> str:
    """A value as one line of JSON for people: not escaped beyond need."""
    return json.dumps(plain(value), ensure_ascii=False)


def cell(value: Any) -> str:
    """A value as the text of a table's cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, (list, tuple)):
        return printable(", ".join(str(one) for one in value))
    if isinstance(value, Mapping):
        return printable(json_line(value))
    return printable(str(value))


def printable(text: str) -> str:
    """``text`` with control characters (escape sequences, line ends) written as escapes."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode()
        for one in text
    )


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def _pad(text: str, room: int, right: bool) -> str:
    blanks = " " * (room - width(text))
    return blanks + text if right else text + blanks


def _shortened(text: str, room: int) -> str:
    if width(text) <= room:
        return text
    kept = ""
    for one in text:
        if width(kept + one) > room - 1:
            break
        kept += one
    return kept + "…"


def moment(epoch: float | None, now: float | None = None) -> str | None:
    """A time as people read it, in this machine's zone: ``2026-11-30 01:10:10+01:00 (5 s ago)``."""
    if epoch is None:
        return None
    try:
        local = datetime.fromtimestamp(epoch).astimezone()
    except (OverflowError, OSError, ValueError):
        return f"{epoch:.0f} s after 1970"
    return f"{local.isoformat(' ', 'seconds')} ({distance(epoch, now)})"


def clock(epoch: float | None) -> str | None:
    """A time for a column of a table: ``2026-11-30 01:10:10``, in this machine's zone."""
    if epoch is None:
        return None
    try:
        return datetime.fromtimestamp(epoch).isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):
        return f"{epoch:.0f}"


def distance(epoch: float, now: float | None = None) -> str:
    """How far a time is from now: ``5 s ago``, ``in 2 h``."""
    away = epoch - (time.time() if now is None else now)
    return f"in {span(away)}" if away > 0 else f"{span(-away)} ago"


def span(seconds: float) -> str:
    """A length of time in its largest fitting unit, two of them where that tells more.

    >>> span(0.25), span(95), span(7260)
    ('0.2 s', '1 min 35 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts = []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])

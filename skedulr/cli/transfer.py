"""``skedulr export`` and ``skedulr import``: pools into a file, and out of it again.

A file gets its name only when all of it is written. An import changes nothing of what is there, so
one that was broken off is run again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..committer import unavailable
from ..errors import ConfigError, SkedulrError, UnknownPool, nearest
from ..exporter import Exporter
from ..importer import Importer, LeftOut
from ..keys import SpaceKeys
from ..queries import pool_names
from ..transfer import JSONL, MSGPACK, Damaged, Line, is_cut, read, total_of, writer
from ..wire import Wire, WireError
from . import exits
from .output import printable
from .progress import Progress
from .session import Session

#: So many of what could not be put back are told one by one.
MOST_TOLD = 20


def export(session: Session) -> int:
    """``skedulr export FILE``."""
    given = session.given
    to_stdout = given.file == "-"
    form = given.format or (JSONL if given.file.endswith(".jsonl") else MSGPACK)
    if to_stdout and session.output.json:
        raise ConfigError("--json and - both want standard output: name a file")
    if to_stdout and form == MSGPACK and sys.stdout.isatty():
        raise ConfigError("msgpack is not for a terminal: name a file, or give --format jsonl")
    with _wire(session) as wire:
        exporter = Exporter(wire, session.settings.namespace, finished=not given.unfinished)
        head = exporter.head(_chosen(wire, session))
        with _written(given.file) as file, Progress(sys.stderr, total_of(head)) as progress:
            counts = _write(file, form, head, exporter, progress)
    document = {"pools": sorted(head["pools"]), "tasks": counts.get("task", 0),
                "records": counts.get("record", 0), "schedules": counts.get("schedule", 0),
                "limits": counts.get("limit", 0)}
    text = f"{_told(document)} exported{progress.took()}"
    if session.output.json:
        session.output.document(document)
    elif to_stdout:
        session.hint(text)
    else:
        session.output.line(text)
    return exits.OK


def _write(
    file: IO[bytes], form: str, head: Line, exporter: Exporter, progress: Progress
) -> dict[str, int]:
    """Write the lines; how many there are of each kind."""
    write = writer(file, form)
    write(head)
    line: Line = head
    for line in exporter.lines(sorted(head["pools"])):
        write(line)
        progress.count += line["kind"] in ("task", "record")
        progress.read(1)
    counts: dict[str, int] = line["counts"]
    return counts


def _chosen(wire: Wire, session: Session) -> Sequence[str]:
    pools = pool_names(wire, SpaceKeys(session.settings.namespace))
    one = session.given.pool
    if one is None:
        return pools
    if one not in pools:
        raise UnknownPool(f"there is no pool {one!r}{nearest(one, pools)}")
    return [one]


@contextmanager
def _written(name: str) -> Iterator[IO[bytes]]:
    """A new file that has its name once it is whole; ``-`` is standard output. For its owner alone:
    arguments and results are in it."""
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = Path(f"{name}.part")
    try:
        file = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(name)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def import_(session: Session) -> int:
    """``skedulr import FILE``."""
    with _read_from(session.given.file) as file, _wire(session) as wire:
        return _Import(session, wire).run(file)


class _Import:
    """One import, and what is said of it."""

    def __init__(self, session: Session, wire: Wire) -> None:
        given = session.given
        self._session, self._left_out = session, list[LeftOut]()
        self._importer = Importer(
            wire, session.settings.namespace, pool=given.pool, into=given.into, dry=given.dry_run,
            on_left_out=self._left_out.append,
        )

    def run(self, file: Any) -> int:
        """Read it, and put it back."""
        given, name = self._session.given, self._session.given.file
        with Progress(sys.stderr) as progress:
            try:
                # Of a pipe nobody knows before its end.
                cut = is_cut(file) and not given.partial
                lines = read(file)
                head = next(lines, None)
                if head is None or cut:
                    raise Damaged("it was cut: its end is missing")
                self._importer.begin(head)
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from None
            progress.expect(total_of(head))
            return self._put(lines, progress)

    def _put(self, lines: Iterable[Line], progress: Progress) -> int:
        try:
            for count in self._importer.run(lines):
                progress.count = sum(self._importer.counts.values())
                progress.read(count)
        except Damaged as error:
            if not self._session.given.partial:
                self._session.complain(f"{self._session.given.file}: {error}; {self._so_far()}")
                return exits.FAILURE
            self._session.hint(f"{error}; what came before it is in")
            self._importer.tie()
        except (SkedulrError, WireError) as error:
            known = unavailable(error) if isinstance(error, WireError) else error
            self._session.complain(f"{self._session.explain(known)}; {self._so_far()}")
            return exits.FAILURE
        except KeyboardInterrupt:
            self._session.complain(f"interrupted: {self._so_far()}")
            raise
        return self._report(progress)

    def _so_far(self) -> str:
        counts = self._importer.counts
        return (f"{_told(counts)} are in, and what waits for other tasks is held back: "
                "run it again for the rest")

    def _report(self, progress: Progress) -> int:
        importer, out = self._importer, self._session.output
        dry = self._session.given.dry_run
        counts = importer.counts
        if out.json:
            out.document({**counts, "paused": importer.paused, "dry_run": dry})
        else:
            there = f"; {counts['already']:,} were there already" if counts["already"] else ""
            done = "would be imported" if dry else f"imported{progress.took()}"
            out.line(f"{_told(counts)} {done}{there}")
            if importer.paused:
                self._session.hint(f"paused, as they were: {', '.join(importer.paused)}; "
                                   "skedulr resume lets them go")
        for one in self._left_out[:MOST_TOLD]:
            self._session.complain(f"left out: {one.id}: {one.why}")
        if len(self._left_out) > MOST_TOLD:
            self._session.complain(f"and {len(self._left_out) - MOST_TOLD:,} more")
        return exits.FAILURE if self._left_out else exits.OK


@contextmanager
def _read_from(name: str) -> Iterator[Any]:
    """A file to read; ``-`` is standard input."""
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(name, "rb")  # noqa: SIM115 - closed below, errors of the body are not ours
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from None
    with file:
        yield file


@contextmanager
def _wire(session: Session) -> Iterator[Wire]:
    wire = Wire(session.address.url, name=f"skedulr:{session.given.command}", timeout_s=30.0)
    try:
        yield wire
    except WireError as error:
        raise unavailable(error) from error
    finally:
        wire.close()


def _told(counts: Any) -> str:
    """``1,204 tasks, 3,000 finished, 2 schedules, 1 limit``; what there is none of is left out."""
    words = (("tasks", "task", "tasks"), ("records", "finished", "finished"),
             ("schedules", "schedule", "schedules"), ("limits", "limit", "limits"))
    parts = [f"{counts[key]:,} {one if counts[key] == 1 else many}" for key, one, many in words
             if counts[key] or key == "tasks"]
    return printable(", ".join(parts))

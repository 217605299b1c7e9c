"""Imports 100,000 rows with a progress bar; stopped and started again, it goes on.

    python examples/bulk_import.py [people.csv]

Without a file it makes one. Rows go out in batches, 200 a task: a task costs some 40 microseconds,
a row in a database of its own far more, and a batch is one transaction. Each batch has an id made
from its place, so to submit it again, after a crash of this script, stores nothing twice; and the
rows are written by their key, so a batch that runs twice leaves what it left the first time.
"""

from __future__ import annotations

import csv
import itertools
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import skedulr

ROWS = 100_000
BATCH = 200


@skedulr.task(name="import_rows", pool="imports", timeout=60, max_retries=5, keep_result=False)
def import_rows(database: str, rows: list[list[str]]) -> None:
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.executemany("INSERT OR REPLACE INTO people VALUES (?, ?, ?)", rows)


def batches(file: Path, database: str) -> Iterator[skedulr.Call[None]]:
    """A call for each batch; never more than one batch of rows is in memory."""
    with file.open(newline="") as opened:
        lines = iter(csv.reader(opened))
        for number in itertools.count():
            rows = list(itertools.islice(lines, BATCH))
            if not rows:
                return
            yield import_rows.using(id=f"{file.stem}-{number}").bind(database, rows)


def run(file: Path) -> int:
    """Import ``file`` into the database beside it; how many rows that has then."""
    database = str(file.with_suffix(".sqlite").resolve())
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS people (id PRIMARY KEY, name, town)")
        with file.open() as opened:
            total = -(-sum(1 for _ in opened) // BATCH)
        ids: list[str] = []
        for id in skedulr.submit_iter(batches(file, database)):
            ids.append(id)
            show("submitted", len(ids), total)
        for done, _ in enumerate(skedulr.as_completed(ids), 1):
            show("imported", done, total)
        count: int = connection.execute("SELECT count(*) FROM people").fetchone()[0]
    return count


def show(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty() or done == total:
        bar = "#" * (30 * done // total)
        end = "\n" if done == total else "\r"
        print(f"{what:>9} [{bar:30}] {done:,}/{total:,}", end=end, file=sys.stderr, flush=True)


def make_rows(file: Path) -> None:
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows(
            (number, f"person {number}", f"town {number % 97}") for number in range(ROWS)
        )


if __name__ == "__main__":
    from beside import master

    people = Path(sys.argv[1] if len(sys.argv) > 1 else "people.csv")
    if not people.exists():
        make_rows(people)
    with master("bulk_import", f"imports={4 * (os.cpu_count() or 1)}"):
        print(f"{run(people):,} rows in {people.with_suffix('.sqlite')}")

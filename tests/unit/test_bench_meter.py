"""What measured tasks note of their starts is read whole, from any number of processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import snippets

from skedulr.bench import meter

#: More than one part of the file takes.
MANY = 3 * meter._PART // meter._RECORD.size + 5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty one, which this process writes to."""
    monkeypatch.setenv(meter.FOLDER, str(tmp_path))
    meter._forget()
    yield tmp_path
    meter._forget()


def in_child(work: Callable[[], object]) -> None:
    """Do it in a fork of this process."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_each_start_is_noted_with_when_it_was_asked_for(folder: Path) -> None:
    assert meter.count(folder) == 0 and meter.rate(folder) == 0
    meter.hit(5.0)
    meter.hit()
    assert meter.count(folder) == 2
    (asked, started), (unasked, later) = meter.read(folder)
    assert (asked, unasked) == (5.0, 0.0) and 5 < started <= later
    assert meter.waits_ms(folder) == [1000 * (started - 5)]


def test_none_is_lost_where_a_file_grows(folder: Path) -> None:
    for at in range(MANY):
        meter.hit(float(at + 1))
    assert meter.count(folder) == MANY
    assert [asked for asked, _ in meter.read(folder)] == [float(at + 1) for at in range(MANY)]
    assert meter.rate(folder) > 0


def test_a_fork_writes_to_a_file_of_its_own(folder: Path) -> None:
    meter.hit(1.0)
    in_child(lambda: [meter.hit(2.0), meter.hit(3.0)])
    in_child(lambda: meter.hit(4.0))
    meter.hit(5.0)
    assert sorted(asked for asked, _ in meter.read(folder)) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(list(folder.iterdir())) == 3


def test_after_a_reset_only_what_starts_then_counts_though_the_process_goes_on(
    folder: Path
) -> None:
    for _ in range(10):
        meter.hit(1.0)
    meter.reset(folder)
    assert meter.count(folder) == 0 and meter.read(folder) == []
    meter.hit(2.0)
    assert [asked for asked, _ in meter.read(folder)] == [2.0]


def test_a_file_that_is_just_being_made_counts_nothing(folder: Path) -> None:
    (folder / "123").write_bytes(b"")
    (folder / "124").write_bytes(bytes(8))
    assert meter.count(folder) == 0 and meter.read(folder) == []


def test_it_needs_nothing_of_the_package(tmp_path: Path) -> None:
    """Other systems' workers load it, in environments without Redis and msgpack."""
    found = snippets.run("""
import sys
from skedulr.bench import meter
report(sorted(name for name in sys.modules if name.split(".")[0] in ("redis", "msgpack", "gevent")))
""")
    assert found == []

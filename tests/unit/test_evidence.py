"""Who is to blame for a SIGKILL: the files are as kernels and containers show them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from skedulr.pools.board import Board
from skedulr.pools.evidence import MemoryWatch, note_own_kills, peak_bytes

GB = 2**30


def write(root: Path, **files: str) -> None:
    for path, text in files.items():
        file = root / path.replace("__", "/").replace("DOT", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Version 2 of control groups, seen from inside of a group; nothing was killed yet."""
    write(
        tmp_path, proc__self__cgroup="0::/apps/jobs\n", proc__vmstat="oom_kill 7\n",
        sys__fs__cgroup__apps__jobs__memoryDOTevents="low 0\noom 0\noom_kill 2\n",
        sys__fs__cgroup__apps__jobs__memoryDOTmax="max\n",
        sys__fs__cgroup__apps__memoryDOTmax=f"{4 * GB}\n",
    )
    return tmp_path


def test_where_the_kernel_killed_for_memory_meanwhile_a_kill_is_put_down_to_that(
    machine: Path,
) -> None:
    watch = MemoryWatch(machine, 64 * GB)
    assert not watch.is_to_blame(GB)
    write(machine, sys__fs__cgroup__apps__jobs__memoryDOTevents="oom 1\noom_kill 3\n")
    assert watch.is_to_blame(GB)
    assert not watch.is_to_blame(GB), "one kill for memory explains one death"


def test_a_process_that_had_grown_large_may_have_been_killed_for_it(machine: Path) -> None:
    watch = MemoryWatch(machine, 64 * GB)
    assert watch.limit == 4 * GB, "of a group above"
    assert watch.is_to_blame(2 * GB) and not watch.is_to_blame(2 * GB - 1)


def test_in_a_container_that_sees_its_group_as_the_root(tmp_path: Path) -> None:
    write(
        tmp_path, proc__self__cgroup="0::/../../kubepods/x\n",
        sys__fs__cgroup__memoryDOTevents="oom_kill 0\n", sys__fs__cgroup__memoryDOTmax=f"{GB}\n",
    )
    watch = MemoryWatch(tmp_path, 64 * GB)
    assert watch.limit == GB
    write(tmp_path, sys__fs__cgroup__memoryDOTevents="oom_kill 1\n")
    assert watch.is_to_blame(1)


def test_with_version_1_of_control_groups(tmp_path: Path) -> None:
    write(
        tmp_path, proc__self__cgroup="5:cpu:/a\n4:memory:/docker/1\n0::/\n",
        sys__fs__cgroup__memory__docker__1__memoryDOToom_control="under_oom 0\noom_kill 1\n",
        sys__fs__cgroup__memory__docker__1__memoryDOTlimit_in_bytes=f"{GB}\n",
    )
    watch = MemoryWatch(tmp_path, 64 * GB)
    assert watch.limit == GB
    write(tmp_path,
          sys__fs__cgroup__memory__docker__1__memoryDOToom_control="under_oom 0\noom_kill 2\n")
    assert watch.is_to_blame(1)


def test_without_groups_the_machine_counts(tmp_path: Path) -> None:
    write(tmp_path, proc__vmstat="pgfault 1\noom_kill 0\n")
    watch = MemoryWatch(tmp_path, 4 * GB)
    assert not watch.is_to_blame(GB)
    write(tmp_path, proc__vmstat="pgfault 2\noom_kill 1\n")
    assert watch.is_to_blame(GB)


def test_where_nothing_is_shown_size_alone_tells(tmp_path: Path) -> None:
    watch = MemoryWatch(tmp_path, 4 * GB)
    assert not watch.is_to_blame(GB) and watch.is_to_blame(3 * GB)


def test_this_machine_can_be_watched() -> None:
    watch = MemoryWatch()
    assert watch.limit > 0 and not watch.is_to_blame(1)


def test_a_process_that_is_waited_for_tells_how_much_it_held() -> None:
    pid = os.fork()
    if pid == 0:
        held = bytearray(64 * 2**20)
        os._exit(held[0])
    _, _, usage = os.wait4(pid, 0)
    assert 64 * 2**20 < peak_bytes(usage) < 64 * 2**30


@pytest.mark.parametrize("how", [
    lambda: os.kill(os.getpid(), signal.SIGKILL),
    lambda: os.kill(0, signal.SIGKILL),
    lambda: os.killpg(os.getpgrp(), signal.SIGKILL),
])
def test_a_process_that_kills_itself_has_said_so(how) -> None:
    board = Board(1)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        note_own_kills(board)
        how()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert board.own_kill == 1


def test_other_signals_and_other_processes_are_no_such_word() -> None:
    board = Board(1)
    pid = os.fork()
    if pid == 0:
        note_own_kills(board)
        os.kill(os.getpid(), 0)
        os.kill(os.getppid(), 0)
        other = os.fork()
        if other == 0:
            os.execvp("sleep", ["sleep", "60"])
        os.kill(other, signal.SIGKILL)
        os._exit(os.waitpid(other, 0)[1] != signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert board.own_kill == 0

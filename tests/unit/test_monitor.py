"""The monitor: lag by an invented clock, stacks of real greenlets and threads."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

import gevent
import pytest
from gevent import monkey
from gevent.event import Event

from skedulr.hub.driver import Driver
from skedulr.hub.monitor import Monitor, greenlet_stacks, stack_of_hub_thread

HEAD = "Traceback (most recent call last):\n"


def wait_until(what: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Let the hub turn until ``what`` is true."""
    with gevent.Timeout(timeout_s, AssertionError("it did not come about")):
        while not what():
            gevent.sleep(0)


class Stage:
    """A driver and a monitor on one clock that is moved by hand."""

    def __init__(self, **options: float) -> None:
        self.now_s = 100.0
        self.beats = 0
        self.driver = Driver(monotonic_ms=lambda: int(self.now_s * 1000))
        self.monitor = Monitor(
            self.driver, monotonic=lambda: self.now_s, on_beat=self.beat, **options
        )

    def beat(self) -> None:
        self.beats += 1

    def go_to(self, now_s: float) -> None:
        """Nothing ran since the last step: whatever was due in between is late."""
        self.now_s = now_s
        seen = self.driver.wakeups
        self.driver.wake()
        wait_until(lambda: self.driver.wakeups > seen)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    stage.driver.start()
    stage.monitor.start()
    wait_until(lambda: stage.driver._timer is not None)
    yield stage
    stage.monitor.stop()
    stage.driver.stop()
    gevent.sleep(0)


def test_hub_that_keeps_up_has_no_lag(stage: Stage) -> None:
    for second in (101, 102, 103):
        stage.go_to(second)
    assert (stage.beats, stage.monitor.lag_ms, stage.monitor.max_lag_ms) == (3, 0, 0)


@pytest.mark.parametrize("interval_s, next_s", [(1.0, 101.01), (0.5, 100.51)])
def test_rounding_up_to_a_tick_is_not_taken_for_lag(interval_s: float, next_s: float) -> None:
    stage = Stage(interval_s=interval_s)
    stage.driver.start()
    wait_until(lambda: stage.driver._wake_at_ms == math.inf)
    stage.go_to(100.003)
    stage.monitor.start()
    stage.go_to(next_s)
    assert (stage.beats, stage.monitor.lag_ms) == (1, 0)
    stage.driver.stop()


def test_lag_is_what_passed_since_the_time_that_was_planned(stage: Stage) -> None:
    stage.go_to(101.25)
    assert stage.monitor.lag_ms == 250
    stage.go_to(102.0)
    assert (stage.monitor.lag_ms, stage.monitor.max_lag_ms) == (0, 250)


def test_largest_lag_is_forgotten_after_a_minute(stage: Stage) -> None:
    stage.go_to(101.25)
    for second in range(102, 162):
        stage.go_to(second)
    assert stage.monitor.max_lag_ms == 250
    stage.go_to(162)
    assert stage.monitor.max_lag_ms == 0


def test_hub_that_was_blocked_is_logged(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.go_to(101.999)
    assert caplog.records == []
    stage.go_to(105.5)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("skedulr.hub", "WARNING")
    assert "2500 ms late" in record.getMessage()


def test_beat_that_raises_does_not_end_the_measuring(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise LookupError("no such tea")

    stage.monitor.on_beat = broken
    stage.go_to(101)
    assert "no such tea" in caplog.text
    stage.monitor.on_beat = stage.beat
    stage.go_to(102)
    assert stage.beats == 1


def test_start_and_stop_are_safe_twice(stage: Stage) -> None:
    stage.monitor.start()
    assert stage.driver.pending == 1
    stage.monitor.stop()
    stage.monitor.stop()
    assert stage.driver.pending == 0
    stage.go_to(105)
    assert stage.beats == 0
    stage.monitor.start()
    stage.go_to(106)
    assert stage.beats == 1


def test_stopped_or_punctual_hub_is_not_blocked(stage: Stage) -> None:
    assert stage.monitor.blocked(1) is None
    stage.now_s = 101.9
    assert stage.monitor.blocked(1) is None
    stage.monitor.stop()
    stage.now_s = 500.0
    assert stage.monitor.blocked(1) is None


def test_blocked_hub_shows_to_a_native_thread_what_blocks_it(stage: Stage) -> None:
    start_thread = monkey.get_original("_thread", "start_new_thread")
    stacks: list[str | None] = []

    def handler_that_computes() -> None:
        stage.now_s = 103.0  # the clock goes on, the hub does not
        start_thread(lambda: stacks.append(stage.monitor.blocked(2)), ())
        deadline = time.monotonic() + 10
        while not stacks and time.monotonic() < deadline:
            pass

    gevent.spawn(handler_that_computes).join(20)
    (stack,) = stacks
    assert stack is not None
    assert stack.startswith(HEAD)
    assert "in handler_that_computes\n" in stack
    assert f'File "{__file__}", line ' in stack


def test_thread_that_ended_has_no_stack() -> None:
    assert stack_of_hub_thread(1) == "thread 1 has no stack: it has ended\n"


def test_dump_has_a_block_for_every_greenlet_in_the_tracebacks_form() -> None:
    def waits_for_tea(event: Event) -> None:
        event.wait()

    tea = Event()
    waiting = gevent.spawn(waits_for_tea, tea)
    gevent.sleep(0)
    unstarted = gevent.spawn(waits_for_tea, tea)
    try:
        blocks = greenlet_stacks().split("\n\n")
    finally:
        tea.set()
        gevent.joinall([waiting, unstarted], timeout=10)
    (block,) = [block for block in blocks if block.startswith(repr_of(waiting))]
    _name, head, *calls = block.splitlines()
    assert head + "\n" == HEAD
    assert any("in waits_for_tea" in call for call in calls)
    assert "(asked for this)" in blocks[0]
    assert "in test_dump_has_a_block_for_every_greenlet" in blocks[0]
    assert any(block.startswith("<Hub") for block in blocks)
    (late,) = [block for block in blocks if block.startswith(repr_of(unstarted))]
    assert "not started" in late


def repr_of(one: gevent.Greenlet) -> str:
    return f'<Greenlet "{one.name}"'


def test_dump_gives_away_no_arguments() -> None:
    class Secret:
        def __repr__(self) -> str:
            raise AssertionError("shown")

    def waits_with(_secret: Secret, event: Event) -> None:
        event.wait()

    tea = Event()
    waiting = gevent.spawn(waits_with, Secret(), tea)
    gevent.sleep(0)
    try:
        assert "waits_with>\n" + HEAD in greenlet_stacks()
    finally:
        tea.set()
        waiting.join(10)


def test_patched_process_tells_its_native_heart_what_blocks_it() -> None:
    """As in a child: everything patched, a real thread, and a handler that never yields."""
    program = textwrap.dedent(
        """
        from gevent import monkey
        monkey.patch_all()
        import os, re, threading, time
        import gevent
        from skedulr.hub.driver import Driver
        from skedulr.hub.monitor import Monitor, greenlet_stacks

        native = monkey.get_original("_thread", "start_new_thread")
        nap = monkey.get_original("time", "sleep")
        driver = Driver()
        monitor = Monitor(driver, interval_s=0.05)
        driver.start()
        monitor.start()
        gevent.sleep(0.1)

        def heart():
            while not (stack := monitor.blocked(0.2)):
                nap(0.01)
            os.write(1, stack.encode())
            os._exit(0)

        def hungry_handler():
            greenlet_stacks()
            while True:
                sum(range(1000))

        native(heart, ())
        gevent.spawn(hungry_handler).join()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(HEAD)
    assert "in hungry_handler" in done.stdout


def test_dump_survives_objects_that_answer_every_question_with_an_error():
    class Hostile:
        def __getattribute__(self, name):
            raise KeyboardInterrupt

    hostile = Hostile()
    assert greenlet_stacks()
    del hostile

"""The driver on a real hub. Its clock is moved by hand where a test asks what fires when."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import gevent
import pytest
from gevent import getcurrent
from gevent.event import Event
from hand_clock import HandClock, turns, wait_until

from skedulr.hub import driver as driver_module
from skedulr.hub.driver import Driver
from skedulr.hub.wheel import Wheel

YEARS_MS = 10 * 365 * 86_400_000


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def driver(clock: HandClock) -> Iterator[Driver]:
    """Started and asleep, with the hand clock."""
    clock.driver = driver = Driver(monotonic_ms=clock, background=2)
    driver.start()
    turns()
    yield driver
    driver.stop()
    turns()


@pytest.fixture
def real() -> Iterator[Driver]:
    """Started, with the machine's monotonic clock."""
    driver = Driver()
    driver.start()
    yield driver
    driver.stop()
    turns()


# When


def test_callback_runs_after_its_delay_and_not_before(driver: Driver, clock: HandClock) -> None:
    fired: list[str] = []
    driver.after(1.5, lambda: fired.append("tea"))
    clock.move(1_499)
    assert fired == []
    clock.move(1)
    assert fired == ["tea"]
    clock.move(YEARS_MS)
    assert fired == ["tea"]


def test_part_of_a_millisecond_is_waited_for_too(driver: Driver, clock: HandClock) -> None:
    entry = driver.after(0.0101, print)
    assert entry.deadline_ms == clock.now_ms + 11


def test_at_takes_a_time_of_the_drivers_clock(driver: Driver, clock: HandClock) -> None:
    fired: list[str] = []
    driver.at(clock.now_ms + 30, lambda: fired.append("later"))
    driver.at(clock.now_ms - 30, lambda: fired.append("overdue"))
    wait_until(lambda: fired)
    assert fired == ["overdue"]
    clock.move(30)
    assert fired == ["overdue", "later"]


def test_real_clock_and_timer_bring_it_about(real: Driver) -> None:
    fired = Event()
    real.after(0.02, fired.set)
    assert fired.wait(10)


def test_earlier_entry_moves_the_timer(real: Driver) -> None:
    fired = Event()
    real.after(3_600, print)
    turns()
    real.after(0.01, fired.set)
    assert fired.wait(10)


def test_entry_that_needs_an_idle_drivers_timer_gets_it(real: Driver) -> None:
    turns()
    fired = Event()
    real.after(0.01, fired.set, inline=True)
    assert fired.wait(10)


def test_entry_with_a_passed_time_fires_without_the_timer_of_another(real: Driver) -> None:
    fired = Event()
    real.after(3_600, print)
    turns()
    real.at(0, fired.set)
    assert fired.wait(10)


def test_entries_wait_for_the_start(clock: HandClock) -> None:
    fired: list[str] = []
    driver = Driver(monotonic_ms=clock)
    driver.after(0, lambda: fired.append("first"))
    turns()
    assert fired == []
    assert driver.pending == 1
    driver.start()
    wait_until(lambda: fired)
    driver.stop()


def test_after_a_stall_all_that_is_overdue_fires_in_deadline_order(
    driver: Driver, clock: HandClock
) -> None:
    fired: list[int] = []
    delays = random.Random(1).sample(range(60_000, 160_000), 300)
    for delay_ms in delays:
        driver.at(clock.now_ms + delay_ms, lambda ms=delay_ms: fired.append(ms))
    seen = driver.wakeups
    clock.move(600_000)
    assert fired == sorted(delays)
    assert driver.wakeups == seen + 1


def test_wall_clock_decides_nothing(real: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    fired, not_yet = Event(), []
    real.after(0.02, fired.set)
    real.after(3_600, lambda: not_yet.append("early"))
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert fired.wait(10)
    monkeypatch.setattr("time.time", lambda: 0.0)
    fired.clear()
    real.after(0.02, fired.set)
    assert fired.wait(10)
    assert not_yet == []


def test_given_wheel_is_used_even_when_empty(clock: HandClock) -> None:
    wheel = Wheel(tick_ms=7, start_ms=clock())
    driver = Driver(wheel, clock)
    driver.after(1, print)
    assert len(wheel) == 1
    assert driver.tick_ms == 7


# Wake-ups


def test_idle_wheel_wakes_nobody(driver: Driver, clock: HandClock) -> None:
    seen = driver.wakeups
    clock.now_ms += YEARS_MS
    turns(50)
    assert driver.wakeups == seen
    assert driver._timer is None


def test_wheel_whose_entries_were_cancelled_goes_idle_again(
    driver: Driver, clock: HandClock
) -> None:
    for delay_s in (1, 100, 10_000):
        assert driver.after(delay_s, print).cancel()
    clock.move(1_000)
    assert driver._timer is None


def test_distant_entry_costs_one_wake_up_a_level(clock: HandClock) -> None:
    """The clock jumps to each time the driver asks for, so what it asks for is all that happens."""
    fired: list[int] = []
    clock.driver = driver = Driver(monotonic_ms=clock)
    driver.start()
    turns()
    driver.after(7 * 86_400, lambda: fired.append(clock.now_ms))
    due_ms = clock.now_ms + 7 * 86_400_000
    before = driver.wakeups
    while not fired:
        clock.move(int(driver._wake_at_ms) - clock.now_ms)
    driver.stop()
    assert 0 <= fired[0] - due_ms < driver.tick_ms
    assert driver.wakeups - before <= 3


def test_later_entry_leaves_the_timer_alone(driver: Driver) -> None:
    driver.after(10, print)
    timer = driver._timer
    driver.after(20, print)
    assert driver._timer is timer


def test_callback_that_adds_for_now_lets_the_others_have_their_turn(real: Driver) -> None:
    stopped, other = [], Event()

    def again() -> None:
        if not stopped:
            real.after(0, again, inline=True)

    again()
    gevent.spawn(other.set)
    assert other.wait(10)
    stopped.append(True)


# Where


def test_each_callback_has_its_own_greenlet(driver: Driver, clock: HandClock) -> None:
    ran_on: list[object] = []
    for _ in range(3):
        driver.after(1, lambda: ran_on.append(getcurrent()))
    clock.move(1_000)
    assert len({id(one) for one in ran_on} - {id(driver._greenlet)}) == 3


def test_callback_that_waits_holds_up_no_other(driver: Driver, clock: HandClock) -> None:
    never, fired = Event(), []
    driver.after(1, never.wait)
    driver.after(2, lambda: fired.append("other"))
    clock.move(1_000)
    clock.move(1_000)
    assert fired == ["other"]
    never.set()


def test_inline_callback_runs_on_the_driver(driver: Driver, clock: HandClock) -> None:
    ran_on: list[object] = []
    driver.after(1, lambda: ran_on.append(getcurrent()), inline=True)
    clock.move(1_000)
    assert ran_on == [driver._greenlet]


def test_internal_callbacks_share_a_bounded_number_of_greenlets(
    driver: Driver, clock: HandClock
) -> None:
    go_on, begun, ended = Event(), [], []

    def work(number: int) -> None:
        begun.append(number)
        go_on.wait()
        ended.append(number)

    for number in range(5):
        driver.after(1, lambda number=number: work(number), internal=True)
    clock.move(1_000)
    assert begun == [0, 1]
    go_on.set()
    wait_until(lambda: len(ended) == 5)
    assert begun == [0, 1, 2, 3, 4]


def test_internal_callbacks_that_wait_hold_up_no_others(driver: Driver, clock: HandClock) -> None:
    never, fired = Event(), []
    for _ in range(3):
        driver.after(1, never.wait, internal=True)
    driver.after(2, lambda: fired.append("other"))
    clock.move(1_000)
    clock.move(1_000)
    assert fired == ["other"]
    never.set()


def test_killed_background_greenlet_leaves_its_share_to_another(
    driver: Driver, clock: HandClock
) -> None:
    victims, fired = [], []

    def hang() -> None:
        victims.append(getcurrent())
        Event().wait()

    for _ in range(2):
        driver.after(1, hang, internal=True)
    driver.after(2, lambda: fired.append("next"), internal=True)
    clock.move(2_000)
    assert fired == []
    victims[0].kill()
    wait_until(lambda: fired)
    victims[1].kill()


# Cancel


def test_cancelled_callback_does_not_run(driver: Driver, clock: HandClock) -> None:
    fired: list[str] = []
    entry = driver.after(1, lambda: fired.append("no"))
    assert entry.cancel() is True
    clock.move(5_000)
    assert fired == []


@pytest.mark.parametrize("how", [{}, {"internal": True}, {"inline": True}])
def test_cancel_wins_until_the_callback_begins(
    driver: Driver, clock: HandClock, how: dict[str, bool]
) -> None:
    """The first one cancels the second, when both are due and the driver has them in hand."""
    fired, answers = [], []
    driver.after(1, lambda: answers.append(second.cancel()), inline=True)
    second = driver.after(1.001, lambda: fired.append("second"), **how)
    clock.move(2_000)
    assert answers == [True]
    assert fired == []


def test_cancel_wins_over_a_greenlet_that_was_made_for_it(driver: Driver, clock: HandClock) -> None:
    fired, answers = [], []
    driver.after(1, lambda: answers.append(second.cancel()))
    second = driver.after(1.001, lambda: fired.append("second"))
    clock.move(2_000)
    assert answers == [True]
    assert fired == []


def test_callback_can_not_cancel_itself_any_more(driver: Driver, clock: HandClock) -> None:
    answers: list[bool] = []
    entry = driver.after(1, lambda: answers.append(entry.cancel()))
    clock.move(1_000)
    assert answers == [False]


# What goes wrong


@pytest.mark.parametrize("how", [{}, {"internal": True}, {"inline": True}])
def test_callback_that_raises_is_logged_and_harms_nothing(
    driver: Driver,
    clock: HandClock,
    caplog: pytest.LogCaptureFixture,
    how: dict[str, bool],
) -> None:
    def broken() -> None:
        raise LookupError("no such tea")

    fired: list[str] = []
    driver.after(1, broken, **how)
    driver.after(1, lambda: fired.append("same tick"), **how)
    driver.after(2, lambda: fired.append("later"), **how)
    clock.move(1_000)
    clock.move(1_000)
    assert fired == ["same tick", "later"]
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("skedulr.hub", "ERROR")
    assert "broken" in record.getMessage()
    assert "no such tea" in caplog.text
    assert driver.deaths == 0


def test_killed_driver_is_replaced_and_nothing_is_lost(
    driver: Driver, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    fired, victims = [], []
    driver.after(1, lambda: fired.append("tea"))
    for _ in range(3):
        victim = driver._greenlet
        assert victim is not None
        victims.append(victim)
        victim.kill()
        wait_until(lambda: driver._greenlet is not victims[-1] and driver._timer is not None)
        assert driver.deaths == len(victims)
    clock.move(1_000)
    assert fired == ["tea"]
    assert caplog.text.count("wheel driver died of GreenletExit() and was started again") == 3


def test_driver_that_dies_half_way_leaves_the_rest_to_its_successor(
    driver: Driver, clock: HandClock
) -> None:
    class Fatal(BaseException):
        pass

    def fatal() -> None:
        raise Fatal

    fired: list[int] = []
    driver.at(clock.now_ms + 1, fatal, inline=True)
    for number in range(5):
        driver.at(clock.now_ms + 2 + number, lambda number=number: fired.append(number))
    clock.now_ms += 10
    driver.wake()
    wait_until(lambda: driver.deaths == 1 and len(fired) == 5)
    assert fired == [0, 1, 2, 3, 4]


def test_driver_that_dies_again_and_again_pauses_and_recovers(
    clock: HandClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "RESTART_PAUSE_S", 0.001)
    broken = [True]

    def monotonic_ms() -> int:
        if broken:
            raise OSError("no clock")
        return clock.now_ms

    driver, fired = Driver(Wheel(), monotonic_ms), []
    driver.at(1, lambda: fired.append("tea"))
    driver.start()
    wait_until(lambda: driver.deaths >= 3)
    broken.clear()
    wait_until(lambda: fired)
    driver.stop()
    assert "wheel driver died of OSError('no clock')" in caplog.text


# Start and stop


def test_start_twice_is_one_driver(driver: Driver) -> None:
    greenlet = driver._greenlet
    driver.start()
    assert driver._greenlet is greenlet


def test_stopped_driver_fires_nothing_and_stays_stopped(driver: Driver, clock: HandClock) -> None:
    fired: list[str] = []
    greenlet = driver._greenlet
    driver.after(1, lambda: fired.append("tea"))
    driver.stop()
    driver.stop()
    driver.after(0, lambda: fired.append("now"))
    clock.now_ms += 5_000
    driver.wake()
    turns()
    assert fired == []
    assert greenlet is not None and greenlet.dead
    assert driver.deaths == 0
    assert driver.pending == 2


def test_stopped_driver_goes_on_where_it_was_when_started_again(
    driver: Driver, clock: HandClock
) -> None:
    fired: list[str] = []
    driver.after(1, lambda: fired.append("tea"))
    driver.stop()
    driver.start()
    turns()
    clock.move(1_000)
    assert fired == ["tea"]


def test_stop_before_start_and_right_after_it(clock: HandClock) -> None:
    driver = Driver(monotonic_ms=clock)
    driver.stop()
    driver.start()
    driver.stop()
    turns()
    assert driver.deaths == 0


@pytest.mark.parametrize("how", [{}, {"inline": True}])
def test_callback_may_stop_the_driver(
    driver: Driver, clock: HandClock, how: dict[str, bool]
) -> None:
    fired: list[str] = []
    driver.after(1, driver.stop, **how)
    driver.after(2, lambda: fired.append("tea"))
    greenlet = driver._greenlet
    clock.now_ms += 1_000
    driver.wake()
    wait_until(lambda: greenlet is not None and greenlet.dead)
    assert fired == []
    assert driver.deaths == 0
    driver.start()
    turns()
    clock.move(1_000)
    assert fired == ["tea"]


def test_constructor_and_import_start_nothing(clock: HandClock) -> None:
    driver = Driver(monotonic_ms=clock)
    assert (driver._greenlet, driver._timer) == (None, None)


# Again and again


def test_every_runs_a_period_after_it_returned(driver: Driver, clock: HandClock) -> None:
    ran_ms: list[int] = []
    driver.every(10, lambda: ran_ms.append(clock.now_ms))
    start_ms = clock.now_ms
    clock.move(9_999)
    assert ran_ms == []
    clock.move(11)
    clock.move(9_000)
    clock.move(1_010)
    assert [ms - start_ms for ms in ran_ms] == [10_010, 20_020]


@pytest.mark.parametrize("how", [{}, {"internal": True}])
def test_every_never_overlaps_itself(
    driver: Driver, clock: HandClock, how: dict[str, bool]
) -> None:
    begun, go_on = [], Event()

    def slow() -> None:
        begun.append(clock.now_ms)
        go_on.wait()

    driver.every(1, slow, **how)
    for _ in range(5):
        clock.move(2_000)
    assert len(begun) == 1
    go_on.set()
    turns()
    clock.move(2_000)
    assert len(begun) == 2


def test_every_runs_once_after_a_stall(driver: Driver, clock: HandClock) -> None:
    ran_ms: list[int] = []
    driver.every(1, lambda: ran_ms.append(clock.now_ms))
    clock.move(YEARS_MS)
    assert len(ran_ms) == 1


@pytest.mark.parametrize("how", [{}, {"internal": True}, {"inline": True}])
def test_every_goes_on_after_an_error_and_logs_it(
    driver: Driver, clock: HandClock, caplog: pytest.LogCaptureFixture, how: dict[str, bool]
) -> None:
    ran: list[int] = []

    def sweep() -> None:
        ran.append(clock.now_ms)
        raise LookupError("no such tea")

    driver.every(1, sweep, **how)
    for _ in range(3):
        clock.move(1_010)
    assert len(ran) == 3
    assert caplog.text.count("LookupError: no such tea") == 3
    assert "every 1 s" in caplog.text and "sweep" in caplog.text


def test_every_goes_on_when_the_greenlet_of_a_run_is_killed(
    driver: Driver, clock: HandClock
) -> None:
    ran_on: list[gevent.Greenlet] = []

    def hang() -> None:
        ran_on.append(getcurrent())
        Event().wait()

    driver.every(1, hang)
    clock.move(1_000)
    ran_on[0].kill()
    clock.move(1_010)
    assert len(ran_on) == 2
    ran_on[1].kill()


def test_cancelled_repeat_runs_no_more(driver: Driver, clock: HandClock) -> None:
    ran: list[int] = []
    repeat = driver.every(1, lambda: ran.append(clock.now_ms))
    clock.move(1_000)
    assert repeat.cancel() is True
    assert repeat.cancel() is False
    clock.move(5_000)
    assert len(ran) == 1
    assert driver.pending == 0


def test_repeat_may_cancel_itself(driver: Driver, clock: HandClock) -> None:
    ran: list[bool] = []
    repeat = driver.every(1, lambda: ran.append(repeat.cancel()))
    for _ in range(3):
        clock.move(2_000)
    assert ran == [True]
    assert driver.pending == 0


def test_jitter_stretches_and_shortens_within_its_share(driver: Driver, clock: HandClock) -> None:
    entries = [driver.every(100, print, jitter=0.2)._entry for _ in range(200)]
    delays = [entry.deadline_ms - clock.now_ms for entry in entries]
    assert 79_500 <= min(delays) < 90_000
    assert 110_000 < max(delays) <= 120_500


def test_seldom_repeats_share_a_beat_and_frequent_ones_keep_their_own_time(
    driver: Driver, clock: HandClock
) -> None:
    ran_ms: list[int] = []
    clock.now_ms += 7
    for period_s in (1, 2, 3.75):
        clock.now_ms += 130
        driver.every(period_s, lambda: ran_ms.append(clock.now_ms))
    clock.now_ms += 130
    start_ms = clock.now_ms
    often = driver.every(0.3, print)._entry
    assert often.deadline_ms == start_ms + 300
    often.cancel()
    for _ in range(800):
        clock.move(10)
    # The beat is that of the first one, who asked 390 ms before, to the next tick.
    (phase_ms,) = {(ms - start_ms) % 1_000 for ms in ran_ms}
    assert 610 <= phase_ms <= 620
    assert len(ran_ms) == 8 + 4 + 2
    assert len(set(ran_ms)) == 8


def test_pause_of_a_second_or_more_is_half_a_second_off_at_most(clock: HandClock) -> None:
    driver = Driver(monotonic_ms=clock)
    first_ms = driver.beat_in(1)
    for delay_s in (1.0, 1.49, 1.51, 2.0, 3.75, 59.9):
        for _ in range(50):
            clock.now_ms += 37
            due_ms = driver.beat_in(delay_s)
            assert abs(due_ms - clock.now_ms - delay_s * 1000) <= 501
            assert (due_ms - first_ms) % 1_000 == 0 and due_ms % driver.tick_ms == 0


@pytest.mark.parametrize(
    "period_s, jitter", [(0, 0.0), (-1, 0.0), (1, 1.0), (1, -0.1), (float("nan"), 0.0)]
)
def test_every_refuses_what_would_spin(driver: Driver, period_s: float, jitter: float) -> None:
    with pytest.raises(ValueError, match="every needs period_s > 0 and 0 <= jitter < 1"):
        driver.every(period_s, print, jitter)


def test_log_goes_to_the_hubs_logger() -> None:
    assert driver_module.log is logging.getLogger("skedulr.hub")

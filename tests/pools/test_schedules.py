"""Schedules on real masters: registered, fired once whoever is killed, overlapping or not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import pairwise

import pytest
from harness import WORK, Node
from servers import Server

import skedulr

pytestmark = pytest.mark.server

Start = Callable[..., Node]

OFTEN = WORK + '''

@skedulr.every(0.2)
@task(name="often")
def often():
    note("ran")
'''
LONG = WORK + '''

@skedulr.every(0.3, overlap='OVERLAP')
@task(name="long", max_retries=0)
def long():
    note("began")
    try:
        time.sleep(1)
    except BaseException:
        note("interrupted")
        raise
    note("ended")
'''


def ticks_of(node: Node, phase: str = "ran") -> list[int]:
    return sorted({int(one.uid.partition("@")[2]) for one in node.effects.all(phase=phase)})


def app_of(node: Node) -> skedulr.Skedulr:
    assert node.app is not None
    return node.app


def test_a_schedule_of_the_code_ticks_in_time_and_in_step(
    start: Start, record_property: Callable[[str, object], None]
) -> None:
    node = start(work=OFTEN)
    node.effects.wait("ran", count=15)
    ticks = ticks_of(node)
    assert {after - before for before, after in pairwise(ticks)} == {200}
    shown = app_of(node).schedules()["often"].info()
    assert (shown["kind"], shown["spec"], shown["pool"], shown["declared"]) == (
        "recurring", "0.2", "default", True
    )
    runs = app_of(node).schedules()["often"].runs()
    late_ms = [1000 * run["started_at"] - int(run["uid"].partition("@")[2]) for run in runs
               if run["started_at"]]
    record_property("late_ms", late_ms)
    assert min(late_ms) >= 0


def test_after_a_flush_the_ticks_come_back_without_a_restart(
    start: Start, one_server: Server
) -> None:
    node = start(work=OFTEN)
    node.effects.wait("ran", count=3)
    one_server.client.flushall()
    before = len(node.effects.all())
    node.effects.wait("ran", count=before + 5)
    assert node.children() == [node.child()]


def test_a_killed_child_costs_no_tick_and_none_is_fired_twice(start: Start) -> None:
    node = start(work=OFTEN.replace("every(0.2)", "every(0.2, catch_up='all')"))
    for count in (3, 9, 15):
        node.effects.wait("ran", count=count)
        os.kill(node.child(), signal.SIGKILL)
        node.wait_ready(node.log.count("workers ready") + 1)
    node.effects.wait("ran", count=20)
    ticks = ticks_of(node)
    assert {after - before for before, after in pairwise(ticks)} == {200}


def test_a_schedule_made_while_nodes_run_is_heard_of_at_once(start: Start) -> None:
    node = start()
    app = app_of(node)
    app.schedule_recurring(app.remote("quick"), 0.2, name="made")
    # Far sooner than the beat that would find it anyway.
    node.effects.wait("ran", count=3, timeout=4)
    app.schedules()["made"].pause()
    paused_at = app.schedules()["made"].fired
    handle = app.schedules()["made"].run()
    assert handle.result(timeout=10) is None
    assert app.schedules()["made"].fired == paused_at + 1
    assert app.unschedule("made")
    assert "made" not in app.schedules()


def test_queue_one_runs_one_after_the_other(start: Start) -> None:
    node = start(work=LONG.replace("OVERLAP", "queue_one"))
    node.effects.wait("ended", count=3)
    runs = [
        (one.at, next(two.at for two in node.effects.all(one.uid, "ended")))
        for one in node.effects.all(phase="began")[:3]
    ]
    assert all(ended <= began for (_, ended), (began, _) in pairwise(runs))


def test_skip_starts_nothing_while_a_run_goes_on(start: Start) -> None:
    node = start(work=LONG.replace("OVERLAP", "skip"))
    node.effects.wait("ended", count=2)
    phases = [one.phase for one in node.effects.all()]
    assert phases[:4] == ["began", "ended", "began", "ended"]
    assert app_of(node).schedules()["long"].skipped >= 2


def test_cancel_previous_interrupts_the_run_before(start: Start) -> None:
    node = start(work=LONG.replace("OVERLAP", "cancel_previous"))
    node.effects.wait("interrupted", count=2)
    assert not node.effects.all(phase="ended")
    first = node.effects.all(phase="interrupted")[0].uid
    node.wait_state(first, "cancelled")


def test_a_schedule_for_a_pool_that_nobody_serves_here_is_warned_of(start: Start) -> None:
    node = start(work=OFTEN.replace('"often"', '"often", pool="elsewhere"'))
    node.wait_log("schedules of the code are for pool 'elsewhere', which this node does not serve")


def test_a_module_whose_schedule_is_wrong_ends_the_master_with_the_reason(
    nodes: Callable[..., Node], one_server: Server
) -> None:
    work = OFTEN.replace("every(0.2)", "cron('0 0 30 2 *')")
    node = nodes(one_server.url, work=work).start(None)
    assert node.wait() == 3
    assert "never fires: no Feb has such a day" in node.log

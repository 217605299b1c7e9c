"""When a node beats, and until when a leader believes that it leads: by hand, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from servers import Server

from skedulr.lead import Beat, LeadStore
from skedulr.pools.election import Election
from skedulr.wire import NotAnswered, Wire


class Plan:
    """One callback that waits for its time."""

    def __init__(self, due_s: float, callback: Callable[[], object]) -> None:
        self.due_s, self.callback, self.cancelled = due_s, callback, False

    def cancel(self) -> bool:
        self.cancelled = True
        return True


class Clock:
    """Time and a driver in one: nothing happens until a test lets time pass."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.plans: list[Plan] = []

    def __call__(self) -> float:
        return self.now_s

    def after(self, delay_s: float, callback: Callable[[], object], internal: bool) -> Plan:
        self.plans.append(Plan(self.now_s + delay_s, callback))
        return self.plans[-1]

    def pass_s(self, seconds: float) -> None:
        """Run what comes due on the way, in order."""
        end = self.now_s + seconds
        while True:
            self.plans = [one for one in self.plans if not one.cancelled]
            due = min(self.plans, key=lambda one: one.due_s, default=None)
            if due is None or due.due_s > end:
                self.now_s = end
                return
            self.plans.remove(due)
            self.now_s = max(self.now_s, due.due_s)
            due.callback()


class Node:
    """One node's election; ``beats`` is what it was answered."""

    def __init__(self, url: str, name: str) -> None:
        self.clock, self.wire = Clock(), Wire(url, name=name)
        self.beats: list[Beat] = []
        self.records = 0
        self.election = Election(
            store=LeadStore("skedulr"), wire=self.wire, node=name,
            driver=self.clock,  # type: ignore[arg-type]
            record=self._record, tuned=lambda: False, on_beat=self.beats.append,
            monotonic=self.clock,
        )
        self.pass_s = self.clock.pass_s

    def _record(self) -> tuple[bytes, list[str]]:
        self.records += 1
        return b"record", ["default"]

    def start(self) -> Node:
        self.election.start()
        self.pass_s(0)
        return self


@pytest.fixture
def node(server: Server) -> Iterator[Callable[[str], Node]]:
    made: list[Node] = []

    def make(name: str) -> Node:
        made.append(Node(server.url, name))
        return made[-1].start()

    yield make
    for one in made:
        one.election.stop()
        one.wire.close()


def test_a_leader_renews_three_times_in_the_time_it_has_and_keeps_its_record_every_third(
    node: Callable[[str], Node]
) -> None:
    alone = node("n1")
    assert alone.election.leads
    alone.pass_s(50.1)
    assert (len(alone.beats), alone.records) == (31, 11)


def test_another_node_asks_when_the_lead_would_be_free_and_not_more_often(
    node: Callable[[str], Node]
) -> None:
    node("n1")
    second = node("n2")
    assert not second.election.leads
    left_s = second.beats[0].left_ms / 1000
    second.pass_s(left_s - 0.1)
    assert len(second.beats) == 1
    second.pass_s(0.25)
    assert len(second.beats) == 2


def test_a_leader_that_gets_no_answer_leads_no_longer_than_its_time(
    node: Callable[[str], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = node("n1")

    def silence(*args: Any) -> Any:
        raise NotAnswered("away", sent=False)

    monkeypatch.setattr(alone.wire, "run", silence)
    alone.pass_s(4.9)
    assert alone.election.leads
    alone.pass_s(0.2)
    assert not alone.election.leads
    monkeypatch.undo()
    alone.pass_s(1)
    assert alone.election.leads, "nobody took it meanwhile"


def test_the_lead_is_let_go_once_and_beats_go_on(node: Callable[[str], Node]) -> None:
    first, second = node("n1"), node("n2")
    first.election.resign()
    first.election.resign()
    second.election.hurry()
    second.pass_s(0.05)
    assert second.election.leads
    first.pass_s(10.5)
    assert not first.election.leads
    assert first.beats[-1].leader == "n2"
    assert len(first.beats) <= 3

"""steer.lua: what the leader decides is written, and what one decides that leads no more is not."""

from __future__ import annotations

import msgpack
from lead_driver import Leads


def test_sizes_and_decisions_are_written_and_counted(leads: Leads) -> None:
    leads.beat("n1")
    leader = leads.state()["leader"]
    assert leads.steer("n1", 1, sizes=[("default", {"total": 8})], decisions=[{"why": "a"}]) == 1
    assert leads.steer("n1", 1, sizes=[("default", {"total": 4})], decisions=[{"why": "b"}]) == 2
    assert leads.steer("n1", 1, decisions=[{"why": "c"}]) == 2
    assert leads.state() == {
        "leader": leader,
        "tuning": {b"#": b"2", b"default": msgpack.packb({"total": 4})},
        "decisions": [msgpack.packb({"why": why}) for why in "cba"],
    }
    assert leads.store.tuned_sizes(leads.runner) == (2, {"default": {"total": 4}})


def test_a_leader_that_was_frozen_while_another_took_over_writes_nothing(leads: Leads) -> None:
    leads.beat("n1")
    leads.time_is_over()
    leads.beat("n2")
    before = leads.state()
    assert leads.steer("n1", 1, sizes=[("default", {})], decisions=[{}]) == -1
    assert leads.steer("n2", 1, sizes=[("default", {})], decisions=[{}]) == -1
    assert leads.state() == before
    assert leads.steer("n2", 2, sizes=[("default", {})]) == 1


def test_nor_does_one_whose_time_is_over_before_anybody_took_over(leads: Leads) -> None:
    leads.beat("n1")
    leads.time_is_over()
    before = leads.state()
    assert leads.steer("n1", 1, sizes=[("default", {})], decisions=[{}]) == -1
    assert leads.state() == before


def test_the_last_two_hundred_decisions_are_kept(leads: Leads) -> None:
    leads.beat("n1")
    for first in (0, 150):
        leads.steer("n1", 1, decisions=[{"n": n} for n in range(first, first + 150)])
    kept = [msgpack.unpackb(one)["n"] for one in leads.state()["decisions"]]
    assert kept == list(range(299, 99, -1))

"""tell.lua: what the leader saw, numbered; what one saw that leads no more is not written."""

from __future__ import annotations

import msgpack
from lead_driver import Leads


def test_the_last_thing_seen_is_kept_for_a_while_with_its_number(leads: Leads) -> None:
    leads.beat("n1")
    assert [leads.tell("n1", 1, {"at": 1}), leads.tell("n1", 1, {"at": 2})] == [1, 2]
    assert leads.state()["seen"] == {
        b"#": b"2", b"node": b"n1", b"term": b"1", b"saw": msgpack.packb({"at": 2}),
    }
    assert 0 < leads.runner.client.pttl(leads.store.space.seen) <= 30_000


def test_who_leads_no_more_tells_nothing(leads: Leads) -> None:
    leads.beat("n1")
    leads.tell("n1", 1, {"at": 1})
    leads.time_is_over()
    before = leads.state()
    assert leads.tell("n1", 1, {"at": 2}) == -1
    leads.beat("n2")
    assert leads.tell("n1", 1, {"at": 2}) == -1
    assert leads.state()["seen"] == before["seen"]

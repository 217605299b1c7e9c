"""listen.lua: who has hooks for the whole cluster says so, and hears what the leader saw."""

from __future__ import annotations

from lead_driver import Leads

from skedulr.lead import Heard


def test_without_a_leader_there_is_nothing_to_hear(leads: Leads) -> None:
    assert leads.store.listen(leads.runner) is None
    assert leads.state() == {"listening": b"1"}


def test_what_the_leader_saw_is_heard_with_its_number(leads: Leads) -> None:
    leads.beat("n1")
    leads.tell("n1", 1, {"pools": []})
    leads.tell("n1", 1, {"pools": [{"name": "default"}]})
    assert leads.store.listen(leads.runner) == Heard(
        2, "n1", 1, {"pools": [{"name": "default"}]}
    )

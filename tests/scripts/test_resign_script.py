"""resign.lua: a leader that stops lets the next one take over at once, under a higher term."""

from __future__ import annotations

from lead_driver import Leads


def test_after_it_the_lead_is_free_and_the_term_is_kept(leads: Leads) -> None:
    leads.beat("n1")
    assert leads.resign("n1", 1)
    assert leads.state() == {"leader": {b"term": b"1", b"left": b"n1"}}
    assert leads.beat("n2")[1:4] == (2, 5000, "n2")


def test_who_does_not_lead_under_this_term_lets_go_of_nothing(leads: Leads) -> None:
    leads.beat("n1")
    before = leads.state()
    assert not leads.resign("n2", 1)
    assert not leads.resign("n1", 2)
    assert leads.state() == before


def test_the_others_are_told(leads: Leads) -> None:
    heard = leads.runner.client.pubsub(ignore_subscribe_messages=True)
    heard.subscribe(leads.store.space.control)
    heard.get_message(timeout=1)
    leads.beat("n1")
    leads.resign("n1", 1)
    message = heard.get_message(timeout=5)
    assert message is not None and message["data"] == b"lead /"
    heard.close()

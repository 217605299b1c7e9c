"""notice.lua: of all who heard the same, one is the first to note it, and is the one to tell."""

from __future__ import annotations

from lead_driver import Leads


def test_the_first_hears_what_was_before_and_the_others_nothing(leads: Leads) -> None:
    leads.beat("n1")
    leads.tell("n1", 1)
    notes = [("leader", "1 n1"), ("default 5", "long")]
    assert leads.store.notice(leads.runner, 1, notes) == ["", ""]
    assert leads.store.notice(leads.runner, 1, notes) == [None, None]
    assert leads.store.notice(leads.runner, 1, [("leader", "2 n2")]) == ["1 n1"]
    assert leads.state()["noticed"] == {b"leader": b"2 n2", b"default 5": b"long"}
    assert leads.runner.client.pttl(leads.store.space.noticed) > 29 * 86_400_000


def test_who_heard_what_is_no_longer_the_last_word_notes_nothing(leads: Leads) -> None:
    leads.beat("n1")
    leads.tell("n1", 1)
    leads.tell("n1", 1)
    assert leads.store.notice(leads.runner, 1, [("default 5", "long")]) is None
    assert "noticed" not in leads.state()
    assert leads.store.notice(leads.runner, 2, [("default 5", "long")]) == [""]

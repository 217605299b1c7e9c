"""beat.lua: one node leads at a time, under a term that only grows; records and news beside it."""

from __future__ import annotations

from lead_driver import Leads

from skedulr.lead import REIGN_FIELDS, Reign, reign_of


def reign(leads: Leads) -> Reign:
    """Who leads now."""
    fields = leads.runner.call("HMGET", leads.store.space.leader, *REIGN_FIELDS)
    found = reign_of(fields, 0)
    assert found is not None
    return found


def test_the_first_to_come_leads_and_the_next_hears_who_does(leads: Leads) -> None:
    first = leads.beat("n1")
    assert (first.leader, first.term, first.left_ms) == ("n1", 1, 5000)
    second = leads.beat("n2")
    assert (second.leader, second.term) == ("n1", 1)
    assert 0 < second.left_ms <= 5000
    assert leads.state() == {"leader": {
        b"node": b"n1", b"term": b"1", b"until": b"%d" % (first.now_ms + 5000),
        b"since": b"%d" % first.now_ms, b"how": b"first",
    }}


def test_a_leader_that_beats_goes_on_under_its_term(leads: Leads) -> None:
    leads.beat("n1")
    again = leads.beat("n1", known_term=1)
    assert (again.leader, again.term, again.left_ms) == ("n1", 1, 5000)
    assert leads.state()["leader"][b"until"] == b"%d" % (again.now_ms + 5000)


def test_a_lead_that_ran_out_is_taken_under_the_next_term(leads: Leads) -> None:
    leads.beat("n1")
    leads.time_is_over()
    taken = leads.beat("n2")
    assert (taken.leader, taken.term) == ("n2", 2)
    assert reign(leads) == ("n2", 2, taken.now_ms / 1000, "node n1 was not heard of any more")
    late = leads.beat("n1", known_term=1)
    assert (late.leader, late.term) == ("n2", 2)


def test_a_leader_that_comes_late_and_finds_nobody_goes_on_as_the_same(leads: Leads) -> None:
    leads.beat("n1")
    since = reign(leads)
    leads.time_is_over()
    assert leads.beat("n1", known_term=1)[1:4] == (1, 5000, "n1")
    assert reign(leads) == since


def test_who_does_not_want_to_lead_takes_nothing_and_renews_nothing(leads: Leads) -> None:
    assert leads.beat("n1", willing=False)[1:4] == (0, 0, "")
    leads.beat("n1")
    before = leads.state()
    assert leads.beat("n1", willing=False).leader == "n1"
    assert leads.state() == before
    leads.time_is_over()
    assert leads.beat("n1", willing=False)[1:4] == (0, 0, "")


def test_the_term_grows_also_where_redis_forgot_it(leads: Leads) -> None:
    leads.beat("n1")
    leads.runner.call("FLUSHALL")
    assert leads.beat("n2", known_term=7).term == 8
    assert reign(leads)[3] == "Redis had lost who led before"


def test_it_is_kept_since_when_a_node_leads_and_why_it_could(leads: Leads) -> None:
    first = leads.beat("n1")
    leads.beat("n1", known_term=1)
    assert reign(leads) == ("n1", 1, first.now_ms / 1000, "nobody had led before")
    leads.resign("n1", 1)
    second = leads.beat("n2")
    assert reign(leads) == (
        "n2", 2, second.now_ms / 1000, "node n1 stopped and let go of it"
    )
    assert b"left" not in leads.state()["leader"]


def test_a_lead_that_an_older_release_took_has_no_reason() -> None:
    assert reign_of([b"n1", b"4", b"9000", None, None], 8000) == ("n1", 4, None, "")
    assert reign_of([b"n1", b"4", b"9000", b"1", b"first"], 9000) is None


def test_a_clock_that_was_set_back_keeps_the_lead_for_nobody(leads: Leads) -> None:
    beat = leads.beat("n1")
    leads.runner.call("HSET", leads.store.space.leader, "until", beat.now_ms + 3_600_000)
    assert leads.beat("n2").leader == "n2"


def test_a_record_is_kept_with_the_pools_it_serves(leads: Leads) -> None:
    beat = leads.beat("n1", record=b"record", pools=["default", "cpu"])
    again = leads.beat("n1", record=b"newer", pools=["default"])
    leads.beat("n1")
    state = leads.state()
    assert state["nodes"] == {b"n1": b"newer"}
    assert state["pools"] == {b"default": b"%d" % beat.now_ms, b"cpu": b"%d" % beat.now_ms}
    assert again.now_ms >= beat.now_ms


def test_it_says_how_often_sizes_changed_and_who_is_to_be_minded(leads: Leads) -> None:
    assert leads.beat("n1")[4:8] == (0, 0, False, False)
    leads.runner.call("HSET", leads.store.space.sizes, "#", 3)
    leads.runner.call("HSET", leads.store.space.tuning, "#", 4)
    leads.store.listen(leads.runner)
    assert leads.beat("n2", tuned=True)[4:8] == (3, 4, True, True)
    assert leads.beat("n3")[6:8] == (True, True), "of any node"
    assert 0 < leads.runner.client.pttl(leads.store.space.watched) <= 30_000
    assert 0 < leads.runner.client.pttl(leads.store.space.listening) <= 30_000


def test_a_leader_that_is_to_watch_pools_hears_all_it_needs_to_know_of_nodes(leads: Leads) -> None:
    leads.beat("n1", record=b"one", tuned=True)
    leads.beat("n2", record=b"two")
    leads.runner.call("HSET", leads.store.space.sizes, "#", 1, "mail", 3)
    beat = leads.beat("n1", record=b"newer")
    assert sorted(beat.records) == [b"newer", b"two"]
    assert sorted(beat.sized) == [b"#", b"mail"]
    assert leads.beat("n2")[8:] == (None, None), "it does not lead"
    leads.runner.call("DEL", leads.store.space.watched)
    assert leads.beat("n1")[8:] == (None, None), "nothing is to be watched"


def test_of_hundreds_of_nodes_a_leader_asks_apart(leads: Leads) -> None:
    leads.runner.call("HSET", leads.store.space.nodes, *(n for n in range(500) for _ in "kv"))
    assert len(leads.beat("n1", tuned=True).records or ()) == 500
    leads.runner.call("HSET", leads.store.space.nodes, "one", "more")
    assert leads.beat("n1", tuned=True)[8:] == (None, None)

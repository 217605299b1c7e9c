"""attach.lua: edges are kept with the parent, in pages, and each once."""

from __future__ import annotations

from script_driver import Scripts, task


def test_an_edge_to_a_task_that_has_not_ended_is_kept(pool: Scripts) -> None:
    pool.submit(task("a"))
    before = pool.state()
    assert pool.attach(("a", "other/c,1,0", "")).verdicts == "p"
    assert pool.state() == before | {"edges": {"a": "0,1 other/c,1,0"}}


def test_an_ended_parent_is_told_of_and_keeps_its_edge_as_well(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.finish_now("a")
    assert pool.attach(("a", "default/c,1,0", "")).verdicts == "e"
    assert pool.state()["edges"] == {"a": "0,1 default/c,1,0"}


def test_an_unknown_parent_changes_nothing_unless_it_may_be_missing(pool: Scripts) -> None:
    assert pool.attach(("a", "default/c,1,0", "")).verdicts == "n"
    assert pool.state() == {}
    assert pool.attach(("a", "default/c,1,0", "m")).verdicts == "p"
    assert pool.state() == {"edges": {"a": "0,1 default/c,1,0"}}


def test_a_repeat_changes_nothing(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    edges = [("a", "default/c,1,0", ""), ("b", "default/c,2,0", ""), ("a", "default/d,1,0", "")]
    assert pool.attach(*edges).verdicts == "ppp"
    before = pool.state()
    assert pool.attach(*edges).verdicts == "ppp"
    assert pool.state() == before
    assert before["edges"] == {
        "a": "0,2 default/c,1,0 default/d,1,0", "b": "0,1 default/c,2,0",
    }


def test_many_edges_of_one_parent_lie_in_pages(pool: Scripts) -> None:
    pool.submit(task("a"))
    for at in range(0, 1200, 400):
        pool.attach(*(("a", f"default/c{n},1,0", "") for n in range(at, at + 400)))
    edges = pool.state()["edges"]
    assert sorted(edges) == ["a", "a,1", "a,2"]
    assert edges["a"].startswith("2,200 default/c0,1,0 ")
    found = " ".join(edges[one] for one in sorted(edges)).split()
    assert [one for one in found if "/" in one] == [f"default/c{n},1,0" for n in range(1200)]


def test_no_edge_is_no_work(pool: Scripts) -> None:
    assert pool.attach().rest == [""]
    assert pool.state() == {}

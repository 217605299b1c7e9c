"""Shares: the sum is the total, who has more free gets more, and one more worker moves none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skedulr.pools.shares import Place, pack, share, shares_of

places = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 20), st.floats(0.1, 16)),
    min_size=1, max_size=5,
).map(lambda rows: [
    Place(f"n{n}", processes, least, least + more, weight)
    for n, (processes, least, more, weight) in enumerate(rows)
])


def total_of(shares: dict[str, list[int]]) -> int:
    return sum(map(sum, shares.values()))


@given(places, st.integers(0, 200))
def test_the_sum_is_the_total_within_what_the_places_may_have(
    given_places: list[Place], total: int
) -> None:
    shares = share(total, given_places)
    least = sum(place.processes * place.least for place in given_places)
    most = sum(place.processes * place.most for place in given_places)
    assert total_of(shares) == min(most, max(least, total))
    for place in given_places:
        assert len(shares[place.node]) == place.processes
        assert all(place.least <= has <= place.most for has in shares[place.node])


@given(places, st.integers(0, 100))
def test_one_worker_more_takes_none_away_elsewhere(given_places: list[Place], total: int) -> None:
    before, after = share(total, given_places), share(total + 1, given_places)
    for node in before:
        pairs = zip(before[node], after[node], strict=True)
        assert all(one <= other for one, other in pairs)


def test_a_node_with_more_free_has_more() -> None:
    shares = share(12, [Place("busy", 1, 1, 20, 1.0), Place("free", 1, 1, 20, 3.0)])
    assert shares == {"busy": [3], "free": [9]}


def test_what_is_published_reads_back_and_what_is_broken_does_not() -> None:
    these = [Place("a", 2, 1, 8, 1.5)]
    assert shares_of(pack(5, these)) == share(5, these) == {"a": [3, 2]}
    assert shares_of(None) is None
    assert shares_of({"total": 3, "places": [["a"]]}) is None

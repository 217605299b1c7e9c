"""What a process holds: nothing is started that may be another's by now."""

from __future__ import annotations

import time

from skedulr.pools.holdings import Holdings
from skedulr.store import Claims


def holding(*uids: bytes, lease_s: float = 10.0) -> Holdings:
    """Claimed under token t, none started."""
    holdings = Holdings(lease_s)
    claim(holdings, b"t", *uids)
    return holdings


def claim(holdings: Holdings, token: bytes, *uids: bytes) -> None:
    rows = [part for at, uid in enumerate(uids) for part in (uid, b"%d" % at, b"body", b"")]
    holdings.accept(Claims(0, None, [], rows, token), 0, time.monotonic())


def test_what_a_renewal_found_lost_is_not_started_though_the_hub_has_not_heard_of_it() -> None:
    holdings = holding(b"a", b"b", b"c")
    # As after a stop for longer than the lease: its own heart renews before its workers look.
    assert len(holdings.begin_renewal()) == 3
    holdings.end_renewal(time.monotonic(), [(b"a", b"t"), (b"c", b"t")])
    taken = holdings.take(time.monotonic())
    assert taken is not None and taken.uid == b"b"
    assert holdings.take(time.monotonic()) is None
    assert list(holdings.held) == [b"b"]


def test_a_newer_claim_of_what_was_lost_stays() -> None:
    holdings = holding(b"a")
    claim(holdings, b"newer", b"a")
    holdings.end_renewal(time.monotonic(), [(b"a", b"t")])
    taken = holdings.take(time.monotonic())
    assert taken is not None and taken.token == b"newer"
    assert holdings.held == {b"a": b"newer"}


def test_what_was_taken_is_not_surely_ours_once_it_was_found_lost_or_nothing_was_renewed() -> None:
    """Its arguments were read from Redis meanwhile."""
    holdings = holding(b"a")
    assert holdings.take(time.monotonic()) is not None
    assert holdings.is_surely_ours(b"a", b"t")
    holdings.end_renewal(time.monotonic() - 11)
    assert not holdings.is_surely_ours(b"a", b"t")
    holdings.end_renewal(time.monotonic(), [(b"a", b"t")])
    assert not holdings.is_surely_ours(b"a", b"t")
    holdings.forget(b"a", b"t")
    assert holdings.lost == set()


def test_nothing_is_started_once_no_renewal_got_through_for_a_lease() -> None:
    holdings = holding(b"a", lease_s=0.0)
    assert holdings.take(time.monotonic()) is None
    assert holdings.in_doubt

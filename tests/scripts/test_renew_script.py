"""renew.lua: an owner that lives keeps what it holds, and hears what it lost."""

from __future__ import annotations

from script_driver import LEASE, Scripts, task


def test_leases_move_on_and_nothing_else_changes(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"), task("c"))
    taken = pool.claim(want=2, lease=10)
    before = pool.state("leases")
    renewed = pool.renew(("a", taken.token), ("b", taken.token))
    assert renewed.rest == [[], []]
    assert pool.state("leases") == before
    assert pool.state()["leases"] == {"a": renewed.now + LEASE, "b": renewed.now + LEASE}


def test_an_expired_claim_that_nobody_recovered_is_renewed(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.let_leases_expire("a")
    renewed = pool.renew(("a", taken.token))
    assert renewed.rest == [[], []]
    assert pool.state()["leases"] == {"a": renewed.now + LEASE}


def test_claims_that_are_lost_are_named_and_their_leases_stay(pool: Scripts) -> None:
    pool.submit(*(task(uid) for uid in "abcd"))
    old = pool.claim("n1")
    pool.release(("b", old.token))
    other = pool.claim("n2")
    pool.finish(("c", old.token, "s", b"x"))
    pool.renew(("b", other.token), owner="n2", lease=50_000)
    leases = pool.state()["leases"]
    renewed = pool.renew(*((uid, old.token) for uid in "abcd"), ("never", old.token))
    assert renewed.rest == [["b", "c", "never"], []]
    assert pool.state()["leases"] == leases | {"a": renewed.now + LEASE, "d": renewed.now + LEASE}


def test_what_another_owner_holds_by_now_leaves_the_owners_set(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    old = pool.claim("n1")
    pool.sweeps_have_run()
    pool.let_leases_expire()
    pool.recover()
    assert pool.state()["owned:n1"] == {"a", "b"}
    pool.claim("n2", want=1)
    mine = pool.claim("n1")
    pool.renew(("a", old.token), ("b", old.token), ("b", mine.token))
    # b is held under a newer token: the owner's death must still find it.
    assert pool.state()["owned:n1"] == {"b"}


def test_cancelled_tasks_are_named_at_every_renewal(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim()
    pool.cancel("b")
    for _ in range(2):
        assert pool.renew(("a", taken.token), ("b", taken.token)).rest == [[], ["b"]]


def test_a_released_owner_has_lost_everything(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    pool.release_owner()
    before = pool.state()
    assert pool.renew(("a", taken.token)).rest == [["a"], []]
    assert pool.state() == before


def test_an_owner_that_holds_nothing_renews_nothing(pool: Scripts) -> None:
    assert pool.renew().rest == [[], []]
    assert pool.state() == {}


def test_an_owners_keys_live_a_day_after_its_last_renewal(pool: Scripts) -> None:
    pool.submit(task("a"))
    taken = pool.claim()
    for key in pool.keys.of(("owned", "own"), "n1"):
        pool.call("EXPIRE", key, 5)
    pool.renew(("a", taken.token))
    for key in pool.keys.of(("owned", "own"), "n1"):
        assert 86_390 < pool.call("TTL", key) <= 86_400


def test_an_owners_keys_have_an_expiry_before_its_first_renewal(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    taken = pool.claim(want=1)
    pool.finish(("a", taken.token, "s", b"x"))
    pool.claim(want=1)
    for key in pool.keys.of(("owned", "own"), "n1"):
        assert 86_390 < pool.call("TTL", key) <= 86_400


def test_500_claims_in_one_call(pool: Scripts) -> None:
    pool.submit(*(task(f"a{i}") for i in range(500)))
    taken = pool.claim(want=500)
    renewed = pool.renew(*((uid, taken.token) for uid in taken.uids))
    assert set(pool.state()["leases"].values()) == {renewed.now + LEASE}


def test_a_full_redis_still_renews(real: Scripts) -> None:
    real.submit(task("a"))
    taken = real.claim()
    real.runner.server.fill()
    renewed = real.renew(("a", taken.token), lease=99_000)
    assert real.state()["leases"] == {"a": renewed.now + 99_000}

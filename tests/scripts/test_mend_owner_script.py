"""mend_owner.lua: what an owner is said to hold is what it has claimed, and has an expiry."""

from __future__ import annotations

import pytest
import redis
from script_driver import Scripts, task


def mend(pool: Scripts, what: str, *ids: str, owner: str = "n1") -> str:
    letters: bytes = pool.run("mend_owner", what, owner, *ids, owner=owner)[1]
    return letters.decode()


def test_a_claim_gets_among_what_its_owner_holds(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"), task("c"))
    pool.claim(want=2)
    before = pool.state()
    pool.call("DEL", f"{pool.keys.prefix}owned:n1")
    assert mend(pool, "own", "a", "b", "c", "ghost") == "mm--"
    assert pool.state() == before
    assert mend(pool, "own", "a", "b") == "--"


def test_what_another_one_claims_is_not_taken_over(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim("n1")
    assert mend(pool, "own", "a", owner="n") == "-"
    assert "owned:n" not in pool.state()


def test_a_released_owner_gets_nothing_back(pool: Scripts) -> None:
    pool.release_owner()
    pool.submit(task("a"))
    pool.call("HSET", pool.keys.claims, "a", "n1:1 5 0")
    assert mend(pool, "own", "a") == "-"


def test_an_id_that_it_has_not_claimed_goes(pool: Scripts) -> None:
    pool.submit(task("a"), task("b"))
    pool.claim("n1", want=1)
    pool.claim("n2", want=1)
    before = pool.state()
    pool.call("SADD", f"{pool.keys.prefix}owned:n1", "b", "ghost")
    assert mend(pool, "disown", "a", "b", "ghost", "c") == "-mm-"
    assert pool.state() == before


def test_what_has_no_expiry_gets_one_and_another_one_stays(pool: Scripts) -> None:
    pool.submit(task("a"))
    pool.claim()
    owned, own = (f"{pool.keys.prefix}{name}:n1" for name in ("owned", "own"))
    pool.call("PERSIST", owned)
    pool.call("EXPIRE", own, 50)
    assert mend(pool, "expire", "owned", "own") == "m-"
    assert pool.call("TTL", owned) in range(86_300, 86_401)
    assert pool.call("TTL", own) in range(40, 51)


def test_a_mend_nobody_knows_is_an_error(pool: Scripts) -> None:
    with pytest.raises(redis.exceptions.ResponseError, match="nothing is mended that way"):
        mend(pool, "xyz", "a")

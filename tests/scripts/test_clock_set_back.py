"""A server's clock that ran hours ahead and was set right: nothing lasts for hours because of it.

What was written under the clock that was ahead is made by hand: times in sorted sets are shifted,
and the times of pending entries of a stream in its dump.
"""

from __future__ import annotations

import re
import struct

from script_driver import LEASE, Scripts, task
from servers import wait_until

HOURS_MS = 3 * 3_600_000
#: What a lease may be longer than the longest there is, ms (see clock_set_back.lua).
SLACK_MS = 60_000


def settle(pool: Scripts, lease: int = LEASE, transport: str = "") -> None:
    """As a master with this lease does at its start."""
    pool.run("set_transport", transport, lease)


def clock_was_ahead(pool: Scripts, ms: int = HOURS_MS) -> None:
    """Everything that has a time was written under a clock that was ``ms`` ahead."""
    keys = pool.keys
    for key in (keys.leases, keys.outbox):
        for member, score in pool.runner.client.zrange(key, 0, -1, withscores=True):
            pool.call("ZADD", key, "XX", repr(score + ms), member)
    pool.call("HSET", keys.meta, "swept", pool.now() + ms, "recover_after", pool.now() + ms)
    if pool.call("HEXISTS", keys.meta, "visibility_at"):
        pool.call("HINCRBY", keys.meta, "visibility_at", ms)
    if pool.runner.client.exists(keys.stream):
        shift_pending(pool, ms)


def shift_pending(pool: Scripts, ms: int) -> None:
    """The entries that are pending showed their last sign of life ``ms`` later."""
    client, stream = pool.runner.client, pool.keys.stream
    dump = client.dump(stream)
    body, version = bytearray(dump[:-10]), dump[-10:-8]
    found = 0
    for entry in client.xpending_range(stream, "workers", "-", "+", 1000):
        uid = struct.pack(">QQ", *map(int, entry["message_id"].split(b"-")))
        # The entry's number, then a time of eight bytes, in the list of all that is pending.
        for at in (match.end() for match in re.finditer(re.escape(uid), bytes(body[:-8]))):
            [then] = struct.unpack_from("<q", body, at)
            if abs(then - pool.now()) < 60_000:
                struct.pack_into("<q", body, at, then + ms)
                found += 1
    assert found == client.xpending(stream, "workers")["pending"]
    signed = bytes(body) + version
    client.restore(stream, 0, signed + struct.pack("<Q", crc64(signed)), replace=True)


def crc64(data: bytes) -> int:
    """The checksum of a dump (Jones' polynomial, reflected)."""
    sum_ = 0
    for byte in data:
        sum_ ^= byte
        for _ in range(8):
            sum_ = sum_ >> 1 ^ (0x95AC9329AC4BC9B5 if sum_ & 1 else 0)
    return sum_


def outlast(pool: Scripts, ms: int) -> None:
    """Until the server's clock is so much further: pending entries know no other one."""
    end = pool.now() + ms
    wait_until(lambda: pool.now() > end, what="the time is over")


def the_grace_is_over(pool: Scripts) -> None:
    pool.call("HSET", pool.keys.meta, "recover_after", 1)


def test_a_lease_that_is_further_away_than_any_can_be_is_cut(pool: Scripts) -> None:
    settle(pool)
    pool.submit(task("a"))
    pool.claim()
    clock_was_ahead(pool)
    swept = pool.recover()
    assert swept.rest == [[], 0]
    assert pool.state()["leases"] == {"a": swept.now + LEASE}
    pool.let_leases_expire()
    the_grace_is_over(pool)
    assert pool.recover().rest == [["a"], 0]


def test_its_owner_has_a_whole_lease_to_renew_it(pool: Scripts) -> None:
    settle(pool)
    pool.submit(task("a"))
    taken = pool.claim()
    clock_was_ahead(pool)
    first = pool.recover()
    assert pool.state()["meta"]["recover_after"] == str(first.now + LEASE)
    pool.renew(("a", taken.token))
    the_grace_is_over(pool)
    assert pool.recover().rest == [[], 0]
    assert pool.finish(("a", taken.token, "s", b"x")).verdicts == "k"


def test_it_is_cut_also_where_no_sweep_saw_the_clock_ahead(pool: Scripts) -> None:
    settle(pool)
    pool.submit(task("a"))
    pool.claim()
    clock_was_ahead(pool)
    pool.sweeps_have_run()
    swept = pool.recover()
    assert pool.state()["leases"] == {"a": swept.now + LEASE}


def test_a_lease_that_another_node_has_longer_is_left_alone(pool: Scripts) -> None:
    settle(pool, 40 * LEASE)
    pool.sweeps_have_run()
    settle(pool)
    pool.submit(task("a"))
    taken = pool.claim(lease=40 * LEASE)
    pool.recover()
    assert pool.state()["leases"] == {"a": taken.now + 40 * LEASE}
    clock_was_ahead(pool)
    swept = pool.recover()
    assert pool.state()["leases"] == {"a": swept.now + 40 * LEASE}
    assert pool.state()["meta"]["recover_after"] == str(swept.now + 40 * LEASE)


def test_a_longer_lease_counts_no_more_once_nobody_swept_who_has_it(pool: Scripts) -> None:
    def longest() -> str:
        return str(pool.state()["meta"]["visibility"])

    settle(pool, 40 * LEASE)
    pool.sweeps_have_run()
    settle(pool)
    pool.recover()
    assert longest() == str(40 * LEASE)
    pool.call("HINCRBY", pool.keys.meta, "visibility_at", -39 * LEASE)
    pool.recover(lease=40 * LEASE)
    pool.call("HINCRBY", pool.keys.meta, "visibility_at", -39 * LEASE)
    pool.recover()
    assert longest() == str(40 * LEASE)
    pool.call("HINCRBY", pool.keys.meta, "visibility_at", -2 * LEASE)
    pool.recover()
    assert longest() == str(LEASE)


def test_more_of_them_than_the_limit_are_cut_page_by_page(pool: Scripts) -> None:
    settle(pool)
    pool.submit(*(task(f"a{i}") for i in range(5)))
    pool.claim()
    clock_was_ahead(pool)
    assert [pool.recover(limit=2).rest[1] for _ in range(4)] == [1, 1, 0, 0]
    assert max(pool.state()["leases"].values()) <= pool.now() + LEASE


def test_pending_entries_of_a_stream_are_given_a_time_that_is_now(real: Scripts) -> None:
    pool = real
    settle(pool, 50, "streams")
    pool.submit(*(task(f"a{i}") for i in range(5)))
    pool.claim("n1", want=3)
    held = pool.claim("n2")
    clock_was_ahead(pool)
    assert [pool.recover(limit=2, lease=50).rest for _ in range(3)] == [[[], 1], [[], 1], [[], 0]]
    consumers = pool.runner.client.xinfo_consumers(pool.keys.stream, "workers")
    assert {one["name"]: one["pending"] for one in consumers} == {b"n1": 3, b"n2": 2}
    outlast(pool, 60)
    pool.renew(*((uid, held.token) for uid in held.uids), owner="n2", lease=50)
    the_grace_is_over(pool)
    assert sorted(pool.recover(lease=50).rest[0]) == ["a0", "a1", "a2"]
    ends = [(uid, held.token, "s", b"x") for uid in held.uids]
    assert pool.finish(*ends, owner="n2").verdicts == "kk"


def test_without_a_step_back_they_stay_away(real: Scripts) -> None:
    """So the test above tests something: a real server does as it says."""
    pool = real
    settle(pool, 50, "streams")
    pool.submit(task("a"))
    pool.claim()
    clock_was_ahead(pool)
    pool.sweeps_have_run()
    pool.recover(lease=50)
    outlast(pool, 60)
    the_grace_is_over(pool)
    assert pool.recover(lease=50).rest == [[], 0]


def test_what_waits_to_be_delivered_is_delivered_all_the_same(pool: Scripts) -> None:
    pool.call("ZADD", pool.keys.outbox, pool.now(), "s a")
    clock_was_ahead(pool)
    _, score, *items = pool.run("take", 10, 0, 5000)
    assert items == [b"s a", b""]
    assert abs(float(score) - pool.now()) < SLACK_MS

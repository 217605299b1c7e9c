"""How many records a pool keeps: by count, and by the memory they take, the dead last."""

from __future__ import annotations

import math

import pytest

from skedulr import message
from skedulr.hub.driver import Driver
from skedulr.keys import PoolKeys
from skedulr.pools import poison
from skedulr.pools.sweeper import Keep, Sweeper
from skedulr.store import Records, Store
from skedulr.wire import Wire


@pytest.mark.parametrize(("keep", "there", "counts"), [
    (Keep(1, 10, 5), Records(100, 50, 1000.0), (10, 5)),
    (Keep(1, 1000, 1000, 1e6), Records(0, 0, 0.0), (1000, 1000)),
    (Keep(1, 1000, 1000, 100_000), Records(60, 20, 1000.0), (1000, 1000)),
    (Keep(1, 1000, 1000, 100_000), Records(100, 20, 1000.0), (80, 20)),
    (Keep(1, 1000, 1000, 100_000), Records(10, 150, 1000.0), (0, 100)),
    (Keep(1, 50, 10, 100_000), Records(100, 20, 1000.0), (50, 10)),
    (Keep(1, 50, 10, math.inf), Records(100, 20, 1e9), (50, 10)),
], ids=["by count", "nothing there", "all fit", "ended ones go first", "then dead ones",
        "the count is less", "no bound in bytes"])
def test_what_is_kept_of_what_is_there(keep, there, counts):
    assert keep.counts(there) == counts


def test_records_beyond_the_memory_are_forgotten_oldest_first(server):
    keys, now = PoolKeys("skedulr", "default"), 1_700_000_000_000
    entry = message.entry(message.SUCCEEDED, "w", 1, 0, "x" * 1000)
    for n in range(40):
        server.client.hset(keys.records, f"t{n}", entry)
        server.client.zadd(keys.done, {f"t{n}": now + n})
    wire = Wire(server.url, name="skedulr:test")
    sweeper = Sweeper(
        store=Store(keys), wire=wire, driver=Driver(), lease_s=15, judgement=poison.judge_host(),
        keep=Keep(10 * 365 * 86_400, 1000, 1000, 30_000),
    )
    forgotten = sweeper.trim()
    left = [uid.decode() for uid in server.client.zrange(keys.done, 0, -1)]
    # About 1,200 bytes each: some 25 fit. The newest stay, and with them their records.
    assert 10 <= forgotten <= 20
    assert left == [f"t{n}" for n in range(forgotten, 40)]
    assert server.client.hlen(keys.records) == len(left)
    assert sweeper.trim() == 0
    wire.close()

"""Skedulr, broken on purpose: one guarantee taken out at a time, for the suite to catch.

    python variants.py NAME MASTER-ARGUMENTS      a master, and its children, of that variant

A variant replaces lines of Lua as they are read, or one method; production code knows nothing of
it. A replacement that does not find its line is an error: a variant that breaks nothing would
make the suite look blind.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Change(NamedTuple):
    """In this Lua file ``old`` becomes ``new``."""

    file: str
    old: str
    new: str


LUA: dict[str, tuple[Change, ...]] = {
    # Whoever asks holds the claim, whatever the token says.
    "token_unchecked": (Change(
        "includes/claim_text.lua",
        "return text and string.sub(text, 1, #start) == start",
        "return text and true",
    ),),
    # The owner is told that all is well, and its leases run out.
    "lease_not_renewed": (Change(
        "renew.lua",
        "lease_renew({stream = stream, leases = leases, meta = meta}, held, texts, expiry)",
        "local _ = held",
    ),),
    # A repeated call is taken for a new one.
    "numbers_ignored": (Change(
        "includes/lane.lua",
        "if last == number then return answer end",
        "if last == number then return nil, stored[3] end",
    ),),
    # Leases that expired while Redis was away count as those of dead processes.
    "no_grace": (Change(
        "recover.lua",
        "return now >= after or after - now > longest",
        "return true",
    ),),
    # Promotion by reading what is due and moving it afterwards: see _promote_in_two_steps.
    "promote_not_atomic": (Change(
        "includes/promote_due.lua",
        "if count == 0 then return 0 end",
        "if true then return 0 end",
    ),),
}


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Skedulr as this variant inside of the block, in this process; None: as it is."""
    from skedulr import redis_scripts, store

    if name is None:
        yield
        return
    read, promote = redis_scripts._read, store.Store.promote
    redis_scripts._read = _reader(read, LUA[name])
    if name == "promote_not_atomic":
        store.Store.promote = _promote_in_two_steps(promote)  # type: ignore[method-assign]
    _forget_scripts()
    try:
        for change in LUA[name]:
            redis_scripts._read(change.file)
        yield
    finally:
        redis_scripts._read, store.Store.promote = read, promote  # type: ignore[method-assign]
        _forget_scripts()


def _reader(read: Callable[[str], str], changes: tuple[Change, ...]) -> Callable[[str], str]:
    def changed(path: str) -> str:
        text = read(path)
        for file, old, new in changes:
            if path == file:
                if text.count(old) != 1:
                    raise ValueError(f"{file} has no line {old!r} (any more): mend the variant")
                text = text.replace(old, new)
        return text

    return changed


def _forget_scripts() -> None:
    from skedulr import redis_scripts, store

    redis_scripts.script.cache_clear()
    store._scripts.clear()


def _promote_in_two_steps(promote: Callable[..., Any]) -> Callable[..., Any]:
    def promote_after_moving(self: Any, wire: Any, *args: Any) -> Any:
        import gevent

        keys = self.keys
        seconds, microseconds = wire.call("TIME")
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        due = wire.call("ZRANGEBYSCORE", keys.delayed, "-inf", now_ms)
        if due:
            # What comes between the two steps once in a while comes here every time: who is second
            # moves them when they were claimed already.
            gevent.sleep(0.1 + 0.15 * (wire.call("INCR", "faults-turn") % 2))
        for uid in due:
            wire.call("ZREM", keys.delayed, uid)
            wire.call("ZADD", keys.ready, now_ms, uid)
            wire.call("RPUSH", keys.wake, "1")
        return promote(self, wire, *args)

    return promote_after_moving


def _let_the_clock_jump() -> None:
    """The wall clock of this process is a day ahead in one second and a day behind in the next."""
    real = time.time

    def jumping() -> float:
        return real() + (86_400 if int(time.monotonic()) % 2 else -86_400)

    time.time = jumping


def main() -> int:
    """What ``skedulr-master`` does, as a variant; or, no variant, with a ``jumping_clock``, or
    ``hurried``: where children die one after the other, the next one comes soon all the same."""
    from gevent import monkey

    monkey.patch_all()
    name: str | None = sys.argv[1]
    if name == "jumping_clock":
        _let_the_clock_jump()
        name = None
    if name == "hurried":
        from skedulr.pools import children

        children.LONGEST_PAUSE_S = 0.1
        name = None
    from skedulr.launch import run

    with broken(name):
        return run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())

"""Calls that type checkers refuse.

Each line that ends in ``# E: code`` gives mypy that error (or those), and no other line gives one.
Pyright has an error on each of these lines as well, and on no other.
"""

from __future__ import annotations

from typing import Any

import skedulr
from skedulr import Call, Handle, Task


@skedulr.task
def plain(a: int, b: str = "") -> str:
    return b * a


@skedulr.task(name="other", pool="p")
def other(n: int, *, flag: bool) -> int:
    return n


plain()  # E: call-arg
plain("1")  # E: arg-type
plain.submit()  # E: call-arg
plain.submit("1")  # E: arg-type
plain.submit(1, 2)  # E: arg-type
plain.submit(1, "b", 3)  # E: call-arg
plain.submit(1, c="c")  # E: call-arg
plain.submit(1, priority=3)  # E: call-arg
plain.bind("1")  # E: arg-type
other.submit(1, True)  # E: call-arg
other.submit(1)  # E: call-arg
plain.using(priority=3).submit("1")  # E: arg-type

number: int = plain.submit(1).result()  # E: assignment
handle: Handle[int] = plain.submit(1)  # E: assignment
call: Call[int] = plain.bind(1)  # E: assignment
narrowed: Task[[int], str] = other  # E: assignment
plain.submit(1).id = "x"  # E: misc
plain.submit(1).state = "x"  # E: misc

plain.using(prioritty=3)  # E: call-arg
plain.using(priority="high")  # E: arg-type
plain.using(delay="5")  # E: arg-type
plain.using(at="2026-08-01")  # E: arg-type
plain.using(timeout="1")  # E: arg-type
plain.using(retry=3)  # E: arg-type
plain.using(retry_on=ValueError())  # E: arg-type
plain.using(unique="until")  # E: arg-type
plain.using(on_duplicate="ignore")  # E: arg-type
plain.using(tags="red")  # E: arg-type
plain.using(3)  # E: arg-type,call-arg


@skedulr.task(pol="critical")  # E: call-overload,untyped-decorator
def misspelt() -> None: ...


@skedulr.task(pool=3)  # E: call-overload,untyped-decorator
def wrong_pool() -> None: ...


skedulr.submit(plain, "1")  # E: call-overload
skedulr.submit(plain)  # E: call-overload
skedulr.submit(plain.bind(1), 2)  # E: call-overload
skedulr.submit(3)  # E: call-overload
skedulr.submit_many([plain])  # E: arg-type
skedulr.wait([plain.bind(1)])  # E: list-item
skedulr.get(3)  # E: arg-type
skedulr.remote("x", prioritty=1)  # E: call-arg
skedulr.sumbit("x")  # E: attr-defined
known: list[Handle[int]] = skedulr.submit_many([plain.bind(1)])  # E: list-item


def needs_str(task: Task[[str], Any]) -> None: ...


needs_str(plain)  # E: arg-type

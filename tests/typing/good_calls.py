"""Calls that type checkers accept, and what they know of the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import skedulr
from skedulr import Call, Handle, Skedulr, Task

# --- the signature and the result go through ------------------------------------------------------


@skedulr.task
def plain(a: int, b: str = "", *rest: float, flag: bool = False) -> list[str]:
    return [b * a]


@skedulr.task(
    name="send_email", pool="critical", timeout=30, max_retries=3,
    retry=skedulr.ExponentialBackoff(base=0.5, cap=10, jitter=0.2), retry_on=(OSError, ValueError),
    never_retry_on=KeyError, keep_result=False, tags=["mail"], headers={"a": 1},
)
def send_email(to: str) -> str:
    return to


@skedulr.task()
def nothing() -> None: ...


assert_type(plain(1, "x", 2.0, flag=True), list[str])
assert_type(plain.submit(1, "x", 2.0, flag=True), Handle[list[str]])
assert_type(plain.submit(1).result(), list[str])
assert_type(send_email.submit("a@example.com"), Handle[str])
assert_type(send_email.submit(to="a@example.com").result(timeout=5), str)
assert_type(nothing.submit().result(timedelta(seconds=5)), None)
assert_type(send_email.bind("a@example.com"), Call[str])
assert_type(send_email.bind("a@example.com").submit(), Handle[str])

# --- options --------------------------------------------------------------------------------------


class Patient:
    def next_delay(self, attempt: int, error: BaseException | None) -> float:
        return 60 * attempt


assert_type(
    send_email.using(
        priority=10, delay=60, key="u{to}", id="x", pool="p", timeout=None, max_retries=None,
        expires=timedelta(minutes=1), unique="until_done", on_duplicate="return",
        retry=skedulr.LinearRetry(base=1),
    ).submit("a@example.com"),
    Handle[str],
)
send_email.using(at=datetime.now(UTC)).submit("a")
send_email.using(at=1_785_600_000.5, unique=60).submit("a")
send_email.using(delay=timedelta(hours=1), unique=timedelta(minutes=1), retry=Patient()).submit("a")
assert_type(send_email.using(priority=1).using(delay=2).bind("a"), Call[str])

# --- the functions of the package -----------------------------------------------------------------

assert_type(skedulr.submit(plain, 1, "x", flag=True), Handle[list[str]])
assert_type(skedulr.submit(send_email.bind("a")), Handle[str])
assert_type(skedulr.submit("send_email", to="a"), Handle[Any])
assert_type(skedulr.remote("send_email", pool="critical"), Task[..., Any])
skedulr.remote("send_email").submit("a", anything=1)
assert_type(skedulr.get("critical/1"), Handle[Any])
assert_type(skedulr.cancel("critical/1"), bool)


def calls() -> Iterator[Call[str]]:
    for n in range(3):
        yield send_email.bind(f"{n}@example.com")


handles = skedulr.submit_many(calls())
assert_type(handles, list[Handle[str]])
assert_type(skedulr.submit_iter(calls()), Iterator[str])
assert_type(skedulr.wait(handles, timeout=10), bool)
for handle in skedulr.as_completed(handles, timeout=timedelta(minutes=1)):
    assert_type(handle, Handle[str])
mixed: list[Call[object]] = [send_email.bind("a"), plain.bind(1), nothing.bind()]
skedulr.submit_many(mixed)

# --- handles and calls are covariant --------------------------------------------------------------

wider: Handle[object] = send_email.submit("a")
wider_call: Call[str | None] = send_email.bind("a")
any_handles: list[Handle[Any]] = [send_email.submit("a"), plain.submit(1)]
assert_type(wider.id, str)
assert_type(wider.state, str)
assert_type(wider.cancel(), bool)
assert_type(wider.info(), dict[str, Any])

# --- tasks as values ------------------------------------------------------------------------------


def run(task: Task[[str], str]) -> str:
    return task.submit("a").result()


run(send_email)
run(send_email.using(priority=3))
function: Callable[[str], str] = send_email

# --- an app of one's own --------------------------------------------------------------------------

app = Skedulr(url="redis://127.0.0.1/0", namespace="shop", submit_timeout=2)


@app.task(name="other", unique="until_start", on_duplicate="replace")
def other(n: int) -> dict[str, int]:
    return {"n": n}


assert_type(other.submit(1), Handle[dict[str, int]])
assert_type(app.submit(other, 1).result(), dict[str, int])
app.configure(url="redis://127.0.0.1/1", namespace="n")

# --- workflows ------------------------------------------------------------------------------------


@app.task(name="lines")
def lines(file: str) -> list[str]:
    return [file]


@app.task(name="width")
def width(line: str, most: int = 80) -> int:
    return min(len(line), most)


with app.workflow("w") as w:
    read = w.add(lines.bind("f"))
    assert_type(read.handle.result(), list[str])
    assert_type(w.map(width, read).handle.result(), list[int])
    widths = w.map(width.bind(skedulr.previous, most=7), read, name="n")
    assert_type(widths.handle, Handle[list[int]])
    assert_type(w.add(lines.bind("f") | width.bind(skedulr.previous)).handle, Handle[int])
    with w.workflow("part", depends_on=read) as part:
        part.add(width.bind("x"))
chain = lines.bind("f") | width.bind(skedulr.previous)
assert_type(chain.submit(), Handle[int])
assert_type((chain | lines.bind("g")).submit().result(), list[str])

# --- inside of a task and errors ------------------------------------------------------------------

assert_type(skedulr.current_task().token, str)
assert_type(skedulr.task_id(), str | None)
try:
    other.submit(1)
except skedulr.StorageUnavailable as error:
    assert_type(error.maybe_submitted, bool)
except skedulr.TaskFailed as failed:
    assert_type(failed.type, str | None)
except skedulr.DuplicateTask as duplicate:
    assert_type(duplicate.id, str | None)
assert_type(skedulr.__version__, str)

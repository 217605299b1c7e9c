"""The tasks of test_testing_kit.py, as an application has them: here and in a real master."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import gevent

import skedulr
from skedulr import Skedulr, current_task

app = Skedulr()
SOON = skedulr.LinearRetry(base=0.05)


def louder(call_next: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Middleware whose doing shows in the result."""

    def run(context: Any) -> Any:
        result = call_next(context)
        return f"{result}!" if "loud" in context.headers else result

    return run


app.use(louder)


@app.task(name="echo")
def echo(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@app.task(name="types")
def types(*args: Any) -> list[str]:
    return [type(arg).__name__ for arg in args]


@app.task(name="unsendable")
def unsendable() -> object:
    return object()


@app.task(name="flaky", retry=SOON, max_retries=3)
def flaky(failures: int) -> int:
    if current_task().attempt <= failures:
        raise ValueError(f"attempt {current_task().attempt}")
    return current_task().attempt


@app.task(name="choosy", retry=SOON, max_retries=2, retry_on=KeyError)
def choosy(kind: str) -> None:
    raise {"key": KeyError, "value": ValueError}[kind](kind)


@app.task(name="reject", retry=SOON)
def reject() -> None:
    raise skedulr.Reject("never")


@app.task(name="again", max_retries=1)
def again() -> int:
    if current_task().attempt == 1:
        raise skedulr.Retry(delay=0.05)
    return current_task().attempt


@app.task(name="slow", max_retries=0, timeout=0.05)
def slow() -> None:
    gevent.sleep(5)


@app.task(name="about")
def about() -> dict[str, Any]:
    me = current_task()
    return {"id": me.id, "attempt": me.attempt, "max_retries": me.max_retries, "name": me.name,
            "headers": me.headers, "pool": me.pool}


@app.task(name="note", pool="single")
def note(file: str, text: str) -> None:
    with open(file, "a") as out:
        out.write(text + " ")


@app.task(name="brood", pool="single")
def brood(file: str) -> None:
    """Submits three and ends; they run by priority after it."""
    note.using(priority=-1).submit(file, "low")
    note.submit(file, "middle")
    note.using(priority=1).submit(file, "high")
    note(file, "parent")


@app.task(name="depth", max_retries=0)
def depth(levels: int) -> int:
    """Waits for a task of its own pool."""
    return 0 if levels == 0 else 1 + depth.submit(levels - 1).result(timeout=20)


@app.task(name="patient", max_retries=0, pool="single")
def patient() -> str:
    """The pool has one worker: nobody can run what it waits for."""
    try:
        note.submit(os.devnull, "").result(timeout=0.2)
    except skedulr.ResultTimeout as error:
        return type(error).__name__
    return "no time-out"


@app.task(name="halfway")
def halfway() -> None:
    current_task().report_progress(50, "half")
    gevent.sleep(0.3)


SENT = (1, "a", b"b", None, 2.5, True, (1, 2), {"k": [1]}, Decimal("1.10"), datetime(2025, 1, 2))

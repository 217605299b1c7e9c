"""Tasks that write down what they did: the effect log that ``history.py`` judges.

Each line is one ``write`` to a file opened with O_APPEND, so lines of several processes never mix
and a line that is there was written whole, also by a process that is killed right after it:

    uid attempt token phase pid monotonic epoch [given]

Phases: ``began``, then one of ``ended``, ``failed`` (the handler raises on purpose),
``interrupted`` (something was thrown into it), ``dying`` (it is about to kill its own process). A
run without a second line was killed from outside. In between a step of a workflow notes what it was
``given``: ``[inputs, arguments]`` as JSON. A task returns its token, so that the record says whose
outcome was taken. The log's path is in ``EFFECT_LOG``; the monotonic clock is one for all
processes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from skedulr import LinearRetry, TaskFailed, current_task, delivery, store, task
from skedulr.errors import StorageUnavailable
from skedulr.pools import deliverer

if "HURRY" in os.environ:
    # What a dead process left to be delivered, or half submitted, is taken up after this long: a
    # test does not wait 6 s, and a minute. The protocol is the same.
    deliverer.LOOK_S, store.TAKEN_MS, delivery.UNFINISHED_MS = 0.4, 600, 4000

_log: int | None = None


def note(phase: str, given: str = "") -> str:
    """Append one line for the task that runs here; its token."""
    global _log
    if _log is None:
        _log = os.open(os.environ["EFFECT_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    run = current_task()
    line = (
        f"{run.uid} {run.attempt} {run.token} {phase} {os.getpid()} "
        f"{time.monotonic():.6f} {time.time():.4f} {given}".rstrip() + "\n"
    )
    os.write(_log, line.encode())
    return run.token


@task(name="plain")
def plain() -> str:
    note("began")
    return note("ended")


@task(name="elsewhere", pool="other")
def elsewhere() -> str:
    """Belongs to another pool than that where what is known by name alone goes."""
    note("began")
    return note("ended")


@task(name="hold")
def hold(seconds: float) -> str:
    """Waits, as most tasks do."""
    note("began")
    try:
        time.sleep(seconds)
    except BaseException:
        note("interrupted")
        raise
    return note("ended")


@task(name="keyed")
def keyed(key: str, seconds: float) -> str:
    """Waits, under limits that whoever submits it gives it for a key."""
    return hold(seconds)


@task(name="gate")
def gate(file: str) -> str:
    """Waits until a file is there; a relative path is in the node's own folder."""
    note("began")
    try:
        while not os.path.exists(file):
            time.sleep(0.01)
    except BaseException:
        note("interrupted")
        raise
    return note("ended")


@task(name="burn")
def burn(seconds: float) -> str:
    """Computes, and lets nothing else run meanwhile."""
    note("began")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return note("ended")


@task(name="flaky", max_retries=5, retry=LinearRetry(0.1))
def flaky(failures: int) -> str:
    """Fails so many times, then succeeds."""
    note("began")
    if current_task().attempt <= failures:
        note("failed")
        raise RuntimeError("not yet")
    return note("ended")


@task(name="doomed", max_retries=1, retry=LinearRetry(0.1))
def doomed() -> None:
    note("began")
    note("failed")
    raise RuntimeError("never")


@task(name="deadly")
def deadly(moment: str, times: int) -> str:
    """Kills its own process ``times`` times, at one moment of its run, and then behaves.

    ``start``: before anything was done; ``middle``: after a wait; ``end``: everything is done and
    the process dies before the outcome can be recorded.
    """
    note("began")
    if moment == "middle":
        time.sleep(0.05)
    marker = f"{os.environ['EFFECT_LOG']}.{current_task().uid}"
    if moment != "end" and _dies_again(marker, times):
        _die()
    token = note("ended")
    if moment == "end" and _dies_again(marker, times):
        _die()
    return token


@task(name="step", max_retries=0)
def step(how: str, seconds: float, *args: Any) -> str:
    """A step of a workflow. ``how``: "ok", "fail", "once" (it fails the first time, and when it is
    put back it does not), "retry" (its first attempt fails), "die" (its process dies the first
    time)."""
    note("began")
    note("given", _given(args))
    try:
        time.sleep(seconds)
    except BaseException:
        note("interrupted")
        raise
    marker = f"{os.environ['EFFECT_LOG']}.{current_task().uid}"
    if how == "die" and _dies_again(marker, 1):
        _die()
    if how == "fail" or (how in ("once", "retry") and _dies_again(marker, 1)):
        note("failed")
        raise RuntimeError(how)
    return note("ended")


@task(name="list", max_retries=0)
def make_list(count: int) -> list[str]:
    """A step that others map over: its token, and what else there is."""
    note("began")
    note("given", _given(()))
    return [note("ended"), *(f"item{at}" for at in range(1, count))]


def _given(args: tuple[Any, ...]) -> str:
    while True:
        try:
            inputs = current_task().inputs()
            break
        except StorageUnavailable:
            time.sleep(0.1)
    told = [f"!{one.state}" if isinstance(one, TaskFailed) else one for one in inputs]
    return json.dumps([told, args], separators=(",", ":"))


def _dies_again(marker: str, times: int) -> bool:
    died = os.path.getsize(marker) if os.path.exists(marker) else 0
    if died >= times:
        return False
    with open(marker, "ab") as file:
        file.write(b"x")
    return True


def _die() -> None:
    note("dying")
    os.kill(os.getpid(), signal.SIGKILL)

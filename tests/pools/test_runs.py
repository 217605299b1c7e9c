"""Runs from submit to record on a real master: order, retries, odd errors, limits, cancel, keys.

One master serves most tests. What a test asserts is in the records and in the effects of its own
tasks; it never depends on what others left. After each test the children must be the same.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from harness import WORK, Node, gone, now, wait_until
from servers import Server, selected

import skedulr
from skedulr import LinearRetry
from skedulr.keys import PoolKeys
from skedulr.queries import PoolQueries

pytestmark = pytest.mark.server

RUNS = WORK + '''

import contextvars
import sys

import gevent
import gevent.local
import skedulr
from skedulr import LinearRetry, Reject, Retry, TaskCancelled, TaskTimeout, report_progress

seen = contextvars.ContextVar("seen", default="nothing")
local = gevent.local.local()


class Wanted(Exception):
    pass


class Unwanted(Wanted):
    pass


class TwoArguments(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


@task(name="mark")
def mark(value=None):
    note("ran")
    return value


@task(name="flaky", retry=LinearRetry(0.15))
def flaky(failures):
    note("began")
    if current_task().attempt <= failures:
        raise Wanted(f"attempt {current_task().attempt}")
    return "at last"


@task(name="picky", retry_on=Wanted, never_retry_on=Unwanted, max_retries=1, retry=LinearRetry(0))
def picky(kind):
    note("began")
    raise {"wanted": Wanted, "unwanted": Unwanted, "other": ValueError}[kind]("no")


@task(name="asks", max_retries=2, retry=LinearRetry(60))
def asks(delay):
    note("began")
    if current_task().attempt == 1:
        raise Retry("in a moment", delay=delay)
    return "done"


@task(name="rejects", retry=LinearRetry(0))
def rejects(reason):
    note("began")
    raise Reject(reason if isinstance(reason, (str, int)) else "x" * 5_000_000)


def cyclic():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    raise one


def deep(at=0):
    return deep(at + 1)


def thrown(error):
    def throw():
        raise error()
    return throw


def leave_timeout():
    gevent.Timeout(0.05).start()


def kill_own_greenlet():
    gevent.get_hub().loop.run_callback(gevent.getcurrent().throw, KeyError("late"))


def spawn_exit():
    gevent.spawn(sys.exit, 3).join()
    raise ValueError("after it")


def spawn_interrupt():
    current_task().spawn(thrown(KeyboardInterrupt)).join()
    raise ValueError("after it")


ODD = {
    "two arguments": thrown(lambda: TwoArguments(1, 2)),
    "mute": thrown(Mute),
    "cyclic cause": cyclic,
    "huge message": thrown(lambda: ValueError("x" * 50_000_000)),
    "lone surrogate": thrown(lambda: ValueError("\\ud800")),
    "SystemExit": lambda: sys.exit(3),
    "KeyboardInterrupt": thrown(KeyboardInterrupt),
    "GreenletExit": thrown(gevent.GreenletExit),
    "gevent.Timeout": thrown(lambda: gevent.Timeout(1)),
    "RecursionError": deep,
    "MemoryError": thrown(MemoryError),
    "ExceptionGroup": thrown(lambda: ExceptionGroup("both", [ValueError("a"), KeyError("b")])),
    "BaseExceptionGroup": thrown(lambda: BaseExceptionGroup("both", [SystemExit(1)])),
    "a bare TaskTimeout": thrown(TaskTimeout),
    "a bare TaskCancelled": thrown(TaskCancelled),
    "StopIteration": thrown(StopIteration),
    "exit in a greenlet": spawn_exit,
    "interrupt in a spawned greenlet": spawn_interrupt,
    "unencodable": object,
    "unencodable key": lambda: {1: 2},
    "retry after infinity": thrown(lambda: Retry(delay=float("inf"))),
    "retry after nonsense": thrown(lambda: Retry(delay="soon")),
    "retry after a long time": thrown(lambda: Retry(delay=1e300)),
    "reject with an object": thrown(lambda: Reject(object())),
    "reject with a surrogate": thrown(lambda: Reject("\\ud800")),
}


@task(name="odd", max_retries=0)
def odd(kind):
    note("began")
    return ODD[kind]()


@task(name="odd_again", max_retries=1)
def odd_again(kind):
    note("began")
    return ODD[kind]()


@task(name="leaves", max_retries=0)
def leaves(what):
    {"timeout": leave_timeout, "kill": kill_own_greenlet}[what]()
    note("left")


@task(name="pause", max_retries=0)
def pause(seconds):
    time.sleep(seconds)
    note("rested")
    return "whole"


@task(name="slow", timeout=0.2, max_retries=0)
def slow():
    note("began")
    try:
        time.sleep(30)
    except TaskTimeout:
        note("timed_out")
        raise
    finally:
        time.sleep(0.01)
        note("cleaned_up")


@task(name="swallows", timeout=0.2, max_retries=1, retry=LinearRetry(0))
def swallows():
    note("began")
    try:
        time.sleep(30)
    except BaseException:
        note("swallowed")
    return "all is well"


@task(name="stubborn", timeout=0.2, max_retries=0)
def stubborn():
    note("began")
    while True:
        try:
            time.sleep(0.05)
        except BaseException:
            note("swallowed")


@task(name="own_timeout", timeout=0.3, max_retries=0)
def own_timeout():
    note("began")
    with gevent.Timeout(0.05, False):
        time.sleep(30)
    note("own")
    with gevent.Timeout(30):
        time.sleep(30)


@task(name="deaf_to_cancel")
def deaf_to_cancel():
    note("began")
    try:
        time.sleep(30)
    except TaskCancelled:
        note("told" if current_task().cancelled else "untold")
    return "all is well"


@task(name="big")
def big(size):
    return "x" * size


@task(name="everything", timeout=20, max_retries=7)
def everything(*args, **kwargs):
    own = current_task()
    before = time.monotonic()
    assert skedulr.task_id() == own.id
    return {
        name: getattr(own, name) for name in (
            "id", "uid", "pool", "name", "attempt", "max_retries", "token", "due_at", "tick",
            "headers", "cancelled", "args", "kwargs",
        )
    } | {"left": own.deadline - before, "repr": repr(own)}


@task(name="probe")
def probe(mark, wait):
    before = seen.get(), getattr(local, "mark", "nothing")
    seen.set(mark)
    local.mark = mark
    if wait:
        time.sleep(0.001)
    return [*before, seen.get(), local.mark]


@task(name="progressing")
def progressing(file):
    for percent in range(101):
        report_progress(percent, f"{percent} of 100")
    note("began")
    while not os.path.exists(file):
        time.sleep(0.01)


class Leaves:
    def next_delay(self, attempt, error):
        sys.exit(3)


@task(name="strategy_leaves", retry=Leaves())
def strategy_leaves():
    raise Wanted("no")


HOOKS = {
    "error": thrown(ValueError),
    "exit": lambda: sys.exit(3),
    "hang": lambda: time.sleep(30),
    "interrupt": thrown(KeyboardInterrupt),
}


@task(name="hooked", timeout=0.3, max_retries=1, retry=LinearRetry(0))
def hooked(how, succeeds):
    note("ran")
    if not succeeds:
        raise Wanted(how)
    return how


@skedulr.on("success")
def after_success(run, result):
    if run.name == "hooked":
        HOOKS[result]()


@skedulr.on("retry")
def before_retry(run, error, delay):
    if run.name == "hooked":
        HOOKS[str(error)]()


@skedulr.on("dead")
def after_death(run, error):
    if run is not None and run.name == "hooked":
        HOOKS[str(error)]()


@task(name="exit_when", max_retries=0)
def exit_when(file):
    note("began")
    if current_task().attempt == 1 and not os.path.exists("died"):
        while not os.path.exists(file):
            time.sleep(0.01)
        open("died", "x").close()
        os._exit(9)


@task(name="kill_self", max_retries=5)
def kill_self():
    note("began")
    os.kill(os.getpid(), 9)


@task(name="submits")
def submits(others):
    handles = [mark.submit(one) for one in range(others)]
    return [handle.result(timeout=10) for handle in handles]
'''


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Node]]:
    """A master with a pool of eight workers, one of a single worker, and a full one."""
    server = Server(selected()[0]).start()
    node = Node(
        tmp_path_factory.mktemp("runs") / "node", server.url, "--result-limit", "10000",
        "--unknown-after", "1", pools="default=8,one=1", work=RUNS,
    )
    try:
        yield server, node.start(2)
    finally:
        node.close()
        server.close()


@pytest.fixture
def node(shared: tuple[Server, Node]) -> Iterator[Node]:
    """The shared master. Whatever a test did, its children must still be the same."""
    served = shared[1]
    before = served.children()
    yield served
    for file in occupied:
        let_go(served, file)
    assert served.children() == before, served.log[-5000:]


@pytest.fixture
def own(nodes: Callable[..., Node], one_server: Server) -> Callable[..., Node]:
    """``own(*flags)``: a master for tests that cost it a child."""
    def start(*flags: str, **options: Any) -> Node:
        ready = options.pop("ready", 1)
        return nodes(one_server.url, *flags, work=RUNS, **options).start(ready)

    return start


#: The files that held workers wait for: one test that fails must not hold up the next ones.
occupied: set[str] = set()


def occupy(node: Node, file: str) -> str:
    """Have the only worker of pool one busy until ``file`` is there."""
    occupied.add(file)
    uid = node.submit("gate", file, pool="one")
    node.effects.wait("began", uid)
    return uid


def let_go(node: Node, file: str) -> None:
    (node.folder / file).touch()


def order(node: Node, uids: list[str], phase: str = "ran") -> list[str]:
    """The tasks as they ran."""
    for uid in uids:
        node.effects.wait(phase, uid)
    return [one.uid for one in node.effects.all(phase=phase) if one.uid in uids]


def history(node: Node, uid: str) -> list[dict[str, Any]]:
    """Every attempt of a task of pool default, oldest first."""
    assert node.app is not None
    seen = node.app.client.ask(lambda wire: PoolQueries(
        PoolKeys("skedulr", "default")
    ).attempts(wire, uid))
    return list(seen)


def handle(node: Node, uid: str, pool: str = "default") -> Any:
    assert node.app is not None
    return node.app.get(f"{pool}/{uid}")


# Order


def test_priorities_are_strict_and_first_comes_first_inside_one(node: Node) -> None:
    occupy(node, "order")
    low = [node.submit("mark", pool="one", priority=-5) for _ in range(3)]
    plain = [node.submit("mark", pool="one") for _ in range(3)]
    high = [node.submit("mark", pool="one", priority=100) for _ in range(3)]
    let_go(node, "order")
    assert order(node, low + plain + high) == high + plain + low


def test_a_retry_keeps_its_priority(node: Node) -> None:
    urgent = node.submit(
        "flaky", 1, pool="one", priority=50, max_retries=2, retry=LinearRetry(0.05)
    )
    node.effects.wait("began", urgent)
    occupy(node, "retry-order")
    # Promoted as it falls due, though the only worker is busy.
    wait_until(lambda: node.task(urgent, "one")["state"] == "queued", "it is due")
    plain = [node.submit("mark", pool="one") for _ in range(3)]
    let_go(node, "retry-order")
    node.wait_state(urgent, "succeeded", "one")
    order(node, plain)
    second = node.effects.all(urgent, "began")[1]
    assert all(second.at < one.at for one in node.effects.all(phase="ran") if one.uid in plain)
    assert node.task(urgent, "one")["priority"] == 50


def test_tasks_of_a_dead_child_keep_their_order(
    own: Callable[..., Node],
) -> None:
    node = own(pools="default=1")
    first = node.submit("gate", "open")
    [began] = node.effects.wait("began", first)
    later = [node.submit("mark") for _ in range(3)]
    os.kill(began.pid, signal.SIGKILL)
    let_go(node, "open")
    assert order(node, later) == later
    node.wait_state(first, "succeeded")


# Later, and again


def test_delayed_tasks_start_in_the_order_they_are_due_and_none_early(node: Node) -> None:
    begun = now()
    late = node.submit("mark", delay=0.6, pool="one")
    soon = node.submit("mark", delay=0.3, pool="one")
    at_once = node.submit("mark", pool="one")
    assert order(node, [late, soon, at_once]) == [at_once, soon, late]
    for uid, delay in ((soon, 0.3), (late, 0.6)):
        task = node.wait_state(uid, "succeeded", "one")
        assert task["started_at"] >= task["submitted_at"] + delay
        assert node.effects.all(uid)[0].at >= begun + delay


def test_it_starts_once_more_than_max_retries_with_the_gaps_of_the_strategy(node: Node) -> None:
    uid = node.submit("flaky", 99, max_retries=3)
    dead = node.wait_state(uid, "dead")
    starts = node.effects.all(uid, "began")
    assert [one.attempt for one in starts] == [1, 2, 3, 4]
    gaps = [after.at - before.at for before, after in pairwise(starts)]
    assert all(gap >= wanted for gap, wanted in zip(gaps, (0.15, 0.3, 0.45), strict=True)), gaps
    assert dead["attempt"] == 4
    assert dead["error"]["type"].endswith("Wanted")
    assert dead["error"]["message"] == "attempt 4"
    assert "in flaky" in dead["error"]["traceback"]
    attempts = history(node, uid)
    assert [one["state"] for one in attempts] == ["failed"] * 3 + ["dead"]
    assert [one["error"]["message"] for one in attempts] == [f"attempt {n}" for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_task_that_succeeds_in_time_has_its_result(node: Node, failures: int) -> None:
    uid = node.submit("flaky", failures, max_retries=3, retry=LinearRetry(0))
    done = node.wait_state(uid, "succeeded")
    assert (done["result"], done["attempt"]) == ("at last", failures + 1)
    assert done["error"] is None


def test_without_retries_it_is_dead_after_one_start_with_its_error_as_text(node: Node) -> None:
    uid = node.submit("flaky", 1, max_retries=0)
    dead = node.wait_state(uid, "dead")
    assert len(node.effects.all(uid, "began")) == 1
    assert {type(text) for text in dead["error"].values()} == {str}
    assert "in flaky" in dead["error"]["traceback"]
    with pytest.raises(skedulr.TaskFailed) as failed:
        handle(node, uid).result(timeout=5)
    assert failed.value.state == "dead" and failed.value.message == "attempt 1"


@pytest.mark.parametrize(("kind", "starts"), [("wanted", 2), ("unwanted", 1), ("other", 1)])
def test_only_errors_worth_a_retry_are_retried(node: Node, kind: str, starts: int) -> None:
    uid = node.submit("picky", kind)
    node.wait_state(uid, "dead")
    assert len(node.effects.all(uid, "began")) == starts


@pytest.mark.parametrize(
    ("delay", "wait_s"), [(0.2, 0.2), (timedelta(milliseconds=200), 0.2), (0, 0), (-5, 0)]
)
def test_a_handler_that_asks_for_a_retry_gets_it_when_it_said(
    node: Node, delay: object, wait_s: float
) -> None:
    uid = node.submit("asks", delay)
    assert node.wait_state(uid, "succeeded")["attempt"] == 2
    first, second = node.effects.all(uid, "began")
    assert second.at - first.at >= wait_s


def test_a_rejected_task_is_dead_at_once_with_its_reason(node: Node) -> None:
    uid = node.submit("rejects", "such a customer is not known")
    dead = node.wait_state(uid, "dead")
    assert len(node.effects.all(uid)) == 1
    assert dead["error"]["type"] == "Reject"
    assert dead["error"]["message"] == "such a customer is not known"


def test_a_reason_of_megabytes_is_cut(node: Node) -> None:
    uid = node.submit("rejects", None)
    assert len(node.wait_state(uid, "dead")["error"]["message"]) < 20_000


# Odd errors


ODD = [
    "two arguments", "mute", "cyclic cause", "huge message", "lone surrogate", "SystemExit",
    "KeyboardInterrupt", "GreenletExit", "gevent.Timeout", "RecursionError", "MemoryError",
    "ExceptionGroup", "BaseExceptionGroup", "a bare TaskTimeout", "a bare TaskCancelled",
    "StopIteration", "exit in a greenlet", "interrupt in a spawned greenlet", "unencodable",
    "unencodable key", "retry after infinity", "retry after nonsense", "retry after a long time",
    "reject with an object", "reject with a surrogate",
]


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_error_is_recorded_as_bounded_text_and_the_next_task_runs(
    node: Node, kind: str
) -> None:
    uid = node.submit("odd", kind, pool="one")
    neighbour = node.submit("mark", pool="one")
    error = node.wait_state(uid, "dead", "one")["error"]
    assert error["type"], "it says what it was"
    assert all(isinstance(text, str) for text in error.values())
    assert sum(len(text.encode()) for text in error.values()) < 200_000
    node.wait_state(neighbour, "succeeded", "one")
    assert len(node.effects.all(uid)) == 1


def test_a_retry_asked_for_in_the_far_future_is_scheduled_and_stops_nobody(node: Node) -> None:
    uid = node.submit("odd_again", "retry after a long time", pool="one")
    neighbour = node.submit("mark", pool="one")
    node.wait_state(neighbour, "succeeded", "one")
    assert node.wait_state(uid, "scheduled", "one")["due_at"] < 253_402_300_800
    assert handle(node, uid, "one").cancel()


def test_a_strategy_that_calls_for_the_exit_costs_an_hour_and_no_worker(node: Node) -> None:
    uid = node.submit("strategy_leaves", pool="one")
    node.wait_state(node.submit("mark", pool="one"), "succeeded", "one")
    task = node.wait_state(uid, "scheduled", "one")
    assert task["due_at"] - task["submitted_at"] >= 3600
    assert handle(node, uid, "one").cancel()


@pytest.mark.parametrize("how", ["error", "exit", "interrupt", "hang"])
@pytest.mark.parametrize("succeeds", [True, False])
def test_a_hook_that_fails_or_hangs_changes_no_outcome(
    node: Node, how: str, succeeds: bool
) -> None:
    lost = node.log.count("the claim of task")
    uid = node.submit("hooked", how, succeeds, pool="one")
    after = node.submit("mark", pool="one")
    ended = node.wait_state(uid, "succeeded" if succeeds else "dead", "one")
    node.wait_state(after, "succeeded", "one")
    assert len(node.effects.all(uid)) == (1 if succeeds else 2)
    assert ended["attempt"] == (1 if succeeds else 2)
    if not succeeds:
        assert ended["error"]["message"] == how
    assert node.log.count("the claim of task") == lost, "each outcome is written once"


@pytest.mark.parametrize("what", ["timeout", "kill"])
def test_what_a_handler_leaves_behind_interrupts_no_other_task(node: Node, what: str) -> None:
    """A time-out of its own that it never cancelled is thrown into the greenlet that ran it."""
    # Fired while the worker is idle, and while it runs the next task.
    left = node.submit("leaves", what, pool="one")
    node.wait_state(left, "succeeded", "one")
    resting = node.submit("pause", 0.15, pool="one")
    assert node.wait_state(resting, "succeeded", "one")["result"] == "whole"
    occupy(node, f"left-{what}")
    uids = [node.submit("leaves", what, pool="one"), node.submit("pause", 0.15, pool="one")]
    let_go(node, f"left-{what}")
    for uid in uids:
        node.wait_state(uid, "succeeded", "one")
    after = node.submit("mark", pool="one")
    node.wait_state(after, "succeeded", "one")


# Time limits


def test_a_time_limit_interrupts_the_handler_whose_cleanup_runs(node: Node) -> None:
    uid = node.submit("slow")
    dead = node.wait_state(uid, "dead")
    assert [one.phase for one in node.effects.all(uid)] == ["began", "timed_out", "cleaned_up"]
    assert dead["error"]["type"].endswith("TaskTimeout")
    assert "in slow" in dead["error"]["traceback"], "where it was when its time was over"


def test_a_run_over_its_limit_never_succeeds_even_if_it_swallows_the_interruption(
    node: Node,
) -> None:
    uid = node.submit("swallows")
    dead = node.wait_state(uid, "dead")
    assert dead["attempt"] == 2 and dead["result"] is None
    assert [one.phase for one in node.effects.all(uid)] == ["began", "swallowed"] * 2


def test_a_limit_of_the_handlers_own_and_ours_do_not_mix(node: Node) -> None:
    uid = node.submit("own_timeout")
    dead = node.wait_state(uid, "dead")
    assert [one.phase for one in node.effects.all(uid)] == ["began", "own"]
    assert dead["error"]["type"].endswith("TaskTimeout")


def test_a_handler_that_does_not_end_is_abandoned_and_its_child_replaced_after_the_others(
    own: Callable[..., Node],
) -> None:
    node = own(pools="default=2")
    neighbour = node.submit("gate", "open")
    [began] = node.effects.wait("began", neighbour)
    uid = node.submit("stubborn")
    dead = node.wait_state(uid, "dead")
    assert dead["error"]["type"].endswith("TaskTimeout")
    node.wait_log("draining")
    assert not gone(began.pid), "its neighbour still runs there"
    let_go(node, "open")
    assert node.wait_state(neighbour, "succeeded")["attempt"] == 1
    node.wait_ready(2)
    assert gone(began.pid)
    node.wait_state(node.submit("mark"), "succeeded")
    assert len(node.effects.all(uid, "began")) == 1


# Cancel


def test_cancel_before_the_start_means_no_start(node: Node) -> None:
    occupy(node, "cancel")
    queued = node.submit("mark", pool="one")
    scheduled = node.submit("mark", pool="one", delay=60)
    for uid in (queued, scheduled):
        assert handle(node, uid, "one").cancel() is True
    let_go(node, "cancel")
    for uid in (queued, scheduled):
        # One that was claimed ahead of need ends only when a worker gets to it.
        node.wait_state(uid, "cancelled", "one")
        assert handle(node, uid, "one").cancel() is False, "it has ended"
    last = node.submit("mark", pool="one")
    node.wait_state(last, "succeeded", "one")
    assert not node.effects.all(queued) and not node.effects.all(scheduled)


def test_cancel_of_a_running_task_interrupts_it_and_its_success_does_not_count(
    node: Node,
) -> None:
    uid = node.submit("deaf_to_cancel")
    node.effects.wait("began", uid)
    assert handle(node, uid).cancel() is True
    node.wait_state(uid, "cancelled")
    assert [one.phase for one in node.effects.all(uid)] == ["began", "told"]
    with pytest.raises(skedulr.TaskFailed) as failed:
        handle(node, uid).result(timeout=5)
    assert failed.value.state == "cancelled"


def test_cancel_while_a_retry_is_pending_ends_it_with_its_history(node: Node) -> None:
    uid = node.submit("flaky", 99, max_retries=3, retry=LinearRetry(60))
    node.wait_state(uid, "scheduled")
    assert handle(node, uid).cancel() is True
    assert node.task(uid)["state"] == "cancelled"
    assert [one["state"] for one in history(node, uid)] == ["failed", "cancelled"]
    assert len(node.effects.all(uid)) == 1


def test_cancels_at_the_moment_of_the_claim_end_each_task_once_and_one_way(node: Node) -> None:
    """Each is cancelled right after its submit, as a free worker takes it."""
    outcomes = []
    for _ in range(60):
        uid = node.submit("pause", 0.02)
        told = handle(node, uid).cancel()
        outcomes.append((uid, told))
    for uid, told in outcomes:
        wait_until(lambda uid=uid: node.task(uid)["finished_at"], "it has ended")
        state = node.task(uid)["state"]
        assert state == ("cancelled" if told else "succeeded")
        if state == "cancelled":
            assert not node.effects.all(uid, "rested"), "and it did not do its work"


def test_cancel_of_tasks_claimed_ahead_means_no_start(own: Callable[..., Node]) -> None:
    node = own(pools="default=1")
    # Fast ones teach the child to claim ahead; then its one worker is held up.
    fast = [node.submit("mark") for _ in range(300)]
    held = node.submit("gate", "open")
    behind = [node.submit("mark") for _ in range(20)]
    node.effects.wait("began", held)
    for uid in behind:
        assert handle(node, uid).cancel() is True
    # It prints its stacks from its loop: what lay on its connections has been read by then.
    for count in (1, 2):
        os.kill(node.child(), signal.SIGUSR1)
        wait_until(lambda count=count: node.log.count("stacks of pool") >= count, "it has looked")
    let_go(node, "open")
    wait_until(lambda: all(node.task(uid)["finished_at"] for uid in behind), "all have ended")
    assert [node.task(uid)["state"] for uid in behind] == ["cancelled"] * len(behind)
    assert not [one for one in node.effects.all(phase="ran") if one.uid in behind]
    for uid in (fast[0], fast[-1], held):
        node.wait_state(uid, "succeeded")


# Too late, too many, too large


def test_what_could_not_start_in_time_is_expired(node: Node) -> None:
    occupy(node, "expires")
    late = node.submit("mark", pool="one", expires=0.05)
    delayed = node.submit("mark", pool="one", delay=0.1, expires=0.05)
    in_time = node.submit("mark", pool="one", expires=60)
    wait_until(lambda: now() > node.effects.all(phase="began")[-1].at + 0.4, "time passes")
    let_go(node, "expires")
    node.wait_state(in_time, "succeeded", "one")
    for uid in (late, delayed):
        node.wait_state(uid, "expired", "one")
        assert not node.effects.all(uid)
        with pytest.raises(skedulr.TaskFailed) as failed:
            handle(node, uid, "one").result(timeout=5)
        assert failed.value.state == "expired"


def test_a_pool_takes_no_more_than_its_capacity(
    shared: tuple[Server, Node], node: Node
) -> None:
    occupy(node, "capacity")
    with skedulr_app(shared[0], capacity=3) as app:
        mark = app.remote("mark", pool="one")
        handles = [mark.submit() for _ in range(3)]
        with pytest.raises(skedulr.QueueFull):
            mark.submit()
        let_go(node, "capacity")
        for one in handles:
            one.result(timeout=10)
        mark.submit().result(timeout=10)


class skedulr_app:
    """An app on a server, closed at the end of the block."""

    def __init__(self, server: Server, **settings: Any) -> None:
        self.app = skedulr.Skedulr(server.url, **settings)

    def __enter__(self) -> skedulr.Skedulr:
        return self.app

    def __exit__(self, *error: object) -> None:
        self.app.close()


def test_arguments_and_results_have_their_limits(node: Node) -> None:
    with pytest.raises(skedulr.PayloadTooLarge):
        node.submit("mark", "x" * 1_100_000)
    uid = node.submit("big", 20_000)
    dead = node.wait_state(uid, "dead")
    assert dead["attempt"] == 1, "it would be as large again"
    assert dead["error"]["type"] == "PayloadTooLarge"
    assert "10,000" in dead["error"]["message"]
    assert node.wait_state(node.submit("big", 9_000), "succeeded")["result"] == "x" * 9_000


# Unique keys


def test_a_unique_task_is_refused_returned_or_replaced(node: Node) -> None:
    occupy(node, "unique")
    options = {"pool": "one", "key": "k1", "unique": "until_done"}
    first = node.submit("mark", 1, delay=60, **options)
    with pytest.raises(skedulr.DuplicateTask) as refused:
        node.submit("mark", 2, **options)
    assert refused.value.id == f"one/{first}"
    assert node.submit("mark", 3, on_duplicate="return", **options) == first
    third = node.submit("mark", 4, on_duplicate="replace", **options)
    assert node.task(first, "one")["state"] == "cancelled"
    let_go(node, "unique")
    assert node.wait_state(third, "succeeded", "one")["result"] == 4
    assert not node.effects.all(first)
    node.wait_state(node.submit("mark", 5, **options), "succeeded", "one")


@pytest.mark.parametrize("end", ["dead", "cancelled", "expired"])
def test_a_key_is_free_after_any_end(node: Node, end: str) -> None:
    options: dict[str, Any] = {"pool": "one", "key": f"free-{end}", "unique": "until_done"}
    if end == "dead":
        uid = node.submit("flaky", 99, max_retries=0, **options)
    elif end == "cancelled":
        uid = node.submit("deaf_to_cancel", **options)
        node.effects.wait("began", uid)
        handle(node, uid, "one").cancel()
    else:
        occupy(node, "free")
        uid = node.submit("flaky", 99, expires=0.01, **options)
        wait_until(lambda: now() > node.effects.all(phase="began")[-1].at + 0.1, "time passes")
        let_go(node, "free")
    node.wait_state(uid, end, "one")
    name = "deaf_to_cancel" if end == "cancelled" else "flaky"
    again = node.submit(name, *([0] if name == "flaky" else []), **options)
    assert again != uid
    if name == "deaf_to_cancel":
        handle(node, again, "one").cancel()
    wait_until(lambda: node.task(again, "one")["finished_at"], "it has ended")


def test_a_key_holds_through_retries_and_one_until_start_only_until_then(node: Node) -> None:
    held = node.submit("flaky", 1, key="held", unique="until_done", retry=LinearRetry(60))
    node.wait_state(held, "scheduled")
    with pytest.raises(skedulr.DuplicateTask):
        node.submit("flaky", 0, key="held", unique="until_done")
    handle(node, held).cancel()
    first = node.submit("gate", "until-start", key="until", unique="until_start")
    node.effects.wait("began", first)
    second = node.submit("gate", "until-start", key="until", unique="until_start")
    node.effects.wait("began", second)
    let_go(node, "until-start")
    for uid in (first, second):
        node.wait_state(uid, "succeeded")


def test_a_window_outlives_its_task_and_ends(node: Node) -> None:
    uid = node.submit("mark", key="window", unique=1.0)
    done = node.wait_state(uid, "succeeded")
    with pytest.raises(skedulr.DuplicateTask):
        node.submit("mark", key="window", unique=1.0)

    def again() -> str | None:
        try:
            return node.submit("mark", key="window", unique=1.0)
        except skedulr.DuplicateTask:
            return None

    second = wait_until(again, "the window is over")
    assert second is not None
    assert node.task(second)["submitted_at"] >= done["submitted_at"] + 1.0


# What a handler sees


def test_a_handler_knows_all_of_its_own_run(node: Node) -> None:
    assert node.app is not None
    task = node.app.remote("everything", delay=0.05, headers={"trace": "abc"}, id="see.me")
    done = task.submit(1, "two", three=3)
    seen = done.result(timeout=10)
    record = done.info()
    assert seen["id"] == "default/see.me" and seen["uid"] == "see.me"
    assert (seen["pool"], seen["name"]) == ("default", "everything")
    assert (seen["attempt"], seen["max_retries"]) == (1, 7)
    assert seen["token"].rpartition(":")[0] == record["worker"]
    assert seen["due_at"] == pytest.approx(record["submitted_at"] + 0.05, abs=0.002)
    assert (seen["headers"], seen["cancelled"], seen["tick"]) == ({"trace": "abc"}, False, None)
    assert (seen["args"], seen["kwargs"]) == ([1, "two"], {"three": 3})
    assert 0 < seen["left"] <= 20
    assert "everything" in seen["repr"]
    with pytest.raises(RuntimeError):
        skedulr.current_task()
    assert skedulr.task_id() is None


def test_context_variables_and_locals_are_fresh_in_1000_of_1000_runs(node: Node) -> None:
    assert node.app is not None
    probe = node.app.remote("probe")
    handles = node.app.submit_many(probe.bind(n, n % 3 == 0) for n in range(1000))
    assert node.app.wait(handles, timeout=30)
    found = [one.result(timeout=5) for one in handles]
    assert found == [["nothing", "nothing", n, n] for n in range(1000)]


def test_reports_of_progress_are_gathered_and_the_last_one_counts(
    shared: tuple[Server, Node], node: Node
) -> None:
    client = shared[0].client
    calls = _calls(client, "hset")
    uid = node.submit("progressing", "progressed")
    node.effects.wait("began", uid)
    wait_until(lambda: node.task(uid)["progress"] == 100, "the last report is there")
    assert node.task(uid)["note"] == "100 of 100"
    assert _calls(client, "hset") - calls < 50, "101 reports in a moment are one write"
    let_go(node, "progressed")
    assert node.wait_state(uid, "succeeded")["progress"] is None


def _calls(client: Any, command: str) -> int:
    return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


# Names


def test_a_name_nobody_knows_is_put_off_then_dead_and_its_neighbours_run(node: Node) -> None:
    unknown = node.submit("flakey", pool="one")
    neighbours = [node.submit("mark", pool="one") for _ in range(5)]
    for uid in neighbours:
        node.wait_state(uid, "succeeded", "one")
    put_off = node.task(unknown, "one")
    assert (put_off["state"], put_off["attempt"]) == ("scheduled", 0)
    dead = node.wait_state(unknown, "dead", "one")
    assert dead["error"]["type"] == "UnknownTask"
    assert "flakey" in dead["error"]["message"] and "flaky" in dead["error"]["message"]


# Deaths


def test_a_death_while_draining_charges_nobody(own: Callable[..., Node]) -> None:
    node = own("--grace", "20")
    uid = node.submit("exit_when", "die")
    neighbour = node.submit("gate", "open")
    node.effects.wait("began", uid)
    [began] = node.effects.wait("began", neighbour)
    os.kill(began.pid, signal.SIGTERM)
    node.wait_log("draining")
    let_go(node, "die")
    node.wait_ready(2)
    let_go(node, "open")
    node.effects.wait("began", uid, count=2)
    for one in (uid, neighbour):
        assert node.task(one)["crashes"] == 0


def test_a_task_that_kills_its_child_three_times_is_dead_with_host_and_signal(
    own: Callable[..., Node],
) -> None:
    node = own()
    neighbours = [node.submit("gate", "open") for _ in range(2)]
    node.effects.wait("began", count=2)
    bad = node.submit("kill_self")
    dead = node.wait_state(bad, "dead")
    assert len(node.effects.all(bad, "began")) == 3 and dead["crashes"] == 3
    message = dead["error"]["message"]
    assert socket.gethostname() in message and "SIGKILL" in message
    let_go(node, "open")
    for uid in neighbours:
        done = node.wait_state(uid, "succeeded")
        assert (done["crashes"], done["attempt"]) == (0, 1)


def test_what_waits_behind_a_computing_handler_goes_to_another_child(
    own: Callable[..., Node],
) -> None:
    node = own(pools="default=1x2", ready=2)
    uid = node.submit("burn", 4)
    [busy] = node.effects.wait("began", uid)
    others = [node.submit("mark") for _ in range(30)]
    for one in others:
        node.wait_state(one, "succeeded")
    assert {node.effects.all(one)[0].pid for one in others}.isdisjoint({busy.pid})
    assert not node.effects.all(uid, "ended"), "and it is still at it"


# Redis


def test_a_child_whose_tasks_submit_has_five_connections_and_those_of_its_client(
    shared: tuple[Server, Node], node: Node
) -> None:
    """The client's come with the first task that submits or asks: one for each pool it submits to,
    one to listen, four to ask; none per worker."""
    uids = [node.submit("submits", 5) for _ in range(6)]
    for uid in uids:
        assert node.wait_state(uid, "succeeded")["result"] == [0, 1, 2, 3, 4]
    names = [
        one["name"].split(":") for one in shared[0].client.client_list()
        if one["name"].startswith("skedulr:")
    ]
    own = [name for name in names if name[2:3] == ["default"]]
    assert len(own) <= 5, sorted(own)
    assert len({name[3] for name in own}) == len(own), "each has a role of its own"
    pids = [str(pid) for pid in node.children()]
    roles = [name[3] for name in names if name[1] == "client" and name[2] in pids]
    assert roles.count("submit") == 1 and roles.count("listen") <= 1
    assert 1 <= roles.count("query") <= 4 and len(roles) <= 6


def test_scripts_that_are_flushed_and_connections_that_are_cut_cost_no_attempt(
    shared: tuple[Server, Node], node: Node
) -> None:
    client = shared[0].client
    held = node.submit("gate", "cut")
    node.effects.wait("began", held)
    for _ in range(5):
        client.script_flush()
        client.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")
        client.execute_command("CLIENT", "KILL", "TYPE", "PUBSUB", "SKIPME", "YES")
        node.wait_state(node.submit("flaky", 1, retry=LinearRetry(0)), "succeeded")
    let_go(node, "cut")
    assert node.wait_state(held, "succeeded")["attempt"] == 1
    assert len(node.effects.all(held, "began")) == 1


# Looking into a run


def test_a_running_task_shows_where_it_is(node: Node) -> None:
    assert node.app is not None
    id = node.app.submit("hold", 60).id
    wait_until(lambda: node.app.client.state(id) == "running", what="it runs")
    stack = node.app.client.stack(id, timeout_s=10)
    assert stack is not None and "in hold" in stack and "Traceback" in stack
    node.app.cancel(id)
    wait_until(lambda: node.app.client.state(id) == "cancelled", what="it was cancelled")
    assert node.app.client.stack(id) is None

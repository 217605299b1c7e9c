"""Tasks that wait for others, and workflows: real scripts and delivery, in the testing kit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from listing import listed

from skedulr import (
    ConfigError,
    DuplicateTask,
    Skedulr,
    StorageUnavailable,
    TaskFailed,
    TaskNotFound,
    current_task,
)
from skedulr.delivery import Delivery
from skedulr.keys import PoolKeys
from skedulr.redis_scripts import Script
from skedulr.testing import app, inline
from skedulr.testing.driven import DrivenApp
from skedulr.wire import WireError

POOL = PoolKeys("skedulr", "default")


class Died(BaseException):
    """The process is gone, in the middle of things."""


class Flows:
    """An app with tasks that note that they ran; ``fail`` names those that are to fail."""

    def __init__(self, driven: DrivenApp) -> None:
        self.app = driven
        self.ran: list[str] = []
        self.fail: set[str] = set()
        self.inputs: dict[str, list[Any]] = {}

        @driven.task(name="run", max_retries=0)
        def run(name: str, *rest: Any) -> Any:
            self.ran.append(name)
            self.inputs[name] = current_task().inputs()
            if name in self.fail:
                raise ValueError(name)
            return [name, *rest]

        self.run = run

    def submit(self, name: str, pool: str = "default", **waits: Any) -> Any:
        return self.run.using(pool=pool, id=name, **waits).submit(name)

    def state(self, name: str, pool: str = "default") -> str:
        return self.app.get(f"{pool}/{name}").state


@pytest.fixture
def flows() -> Iterator[Flows]:
    with app(served=Skedulr()) as driven:
        yield Flows(driven)


FATES = ("succeeded", "dead", "cancelled", "expired", "skipped", "removed")


def end_parent(flows: Flows, fate: str) -> None:
    """Bring the task ``a`` to that end."""
    if fate == "dead":
        flows.fail.add("a")
    elif fate == "cancelled":
        flows.app.cancel("a")
    elif fate == "expired":
        flows.app.clock.set_ms(flows.app.clock.ms + 60_000)
    elif fate == "removed":
        flows.app.client.ask(
            lambda wire: flows.app.client._store("default").purge(wire, ["a"], ended=False)
        )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("pool", ["default", "other"])
@pytest.mark.parametrize("fate", FATES)
def test_every_end_of_a_parent_resolves_every_kind_of_child_three_levels_deep(
    flows: Flows, fate: str, pool: str, when: str
) -> None:
    if fate == "removed" and when == "after":
        return  # an unknown parent then
    if fate == "skipped":
        flows.fail.add("root")
        flows.submit("root")
        flows.submit("a", depends_on="root")
    else:
        flows.submit("a", expires=30 if fate == "expired" else 3600)
    if when == "after":
        end_parent(flows, fate)
        flows.app.drain()
    flows.submit("ok", pool, on_success="default/a")
    flows.submit("not", pool, on_failure="default/a")
    flows.submit("any", pool, after="default/a")
    flows.submit("deep", depends_on=[f"{pool}/ok"])
    flows.submit("deeper", depends_on=["deep", f"{pool}/any"])
    flows.submit("cleanup", after="deeper")
    if when == "before":
        end_parent(flows, fate)
    flows.app.drain()
    good = fate == "succeeded"
    assert flows.state("ok", pool) == ("succeeded" if good else "skipped")
    assert flows.state("not", pool) == ("skipped" if good else "succeeded")
    assert flows.state("any", pool) == "succeeded"
    assert flows.state("deep") == flows.state("deeper") == ("succeeded" if good else "skipped")
    assert flows.state("cleanup") == "succeeded"
    if not good:
        why = flows.app.get(f"{pool}/ok").info()["error"]["message"]
        assert why == f"default/a is {fate}"
    flows.app.drain()
    assert not flows.app.wire.call("EXISTS", POOL.waiting, POOL.held, POOL.outbox)


def test_a_diamond_joins_once(flows: Flows) -> None:
    flows.submit("a")
    flows.submit("b", depends_on="a")
    flows.submit("c", "other", depends_on="default/a")
    flows.submit("d", depends_on=["b", "other/c"])
    flows.app.drain()
    assert flows.ran[0] == "a"
    assert flows.ran[-1] == "d"
    assert len(flows.ran) == 4
    assert flows.inputs["d"] == [["b"], ["c"]]


def test_a_wide_join_runs_after_all_and_a_fan_out_frees_all(flows: Flows) -> None:
    first = flows.submit("first")
    wide = flows.app.submit_many(
        flows.run.using(depends_on=first).bind(f"w{n}") for n in range(600)
    )
    flows.submit("join", depends_on=wide)
    flows.app.drain()
    assert flows.ran[0] == "first"
    assert flows.ran[-1] == "join"
    assert len(flows.ran) == 602
    assert flows.inputs["join"] == [[f"w{n}"] for n in range(600)]


def test_a_deep_chain_runs_in_order_and_a_deep_chain_of_skips_ends(flows: Flows) -> None:
    with flows.app.workflow("chain") as chain:
        before = chain.add(flows.run.bind("0"))
        for n in range(1, 300):
            before = chain.add(flows.run.bind(str(n)), depends_on=before)
    flows.app.drain()
    assert flows.ran == [str(n) for n in range(300)]
    flows.ran.clear()
    flows.fail.add("0")
    with flows.app.workflow("chain") as failing:
        before = failing.add(flows.run.bind("0"))
        for n in range(1, 300):
            before = failing.add(flows.run.bind(str(n)), depends_on=before)
    flows.app.drain()
    assert flows.ran == ["0"]
    assert failing.info()["counts"] == {"dead": 1, "skipped": 299}


def test_a_failure_branch_runs_at_the_first_failure_and_gets_the_error(flows: Flows) -> None:
    flows.fail.add("a")
    flows.submit("a")
    flows.submit("slow", delay=60)
    flows.submit("branch", on_failure=["slow", "a"])
    flows.app.drain()
    assert flows.ran == ["a", "branch"]
    waiting, failed = flows.inputs["branch"]
    assert isinstance(waiting, TaskFailed)
    assert (failed.state, failed.type, failed.message) == ("dead", "ValueError", "a")
    flows.app.advance(60)
    assert flows.ran == ["a", "branch", "slow"]


def test_retries_of_a_parent_are_not_its_end(flows: Flows) -> None:
    tries: list[int] = []

    @flows.app.task(name="again", max_retries=2)
    def again() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError

    flows.submit("child", depends_on=again.using(id="again").submit())
    flows.app.drain()
    assert flows.state("child") == "waiting"
    flows.app.advance(3600)
    assert flows.ran == ["child"]


def test_a_resubmitted_parent_opens_what_was_skipped_for_it_again(flows: Flows) -> None:
    flows.fail.add("a")
    flows.submit("a")
    flows.submit("b", depends_on="a", priority=5)
    flows.submit("c", "other", depends_on="default/b")
    flows.submit("d", on_failure="a")
    flows.app.drain()
    assert [flows.state("b"), flows.state("c", "other")] == ["skipped", "skipped"]
    flows.fail.clear()
    assert flows.app.resubmit("a")
    flows.app.drain()
    assert [flows.state("b"), flows.state("c", "other")] == ["succeeded", "succeeded"]
    assert flows.ran == ["a", "d", "a", "b", "c"]
    assert flows.app.get("b").info()["priority"] == 5
    # And once more, to another end.
    assert flows.app.get("b").info()["error"] is None


def test_a_waiting_task_can_be_cancelled_and_its_parent_s_end_changes_nothing(
    flows: Flows,
) -> None:
    flows.submit("a")
    child = flows.submit("b", depends_on="a")
    assert flows.app.stats()["waiting"] == 1
    assert child.cancel()
    flows.app.drain()
    assert child.state == "cancelled"
    assert flows.ran == ["a"]


def test_expiry_and_delay_count_from_the_end_of_the_waiting(flows: Flows) -> None:
    flows.submit("a", delay=100)
    flows.submit("fresh", depends_on="a", expires=10)
    flows.submit("later", depends_on="a", delay=50)
    flows.app.advance(100)
    assert flows.ran == ["a", "fresh"]
    flows.app.advance(50)
    assert flows.ran == ["a", "fresh", "later"]


def keys(flows: Flows) -> dict[str, int]:
    return {
        key.decode(): flows.app.wire.call("HLEN", key)
        for key in flows.app.wire.call("KEYS", "*")
        if flows.app.wire.call("TYPE", key) == b"hash" and b":own:" not in key
        and b"pools" not in key and b"edges" not in key
    }


def test_an_unknown_parent_is_an_error_that_leaves_nothing(flows: Flows) -> None:
    flows.submit("a", delay=60)
    before = keys(flows)
    with pytest.raises(TaskNotFound, match="default/nope"):
        flows.submit("b", depends_on=["a", "nope"])
    flows.app.drain()
    assert keys(flows) == before
    with pytest.raises(ConfigError, match="can not wait for itself"):
        flows.submit("b", depends_on="b")
    assert flows.submit("b", depends_on=[]).state == "queued"


def test_a_missing_parent_that_is_allowed_is_waited_for(flows: Flows) -> None:
    flows.submit("b", depends_on=["later", "later"], allow_missing=True)
    flows.app.drain()
    assert flows.state("b") == "waiting"
    flows.submit("later")
    flows.app.drain()
    assert flows.ran == ["later", "b"]


def test_what_a_task_waits_for_belongs_to_a_call(flows: Flows) -> None:
    with pytest.raises(ConfigError, match=r"task.using\(depends_on=...\)"):
        flows.app.task(name="bad", depends_on="a")(lambda: None)
    with pytest.raises(ConfigError, match="handle or id"):
        flows.run.using(depends_on=7)


def test_a_task_shows_what_it_waits_for(flows: Flows) -> None:
    flows.submit("a")
    info = flows.submit("b", "other", after=["default/a"]).info()
    assert (info["state"], info["depends_on"], info["workflow"]) == ("waiting", ["default/a"], None)


def test_waiting_tasks_are_listed_and_purged_with_what_has_not_started(flows: Flows) -> None:
    flows.submit("a", delay=60)
    flows.submit("b", depends_on="a")
    flows.submit("c", depends_on="b")
    assert [one["id"] for one in listed(flows.app.client, "waiting")] == ["default/c", "default/b"]
    assert flows.app.purge("default", state="waiting") == 2
    assert listed(flows.app.client, "waiting") == []
    flows.app.advance(60)
    assert flows.ran == ["a"]


# Workflows


def test_a_step_as_an_argument_stands_for_its_result(flows: Flows) -> None:
    with flows.app.workflow("feed") as w:
        a = w.add(flows.run.bind("a", 1), name="a")
        b = w.add(flows.run.using(pool="other").bind("b", a), name="b")
        w.add(flows.run.bind("c", a, b), name="c")
    flows.app.drain()
    assert w.state == "succeeded"
    last = w.info()["steps"][2]
    assert flows.app.get(last["id"]).result(0) == ["c", ["a", 1], ["b", ["a", 1]]]


def test_names_may_be_those_of_later_steps(flows: Flows) -> None:
    with flows.app.workflow("names") as w:
        w.add(flows.run.bind("b"), name="b", depends_on="a")
        w.add(flows.run.bind("a"), name="a")
    flows.app.drain()
    assert flows.ran == ["a", "b"]
    assert [one["name"] for one in w.info()["steps"]] == ["b", "a"]


def test_circles_unknown_names_and_empty_workflows_are_refused_before_anything_is_stored(
    flows: Flows,
) -> None:
    before = keys(flows)
    with pytest.raises(ConfigError, match=r"circle: [ab] -> [ab]"), flows.app.workflow("w") as w:
        w.add(flows.run.bind("a"), name="a", after="b")
        w.add(flows.run.bind("b"), name="b", after="a")
    with pytest.raises(ConfigError, match="did you mean 'load'"), flows.app.workflow("w") as w:
        w.add(flows.run.bind("a"), name="load")
        w.add(flows.run.bind("b"), after="laod")
    with pytest.raises(ConfigError, match="no steps"), flows.app.workflow("w"):
        pass
    assert keys(flows) == before


def test_an_error_inside_the_block_stores_nothing(flows: Flows) -> None:
    before = keys(flows)
    with pytest.raises(RuntimeError), flows.app.workflow("w") as w:
        w.add(flows.run.bind("a"))
        raise RuntimeError
    assert keys(flows) == before


def test_a_workflow_with_an_id_is_started_once(flows: Flows) -> None:
    for _ in range(2):
        with flows.app.workflow("night", id="night-1") as w:
            first = w.add(flows.run.bind("a"))
            w.add(flows.run.bind("b"), depends_on=first)
        flows.app.drain()
        assert w.state == "succeeded"
    assert w.id == "default/night-1" and w.info()["counts"] == {"succeeded": 2}
    assert flows.ran == ["a", "b"]
    with pytest.raises(DuplicateTask), flows.app.workflow("night", id="night-1") as other:
        other.add(flows.run.bind("c"))


@pytest.mark.parametrize("id", [12, "", "two words", "default/night-1"])
def test_an_id_of_a_workflow_is_checked_as_that_of_a_task(flows: Flows, id: Any) -> None:
    with pytest.raises(ConfigError, match=r"id=.* is not usable: 1 to 200 of letters"):
        flows.app.workflow("night", id=id)


def test_a_workflow_whose_submit_fails_half_way_leaves_nothing(flows: Flows) -> None:
    before = keys(flows)
    with pytest.raises(TaskNotFound), flows.app.workflow("w") as w:
        a = w.add(flows.run.bind("a"))
        w.add(flows.run.using(pool="other").bind("b"), after=[a, "default/nope"])
    flows.app.drain()
    assert flows.ran == []
    assert {k: v for k, v in keys(flows).items() if v} == before


def test_a_workflow_whose_producer_died_half_way_runs_nothing_and_is_removed(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = flows.app.client

    class Killed(BaseException):
        pass

    def die(*given: Any) -> None:
        raise Killed

    monkeypatch.setattr(client, "_drop_workflow", lambda id, body: None)
    for step in ("_store_steps", "_tie"):
        with monkeypatch.context() as death:
            death.setattr(client, step, die)
            with pytest.raises(Killed), flows.app.workflow("w") as w:
                a = w.add(flows.run.bind("a"))
                w.add(flows.run.bind("b"), after=a)
        flows.app.drain()
        flows.app.advance(50)
        assert flows.ran == []
        assert w.state == "starting"
        flows.app.advance(30)
        flows.app.drain()
        assert flows.ran == []
        assert not flows.app.wire.call("EXISTS", POOL.waiting, POOL.held, POOL.tasks, POOL.outbox)


@pytest.mark.parametrize("step", ["_store_steps", "_tie"])
def test_a_workflow_that_is_removed_while_it_is_submitted_again_is_stored_anew(
    flows: Flows, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    client = flows.app.client

    def start() -> Any:
        with flows.app.workflow("night", id="night-1") as w:
            first = w.add(flows.run.bind("a"))
            w.add(flows.run.using(pool="other").bind("b"), depends_on=first)
        return w

    def die(*given: Any) -> None:
        raise Died

    with monkeypatch.context() as death:
        death.setattr(client, "_tie", die)
        with suppress(Died):
            start()
    real, times = getattr(client, step), []

    def remove_first(*given: Any) -> Any:
        times.append(step)
        if len(times) == 1:
            flows.app.advance(70)
            flows.app.advance(70)
            assert not flows.app.wire.call("HLEN", POOL.waiting)
        return real(*given)

    monkeypatch.setattr(client, step, remove_first)
    w = start()
    flows.app.drain()
    assert len(times) > 1
    assert (w.state, flows.ran) == ("succeeded", ["a", "b"])
    assert w.info()["counts"] == {"succeeded": 2}


def test_a_step_of_a_workflow_with_an_id_that_waits_for_nobody_known_is_told(flows: Flows) -> None:
    with pytest.raises(TaskNotFound, match="default/nope, which is unknown"), \
            flows.app.workflow("night", id="night-1") as w:
        w.add(flows.run.bind("b"), after="default/nope")
    flows.app.advance(70)
    flows.app.drain()
    assert flows.ran == []


def test_a_cancelled_workflow_starts_nothing_more(flows: Flows) -> None:
    with flows.app.workflow("w") as w:
        a = w.add(flows.run.using(delay=60).bind("a"))
        b = w.add(flows.run.bind("b"), after=a)
        w.add(flows.run.bind("c"), on_failure=[a, b])
    flows.app.drain()
    assert w.state == "running"
    assert w.cancel() == 3
    flows.app.advance(100)
    assert flows.ran == []
    assert w.state == "cancelled"
    assert w.cancel() == 0


def test_a_failed_workflow_is_resubmitted_from_where_it_failed(flows: Flows) -> None:
    flows.fail.add("b")
    with flows.app.workflow("w") as w:
        a = w.add(flows.run.bind("a"))
        b = w.add(flows.run.bind("b"), depends_on=a)
        w.add(flows.run.bind("c"), depends_on=b)
    flows.app.drain()
    assert (w.state, flows.ran) == ("failed", ["a", "b"])
    flows.fail.clear()
    assert w.resubmit() == 1
    flows.app.drain()
    assert (w.state, flows.ran) == ("succeeded", ["a", "b", "b", "c"])
    assert w.wait(0)


def test_an_argument_whose_step_gave_no_result_says_so(flows: Flows) -> None:
    flows.fail.add("a")
    with flows.app.workflow("w") as w:
        a = w.add(flows.run.bind("a"))
        last = w.add(flows.run.bind("b", a), name="b")
    flows.app.drain()
    assert last.handle.state == "skipped"
    assert w.info()["counts"] == {"dead": 1, "skipped": 1}


def test_under_inline_a_workflow_has_ended_when_its_block_is_left() -> None:
    with inline(served=Skedulr()) as driven:
        flows = Flows(driven)
        with driven.workflow("w") as w:
            a = w.add(flows.run.bind("a"))
            w.add(flows.run.bind("b", a))
        assert w.state == "succeeded"
        assert flows.submit("c", depends_on="default/" + flows.submit("d").uid).state == "succeeded"


# What comes between two steps of a delivery


def between(flows: Flows, script: str, act: Callable[[], None], *, dies: bool = False) -> None:
    """At the next call of ``script``: ``act()`` first; then the process goes on, or dies of it."""
    run = flows.app.wire.run

    def once(called: Script, keys: list[str], args: list[Any]) -> Any:
        if called.name != script:
            return run(called, keys, args)
        flows.app.wire.run = run  # type: ignore[method-assign]
        act()
        reply = run(called, keys, args)
        if dies:
            raise Died
        return reply

    flows.app.wire.run = once  # type: ignore[method-assign]


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_a_parent_that_is_resubmitted_while_its_failure_is_told_opens_its_children_again(
    flows: Flows, tied: bool, dies: bool
) -> None:
    """Another process hears of the resubmit, and finds nothing skipped yet."""
    flows.fail.add("a")
    if not tied:
        flows.submit("a", pool="other")
        flows.app.drain()

    def resubmit() -> None:
        flows.fail.clear()
        assert flows.app.resubmit("other/a")
        Delivery("skedulr", flows.app.wire).settle(["other", "default"], ahead_ms=4_000)

    if tied:
        flows.submit("a", pool="other")
        flows.submit("b", depends_on="other/a")
        flows.submit("c", depends_on="b")
        between(flows, "resolve", resubmit, dies=dies)
    else:
        between(flows, "resolve", resubmit, dies=dies)
        with suppress(Died):
            flows.submit("b", depends_on="other/a")
    with suppress(Died):
        flows.app.drain()
    if not tied:
        flows.submit("c", depends_on="b")
    for _ in range(3):
        flows.app.advance(10)
    assert [flows.state("a", "other"), flows.state("b"), flows.state("c")] == ["succeeded"] * 3
    assert flows.ran.count("b") == flows.ran.count("c") == 1
    assert not flows.app.wire.call("EXISTS", POOL.waiting, POOL.held, POOL.outbox)


# What a workflow's submit says, and what is true then


class Loses:
    """Loses replies of scripts, as a broken connection does; before or after they were applied."""

    def __init__(self, flows: Flows, script: str, times: int, *, applied: bool = True) -> None:
        self._run, self._script, self._left = flows.app.wire.run, script, times
        self._applied = applied
        flows.app.wire.run = self.run  # type: ignore[method-assign]

    def run(self, called: Script, keys: list[str], args: list[Any]) -> Any:
        if called.name != self._script or not self._left:
            return self._run(called, keys, args)
        self._left -= 1
        if self._applied:
            self._run(called, keys, args)
        raise WireError("the connection broke")


def test_a_lost_reply_to_the_steps_submit_leaves_no_step_untied(flows: Flows) -> None:
    """The repeat finds them stored; nobody else would tie what the workflow holds back."""
    w = flows.app.workflow("w")
    a = w.add(flows.run.using(pool="other").bind("a"))
    w.add(flows.run.using(pool="other").bind("b"), after=a)
    w.add(flows.run.using(pool="third").bind("c"), after=a)
    client = flows.app.client
    sent = client._post

    def post(pool: str, submissions: list[Any]) -> Any:
        sent(pool, submissions)
        return sent(pool, submissions)  # as it is repeated where the first reply was lost

    client._post = post  # type: ignore[method-assign]
    w.start()
    flows.app.drain()
    assert (w.state, sorted(flows.ran)) == ("succeeded", ["a", "b", "c"])


def test_a_begin_that_was_not_heard_is_no_failure(flows: Flows) -> None:
    w = flows.app.workflow("w")
    w.add(flows.run.bind("a"))
    Loses(flows, "begin", 2)
    w.start()
    flows.app.drain()
    assert (w.state, flows.ran) == ("succeeded", ["a"])


@pytest.mark.parametrize(("times", "maybe"), [(2, False), (4, True)])
def test_a_workflow_that_did_not_begin_says_so_and_one_that_may_have_says_that(
    flows: Flows, times: int, maybe: bool
) -> None:
    w = flows.app.workflow("w")
    w.add(flows.run.bind("a"))
    Loses(flows, "begin", times, applied=False)
    with pytest.raises(StorageUnavailable) as failed:
        w.start()
    assert failed.value.maybe_submitted is maybe
    flows.app.drain()
    assert flows.ran == []


def test_a_child_that_was_stored_and_could_not_be_tied_may_have_been_submitted(
    flows: Flows,
) -> None:
    flows.submit("a")
    Loses(flows, "attach", 2)
    with pytest.raises(StorageUnavailable) as failed:
        flows.submit("b", depends_on="a")
    assert failed.value.maybe_submitted
    flows.app.drain()
    assert flows.ran == ["a", "b"]


def test_a_workflow_with_a_map_and_a_part_that_is_not_finished_is_removed(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows.app.client, "_drop_workflow", lambda id, body: None)
    w = flows.app.workflow("w")
    items = w.add(flows.run.bind("a"))
    w.map(flows.run, items)
    with w.workflow("part") as part:
        part.add(flows.run.bind("b"))
    Loses(flows, "begin", 2, applied=False)
    with pytest.raises(StorageUnavailable):
        w.start()
    flows.app.drain()
    flows.submit("c")
    flows.submit("d", depends_on="c")
    flows.app.advance(80)
    flows.app.drain()
    assert flows.ran == ["c", "d"]
    assert not flows.app.wire.call("EXISTS", POOL.waiting, POOL.held, POOL.tasks, POOL.outbox)


def test_results_that_can_not_be_read_put_a_step_off_and_cost_no_attempt(flows: Flows) -> None:
    client, results = flows.app.client, type(flows.app.client).results
    away = [True, True, True]

    @flows.app.task(name="add", max_retries=0)
    def add(*items: Any) -> Any:
        return list(items)

    def once_away(ids: Any) -> Any:
        if away:
            away.pop()
            raise StorageUnavailable("Redis is away")
        return results(client, ids)

    client.results = once_away  # type: ignore[method-assign]
    with flows.app.workflow("w") as w:
        a = w.add(add.bind("a"))
        fed = w.add(add.bind("b", a))
        doubled = w.map(add, a)
    flows.app.advance(20)
    assert not away
    assert fed.handle.result(0) == ["b", ["a"]]
    assert doubled.handle.result(0) == [["a"]]
    assert fed.handle.info()["attempt"] == 1
    assert w.state == "succeeded"

"""Maps, chains and parts of workflows: real scripts and delivery, in the testing kit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import skedulr
from skedulr import ConfigError, PayloadError, Skedulr, TaskFailed, current_task, store
from skedulr.keys import PoolKeys
from skedulr.redis_scripts import Script
from skedulr.testing import app, inline
from skedulr.testing.driven import DrivenApp

POOL = PoolKeys("skedulr", "default")


class Work:
    """Tasks that note what they ran with; ``fail`` names values that fail."""

    def __init__(self, driven: DrivenApp) -> None:
        self.app = driven
        self.ran: list[Any] = []
        self.fail: set[Any] = set()

        @driven.task(name="numbers")
        def numbers(count: Any) -> Any:
            self.ran.append("numbers")
            return list(range(count)) if isinstance(count, int) else count

        @driven.task(name="double", max_retries=0)
        def double(number: int, add: int = 0) -> int:
            self.ran.append(number)
            if number in self.fail:
                raise ValueError(number)
            return 2 * number + add

        @driven.task(name="total")
        def total(of: list[int]) -> int:
            self.ran.append("total")
            return sum(of)

        @driven.task(name="say", max_retries=0)
        def say(word: str, *rest: Any) -> Any:
            self.ran.append(word)
            if word in self.fail:
                raise ValueError(word)
            return [word, *rest]

        self.numbers, self.double, self.total, self.say = numbers, double, total, say

    def left(self) -> int:
        return int(self.app.wire.call("EXISTS", POOL.waiting, POOL.held, POOL.outbox))


@pytest.fixture
def work() -> Iterator[Work]:
    with app(served=Skedulr()) as driven:
        yield Work(driven)


# Maps


def test_a_map_runs_a_task_for_each_item_and_the_join_gets_their_results(work: Work) -> None:
    with work.app.workflow("map") as w:
        a = w.add(work.numbers.bind(5))
        doubled = w.map(work.double, a, name="doubled")
        w.add(work.total.bind(doubled), name="total")
        after = w.add(work.say.bind("after"), depends_on="doubled")
    work.app.drain()
    assert w.state == "succeeded"
    assert work.ran[0] == "numbers"
    assert sorted(work.ran[1:6]) == [0, 1, 2, 3, 4]
    assert doubled.handle.result(0) == [0, 2, 4, 6, 8]
    view = w.info()
    assert (view["total"], view["ended"]) == (9, 9)
    assert view["steps"][1]["mapped"] == {"total": 5, "counts": {"succeeded": 5}}
    assert view["steps"][1]["kind"] == "map"
    assert after.handle.state == "succeeded"
    assert work.app.get(f"{doubled.id}.3").info()["workflow"] == w.id
    assert not work.left()


def test_an_empty_list_joins_at_once_and_what_is_no_list_is_a_clear_error(work: Work) -> None:
    with work.app.workflow("empty") as empty:
        a = empty.add(work.numbers.bind(0))
        empty.add(work.total.bind(empty.map(work.double, a)))
    with work.app.workflow("odd") as odd:
        b = odd.add(work.numbers.bind({"no": "list"}))
        failed = odd.map(work.double, b)
        odd.add(work.total.bind(failed))
    work.app.drain()
    assert work.ran == ["numbers", "numbers", "total"]
    assert empty.state == "succeeded"
    error = failed.handle.info()["error"]
    assert error["type"] == "NotAList"
    assert error["message"] == f"it goes over the result of {b.id}, which is no list but dict"
    assert odd.info()["counts"] == {"succeeded": 1, "dead": 1, "skipped": 1}


def test_a_map_of_many_is_made_in_chunks(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    run = work.app.wire.run

    def counted(script: Script, keys: list[str], args: list[Any]) -> Any:
        if script.name in ("submit", "attach"):
            made.append(len(args) // 3)
        return run(script, keys, args)

    work.app.wire.run = counted  # type: ignore[method-assign]
    with work.app.workflow("wide") as w:
        a = w.add(work.numbers.bind(53))
        last = w.add(work.total.bind(w.map(work.double, a)))
    monkeypatch.setattr("skedulr.delivery.BATCH", 20)
    work.app.drain()
    assert last.handle.result(0) == 52 * 53
    assert max(made) == 20
    assert len(work.ran) == 55
    assert store.BATCH == 500


def test_the_item_goes_where_previous_stands_and_other_steps_are_filled_in(work: Work) -> None:
    with work.app.workflow("places") as w:
        a = w.add(work.numbers.bind(3))
        b = w.add(work.double.bind(50))
        named = w.map(work.double.bind(add=skedulr.previous, number=7), a)
        fed = w.map(work.double.bind(add=b), a)
        fixed = w.map(work.say.using(priority=5, tags=["t"]).bind("x", skedulr.previous, 9), a)
    work.app.drain()
    assert named.handle.result(0) == [14, 15, 16]
    assert fed.handle.result(0) == [100, 102, 104]
    assert fixed.handle.result(0) == [["x", 0, 9], ["x", 1, 9], ["x", 2, 9]]
    child = work.app.get(f"{fixed.id}.1").info()
    assert (child["priority"], child["tags"]) == (5, ["t"])


def test_a_map_over_pools_goes_through_the_outboxes(work: Work) -> None:
    with work.app.workflow("pools") as w:
        a = w.add(work.numbers.using(pool="a").bind(3))
        doubled = w.map(work.double.using(pool="b"), a)
        last = w.add(work.total.using(pool="c").bind(doubled))
    work.app.drain()
    assert doubled.id.startswith("b/")
    assert last.handle.result(0) == 6


def test_one_failed_item_skips_the_join_the_others_run_and_a_resubmit_completes_it(
    work: Work,
) -> None:
    work.fail.add(1)
    with work.app.workflow("fails") as w:
        a = w.add(work.numbers.bind(3))
        doubled = w.map(work.double, a)
        last = w.add(work.total.bind(doubled))
        w.add(work.say.bind("sorry"), on_failure=doubled)
    work.app.drain()
    assert sorted(one for one in work.ran if isinstance(one, int)) == [0, 1, 2]
    assert (doubled.handle.state, last.handle.state) == ("skipped", "skipped")
    assert doubled.handle.info()["error"]["message"] == f"{doubled.id}.1 is dead"
    assert "sorry" in work.ran
    assert w.state == "failed"
    work.fail.clear()
    assert w.resubmit() == 1
    work.app.drain()
    assert last.handle.result(0) == 6
    assert w.state == "succeeded"
    assert work.ran.count(0) == work.ran.count(2) == 1


def test_a_map_step_that_is_resubmitted_runs_no_item_again(work: Work) -> None:
    with work.app.workflow("again") as w:
        doubled = w.map(work.double, w.add(work.numbers.bind(3)))
    work.app.drain()
    assert doubled.handle.resubmit()
    work.app.drain()
    assert doubled.handle.result(0) == [0, 2, 4]
    assert work.ran == ["numbers", 0, 1, 2]
    work.app.client.ask(
        lambda wire: work.app.client._store("default").purge(
            wire, [f"{doubled.id}.1".partition("/")[2]], ended=True)
    )
    assert doubled.handle.resubmit()
    work.app.drain()
    # What was removed is made and run anew.
    assert doubled.handle.result(0) == [0, 2, 4]
    assert work.ran == ["numbers", 0, 1, 2, 1]


def test_a_list_that_has_changed_since_is_an_error_not_a_mixture(work: Work) -> None:
    with work.app.workflow("changed") as w:
        a = w.add(work.numbers.bind(3))
        doubled = w.map(work.double, a)
    work.fail.add(2)
    work.app.drain()
    assert doubled.handle.state == "skipped"

    def reversed_(count: int) -> list[int]:
        return list(reversed(range(count)))

    task = work.app.tasks.require("numbers")
    task.function = reversed_
    work.app._crew("default")._executor._recipes.clear()
    assert a.handle.resubmit()
    work.app.drain()
    assert w.resubmit() == 1
    work.app.drain()
    assert doubled.handle.state == "skipped"
    assert "has changed since" in doubled.handle.info()["error"]["message"]


def test_cancelling_a_map_cancels_its_tasks_and_a_resubmit_goes_on(work: Work) -> None:
    with work.app.workflow("cancel") as w:
        a = w.add(work.numbers.bind(3))
        doubled = w.map(work.double.using(delay=60), a)
        last = w.add(work.total.bind(doubled))
    work.app.drain()
    assert doubled.handle.state == "waiting"
    assert w.info()["steps"][1]["mapped"] == {"total": 3, "counts": {"scheduled": 3}}
    assert w.cancel() == 5
    work.app.advance(100)
    assert (work.ran, w.state) == (["numbers"], "cancelled")
    assert w.resubmit() == 5
    work.app.advance(100)
    assert last.handle.result(0) == 6
    assert w.wait(0)


def test_a_map_that_is_cancelled_while_its_tasks_are_made_leaves_none_running(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skedulr.delivery.BATCH", 5)
    run = work.app.wire.run

    def cancels(script: Script, keys: list[str], args: list[Any]) -> Any:
        reply = run(script, keys, args)
        if script.name == "submit" and len(args) > 15:
            work.app.wire.run = run  # type: ignore[method-assign]
            assert work.app.cancel(doubled.id)
        return reply

    with work.app.workflow("cancel") as w:
        doubled = w.map(work.double, w.add(work.numbers.bind(13)))
    work.app.wire.run = cancels  # type: ignore[method-assign]
    work.app.drain()
    assert work.ran == ["numbers"]
    assert w.info()["counts"]["cancelled"] == 6
    assert work.app.stats()["queued"] == 0
    assert not work.left()


class Died(BaseException):
    """The process is gone, in the middle of things."""


SCRIPTS = ("submit", "attach", "take", "resolve")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_death_before_or_after_any_call_is_made_up_for_and_no_item_runs_twice(
    work: Work, monkeypatch: pytest.MonkeyPatch, script: str, after: bool
) -> None:
    monkeypatch.setattr("skedulr.delivery.BATCH", 5)
    run, calls = work.app.wire.run, [0]

    def dying(called: Script, keys: list[str], args: list[Any]) -> Any:
        if called.name != script:
            return run(called, keys, args)
        calls[0] += 1
        if not after and calls[0] % 3 == 1:
            raise Died
        reply = run(called, keys, args)
        if after and calls[0] % 3 == 1:
            raise Died
        return reply

    with work.app.workflow("dying") as w:
        a = w.add(work.numbers.bind(13))
        last = w.add(work.total.bind(w.map(work.double, a)))
    work.app.wire.run = dying  # type: ignore[method-assign]
    for _ in range(40):
        with suppress(Died):
            work.app.advance(60)
    work.app.wire.run = run  # type: ignore[method-assign]
    work.app.advance(60)
    assert last.handle.result(0) == 12 * 13
    assert len(work.ran) == 15
    assert calls[0] > 3
    assert not work.left()


def test_results_of_a_map_that_are_too_large_together_say_so(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skedulr.spreading.MOST_MAPPED_BYTES", 100)
    with work.app.workflow("large") as w:
        said = w.map(work.say, w.add(work.numbers.bind(["x" * 30] * 4)))
    monkeypatch.setattr("skedulr.delivery.spreading.MOST_MAPPED_BYTES", 100)
    work.app.drain()
    assert said.handle.state == "dead"
    assert said.handle.info()["error"]["type"] == "PayloadTooLarge"


def test_what_can_not_be_mapped_is_refused(work: Work) -> None:
    w = work.app.workflow("refused")
    a = w.add(work.numbers.bind(1))
    with pytest.raises(ConfigError, match="no step"):
        w.map(work.double, [1, 2])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unique= is for one task"):
        w.map(work.double.using(unique="until_done"), a)
    with pytest.raises(ConfigError, match="not a call"):
        w.map("double", a)  # type: ignore[arg-type]


def test_a_map_may_go_over_the_result_of_another_map(work: Work) -> None:
    with work.app.workflow("twice") as w:
        once = w.map(work.double, w.add(work.numbers.bind(4)))
        twice = w.map(work.double, once)
    work.app.drain()
    assert twice.handle.result(0) == [0, 4, 8, 12]


# Chains


def test_a_chain_gives_each_result_where_previous_stands(work: Work) -> None:
    chain = (
        work.say.bind("a") | work.say.bind("b", skedulr.previous, 1)
        | work.say.bind("c") | work.say.bind("d", skedulr.previous)
    )
    assert repr(chain) == "<Chain say | say | say | say>"
    handle = chain.submit()
    work.app.drain()
    assert work.ran == ["a", "b", "c", "d"]
    assert handle.result(0) == ["d", ["c"]]
    assert work.app.client.workflow(handle.info()["workflow"])["name"] == "chain"
    second = work.app.client.workflow(handle.info()["workflow"])["ids"][1]
    assert work.app.get(second).result(0) == ["b", ["a"], 1]


def test_a_chain_stops_where_a_call_fails(work: Work) -> None:
    work.fail.add("b")
    handle = (work.say.bind("a") | (work.say.bind("b") | work.say.bind("c"))).submit()
    work.app.drain()
    assert work.ran == ["a", "b"]
    with pytest.raises(TaskFailed) as failed:
        handle.result(0)
    assert failed.value.state == "skipped"
    assert "is dead" in failed.value.message


def test_a_chain_in_a_workflow_is_its_last_step_and_waits_with_its_first(work: Work) -> None:
    with work.app.workflow("w") as w:
        first = w.add(work.say.bind("first"))
        end = w.add(work.say.bind("a") | work.say.bind("b", skedulr.previous), name="end",
                    depends_on=first)
        w.add(work.say.bind("c", end))
    work.app.drain()
    assert work.ran == ["first", "a", "b", "c"]
    assert [one["name"] for one in w.info()["steps"]] == [None, None, "end", None]


def test_previous_means_nothing_elsewhere(work: Work) -> None:
    with pytest.raises(ConfigError, match="none is"):
        (work.say.bind(skedulr.previous) | work.say.bind("b")).submit()
    with pytest.raises(ConfigError, match="chain"):
        work.app.workflow("w").add(work.say.bind(skedulr.previous))
    with pytest.raises(PayloadError):
        work.say.submit(skedulr.previous)
    with pytest.raises(TypeError):
        work.say.bind("a") | 7  # type: ignore[operator]
    assert not work.app.wire.call("EXISTS", POOL.tasks)


# Parts


def test_a_part_is_one_step_that_others_wait_for(work: Work) -> None:
    with work.app.workflow("whole") as w:
        a = w.add(work.say.bind("a"), name="a")
        with w.workflow("part", depends_on=a) as part:
            b = part.add(work.say.bind("b"), name="b")
            part.add(work.say.bind("c", b, a))
            part.add(work.say.bind("no"), on_failure=b)
        w.add(work.say.bind("d"), depends_on=part)
        w.add(work.say.bind("e"), depends_on="part/b", after="part")
        w.add(work.say.bind("never"), on_failure=part)
    work.app.drain()
    assert work.ran[:3] == ["a", "b", "c"]
    assert sorted(work.ran[3:]) == ["d", "e"]
    assert (w.state, part.state) == ("succeeded", "succeeded")
    names = [one["name"] for one in w.info()["steps"]]
    assert names == ["a", "part/b", None, None, "part", None, None, None]
    assert part.info()["total"] == 4
    assert w.info()["steps"][4]["kind"] == "part"
    assert part.wait(0)
    assert w.wait(0)


def test_a_workflow_can_be_added_to_another_with_all_its_parts(work: Work) -> None:
    inner, innermost = work.app.workflow("inner"), work.app.workflow("innermost")
    x = innermost.add(work.say.bind("x"), name="x")
    innermost.add(work.say.using(depends_on=x).bind("y"))
    inner.add(innermost, name="deep")
    inner.add(work.say.bind("z"), depends_on="deep/x", after="deep")
    with work.app.workflow("outer") as w:
        first = w.add(work.say.bind("first"))
        end = w.add(inner, depends_on=first)
        w.add(work.say.bind("last"), depends_on=end)
    work.app.drain()
    assert work.ran == ["first", "x", "y", "z", "last"]
    assert [one["name"] for one in w.info()["steps"]] == [
        None, "inner/deep/x", None, "inner/deep", None, "inner", None
    ]
    assert (inner.state, innermost.state, w.state) == ("succeeded",) * 3
    assert innermost.info()["total"] == 3


def test_a_failed_step_skips_the_end_of_its_part_and_a_resubmit_opens_it(work: Work) -> None:
    work.fail.add("b")
    with work.app.workflow("whole") as w:
        with w.workflow("part") as part:
            b = part.add(work.say.bind("b"))
            c = part.add(work.say.bind("c"), depends_on=b)
            part.add(work.say.bind("d"), depends_on=c)
        w.add(work.say.bind("after"), depends_on=part)
        w.add(work.say.bind("sorry"), on_failure=part)
    work.app.drain()
    assert work.ran == ["b", "sorry"]
    assert (part.state, w.state) == ("failed", "failed")
    assert w.info()["steps"][3]["state"] == "skipped"
    work.fail.clear()
    assert part.resubmit() == 1
    work.app.drain()
    assert work.ran == ["b", "sorry", "b", "c", "d", "after"]
    assert (part.state, w.state) == ("succeeded", "succeeded")


def test_a_part_whose_trigger_can_not_happen_is_skipped_with_all_in_it(work: Work) -> None:
    work.fail.add("a")
    with work.app.workflow("whole") as w:
        a = w.add(work.say.bind("a"))
        with w.workflow("part", depends_on=a) as part:
            part.add(work.say.bind("b"))
            with part.workflow("inner") as inner:
                inner.add(work.say.bind("c"))
            part.add(work.say.bind("d"), depends_on=inner)
        w.add(work.say.bind("e"), depends_on=part)
        w.add(work.say.bind("f"), after=part)
    work.app.drain()
    assert work.ran == ["a", "f"]
    assert w.info()["counts"] == {"dead": 1, "skipped": 6, "succeeded": 1}
    work.fail.clear()
    w.resubmit()
    work.app.drain()
    assert work.ran == ["a", "f", "a", "b", "c", "d", "e"]
    assert w.state == "succeeded"


def test_cancelling_the_whole_cancels_its_parts_and_a_part_itself_alone(work: Work) -> None:
    with work.app.workflow("whole") as w:
        with w.workflow("one") as one:
            one.add(work.say.using(delay=60).bind("a"))
        with w.workflow("two") as two:
            two.add(work.say.using(delay=60).bind("b"))
    work.app.drain()
    assert one.cancel() == 2
    assert (one.state, two.state, w.state) == ("cancelled", "running", "running")
    assert w.cancel() == 2
    work.app.advance(100)
    assert work.ran == []
    assert w.state == "cancelled"


def test_the_end_of_a_part_waits_again_for_a_step_that_was_opened_meanwhile(work: Work) -> None:
    with work.app.workflow("whole") as w, w.workflow("part") as part:
        a = part.add(work.say.bind("a"))
        part.add(work.say.bind("b"), depends_on=a)
    client, states = work.app.client, type(work.app.client).states
    seen: list[list[str]] = []

    def once_open(ids: Any) -> list[str]:
        found = states(client, ids)
        seen.append(found)
        return ["queued", *found[1:]] if len(seen) == 1 else found

    client.states = once_open  # type: ignore[method-assign]
    work.app.drain()
    assert len(seen) == 2
    assert part.state == "succeeded"
    assert not work.left()


def test_parts_that_can_not_be_are_refused(work: Work) -> None:
    w = work.app.workflow("w")
    with pytest.raises(ConfigError, match="no steps"), w.workflow("empty"):
        pass
    with pytest.raises(ConfigError, match="started"):
        w.add(w)
    part = work.app.workflow("part")
    part.add(work.say.bind("a"), name="a")
    w.add(part)
    with pytest.raises(ConfigError, match="part of another"):
        part.add(work.say.bind("b"))
    with pytest.raises(ConfigError, match="already"):
        w.add(part)
    with pytest.raises(ConfigError, match="part of"):
        part.start()
    with pytest.raises(ConfigError, match=r"circle: .*part"):
        w.add(work.say.bind("c"), name="c", depends_on="part 2")
        with w.workflow("part 2", depends_on="c") as following:
            following.add(work.say.bind("d"), name="d")
        w.start()


def test_a_cancelled_chain_of_steps_is_resubmitted_in_its_order(work: Work) -> None:
    with work.app.workflow("w") as w:
        a = w.add(work.say.using(delay=60).bind("a"))
        b = w.add(work.say.bind("b", a))
        w.add(work.say.bind("c", b))
    work.app.drain()
    assert w.cancel() == 3
    assert w.resubmit() == 3
    work.app.advance(100)
    assert work.ran == ["a", "b", "c"]
    assert w.state == "succeeded"


def test_under_inline_maps_and_chains_have_ended_when_the_block_is_left() -> None:
    with inline(served=Skedulr()) as driven:
        work = Work(driven)
        with driven.workflow("w") as w:
            doubled = w.map(work.double, w.add(work.numbers.bind(3)))
        assert doubled.handle.result(0) == [0, 2, 4]
        assert (work.say.bind("a") | work.say.bind("b")).submit().state == "succeeded"


def test_the_children_of_a_map_know_nothing_special(work: Work) -> None:
    @work.app.task(name="look")
    def look(item: int) -> Any:
        here = current_task()
        return [item, here.attempt, here.inputs()]

    with work.app.workflow("w") as w:
        seen = w.map(look, w.add(work.numbers.bind(2)))
    work.app.drain()
    assert seen.handle.result(0) == [[0, 1, []], [1, 1, []]]

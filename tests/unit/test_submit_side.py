"""What a producer may add to its submits: headers by hooks, redacted arguments, transactions; and
the middleware that goes with it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from listing import listed

import skedulr
from skedulr import ConfigError, Skedulr, lists, message, testing
from skedulr.keys import PoolKeys
from skedulr.lists import Selection
from skedulr.testing import DrivenApp


@pytest.fixture
def app() -> Iterator[DrivenApp]:
    with testing.app(served=Skedulr()) as driven:
        yield driven


def headers_task(app: Skedulr) -> Any:
    return app.task(name="headers")(lambda_free)


def lambda_free() -> dict[str, Any]:
    return skedulr.current_task().headers


# before_submit


def test_a_hook_adds_headers_and_what_the_call_gives_is_stronger(app: DrivenApp) -> None:
    @app.before_submit
    def tenant(call: skedulr.Call[Any]) -> dict[str, Any]:
        return {"tenant": "t1", "task": call.task.name}

    @app.before_submit
    def nothing(call: skedulr.Call[Any]) -> None: ...

    task = headers_task(app)
    plain, own = task.submit(), task.using(headers={"tenant": "mine"}).submit()
    bulk = app.submit_many([task.bind()])[0]
    by_id = app.get(next(iter(app.submit_iter([task.bind()]))))
    app.drain()
    assert plain.result() == bulk.result() == by_id.result() == {"tenant": "t1", "task": "headers"}
    assert own.result() == {"tenant": "mine", "task": "headers"}


def test_a_hook_that_raises_refuses_the_submit(app: DrivenApp) -> None:
    @app.before_submit
    def refuse(call: skedulr.Call[Any]) -> None:
        raise PermissionError("not you")

    with pytest.raises(PermissionError):
        headers_task(app).submit()
    assert app.stats()["queued"] == 0


def test_a_header_that_can_not_travel_is_refused(app: DrivenApp) -> None:
    app.before_submit(lambda call: {"request": object()})
    with pytest.raises(skedulr.PayloadError, match="request"):
        headers_task(app).submit()


# redact


def card_task(app: Skedulr, seen: list[Any] | None = None) -> Any:
    @app.task(name="charge", redact=["card", "more", "rest"], max_retries=0)
    def charge(amount: int, card: str = "", *rest: str, code: str = "", **more: str) -> None:
        if seen is not None:
            seen.append((amount, card, rest, code, more))
        if not amount:
            raise ValueError("no amount")

    return charge


CALLS = [
    ((1, "4242"), {}, [1, "***"], {}),
    ((1,), {"card": "4242", "code": "c"}, [1], {"card": "***", "code": "c"}),
    ((1, "4242", "r1", "r2"), {"x": "secret"}, [1, "***", "***", "***"], {"x": "***"}),
    ((1,), {}, [1], {}),
]


@pytest.mark.parametrize(("args", "kwargs", "shown_args", "shown_kwargs"), CALLS)
def test_redacted_arguments_are_hidden_in_views_and_whole_in_the_task(
    app: DrivenApp, args: Any, kwargs: Any, shown_args: Any, shown_kwargs: Any
) -> None:
    seen: list[Any] = []
    handle = card_task(app, seen).submit(*args, **kwargs)
    for _ in range(2):
        info = handle.info()
        assert (info["args"], info["kwargs"]) == (shown_args, shown_kwargs)
        app.drain()
    amount, card, rest, _, more = seen[0]
    assert (amount, card) == (1, kwargs.get("card", args[1] if len(args) > 1 else ""))
    assert (rest, more) == (args[2:], {k: v for k, v in kwargs.items() if k == "x"})


def test_no_list_and_no_search_gives_a_redacted_argument_away(app: DrivenApp) -> None:
    card_task(app).submit(7, "4242-4242")
    assert "4242" not in json.dumps(listed(app.client))
    for query, found in (("4242-4242", 0), ("charge", 1)):
        page = app.client.ask(lambda wire, query=query: lists.page(
            wire, "skedulr", ["default"], Selection(query=query)
        ))
        assert len(page.items) == found, query


def test_a_redacted_argument_is_in_no_log_line(
    app: DrivenApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    app.use(skedulr.Logging())
    handle = card_task(app).submit(0, "4242-4242")
    app.drain()
    assert handle.state == "dead"
    assert "charge" in caplog.text
    assert "4242" not in caplog.text


def test_what_is_redacted_travels_with_the_call(app: DrivenApp) -> None:
    handle = card_task(app).submit(1, "4242")
    body = app.wire.call("HGET", PoolKeys("skedulr", "default").tasks, handle.uid)
    assert message.read_journal(body).extras["redact"] == [1]


def test_a_call_may_redact_more(app: DrivenApp) -> None:
    task = app.task(name="plain")(lambda_of_two)
    assert task.using(redact=["b"]).submit(1, 2).info()["args"] == [1, "***"]


def lambda_of_two(a: int, b: int) -> None: ...


def test_by_name_alone_all_positional_arguments_count_as_redacted(app: DrivenApp) -> None:
    info = app.remote("far", redact=["card"]).submit(1, "4242", card="x", other=2).info()
    assert (info["args"], info["kwargs"]) == (["***", "***"], {"card": "***", "other": 2})


def test_a_misspelt_argument_is_refused_when_the_task_is_made(app: DrivenApp) -> None:
    with pytest.raises(ConfigError, match=r"redact='c' is no argument of two.*known: a, b"):
        app.task(name="two", redact=["c"])(lambda_of_two)
    with pytest.raises(ConfigError, match="redact='c'"):
        app.task(name="two")(lambda_of_two).using(redact=["c"]).submit(1, 2)


# on_commit


class Transaction:
    """What a database library gives: functions that are called at the commit."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], str | None]] = []

    def __call__(self, store: Callable[[], None], alias: str | None) -> None:
        self.waiting.append((store, alias))

    def commit(self) -> None:
        for store, _ in self.waiting:
            store()


def test_a_submit_waits_for_the_commit_and_has_its_handle_at_once(app: DrivenApp) -> None:
    transaction = app._served.transactions = app.transactions = Transaction()
    words = ["as it was"]
    task = app.task(name="echo", on_commit=True)(echo)
    handle = task.submit(words)
    words.append("changed")
    other = task.using(on_commit="archive").submit(1)
    with pytest.raises(skedulr.TaskNotFound):
        handle.info()
    transaction.commit()
    app.drain()
    assert (handle.result(), other.result()) == (["as it was"], 1)
    assert [alias for _, alias in transaction.waiting] == [None, "archive"]


def echo(value: Any) -> Any:
    return value


def test_what_is_wrong_with_a_call_is_said_before_the_commit(app: DrivenApp) -> None:
    app.transactions = Transaction()
    with pytest.raises(skedulr.PayloadError):
        app.task(name="echo", on_commit=True)(echo).submit(object())


def test_without_anything_that_knows_of_transactions_it_is_refused(app: DrivenApp) -> None:
    with pytest.raises(ConfigError, match=r"skedulr\.contrib\.django"):
        app.task(name="echo", on_commit=True)(echo).submit(1)


def test_a_bulk_does_not_wait_for_a_commit(app: DrivenApp) -> None:
    app.transactions = Transaction()
    task = app.task(name="echo")(echo)
    with pytest.raises(skedulr.BulkError, match="item 1 has on_commit="):
        app.submit_many([task.bind(1), task.using(on_commit=True).bind(2)])


# Recovery


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_recovery_makes_an_error_of_what_is_none(app: DrivenApp, raised: BaseException) -> None:
    reported: list[tuple[str, BaseException]] = []
    app.use(skedulr.Recovery(lambda context, error: reported.append((context.name, error))))

    @app.task(name="leaves", max_retries=1, retry_on=RuntimeError, retry=skedulr.LinearRetry(1))
    def leaves() -> None:
        if skedulr.current_task().attempt == 1:
            raise raised

    handle = leaves.submit()
    app.advance(2)
    assert handle.state == "succeeded"
    assert reported == [("leaves", raised)]


def test_recovery_leaves_ordinary_errors_as_they_are_and_reports_each_attempt(
    app: DrivenApp,
) -> None:
    reported: list[str] = []
    app.use(skedulr.Recovery(lambda context, error: reported.append(str(error))))

    @app.task(name="fails", max_retries=1, retry=skedulr.LinearRetry(1))
    def fails() -> None:
        raise ValueError(skedulr.current_task().attempt)

    handle = fails.submit()
    app.advance(2)
    assert handle.info()["error"]["type"] == "ValueError"
    assert reported == ["1", "2"]


@pytest.mark.parametrize("meant", [skedulr.Retry(delay=0), skedulr.Reject("no")])
def test_recovery_does_not_report_what_a_handler_meant(app: DrivenApp, meant: Exception) -> None:
    reported: list[BaseException] = []
    app.use(skedulr.Recovery(lambda context, error: reported.append(error)))

    @app.task(name="means", max_retries=0)
    def means() -> None:
        raise meant

    means.submit()
    app.drain()
    assert reported == []


def test_recovery_lets_time_limits_and_cancels_through(app: DrivenApp) -> None:
    import gevent

    reported: list[str] = []
    app.use(skedulr.Recovery(lambda context, error: reported.append(type(error).__name__)))

    @app.task(name="slow", max_retries=0, timeout=0.02)
    def slow() -> None:
        gevent.sleep(5)

    @app.task(name="cancelled")
    def cancelled() -> None:
        app.cancel(skedulr.task_id() or "")
        gevent.sleep(5)

    late, stopped = slow.submit(), cancelled.submit()
    app.drain()
    assert late.info()["error"]["type"] == "skedulr.errors.TaskTimeout"
    assert stopped.state == "cancelled"
    assert reported == ["TaskTimeout"]


def test_a_reporter_that_fails_changes_nothing(app: DrivenApp) -> None:
    def broken(context: Any, error: BaseException) -> None:
        raise ConnectionError("the tracker is away")

    app.use(skedulr.Recovery(broken))

    @app.task(name="fails", max_retries=0)
    def fails() -> None:
        raise ValueError("mine")

    handle = fails.submit()
    app.drain()
    assert handle.info()["error"]["message"] == "mine"


# OpenTelemetry


@pytest.fixture
def spans() -> Any:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def test_a_run_is_a_span_in_the_trace_of_its_producer(app: DrivenApp, spans: Any) -> None:
    provider, exporter = spans
    app.use(skedulr.OpenTelemetry(provider))
    tracer = provider.get_tracer("test")

    @app.task(name="inner")
    def inner() -> None: ...

    @app.task(name="outer", pool="p")
    def outer() -> None:
        with tracer.start_as_current_span("inside"):
            inner.submit()

    with tracer.start_as_current_span("request"):
        handle = outer.submit()
    app.drain()
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert set(found) == {"request", "process outer", "inside", "process inner"}
    assert len({span.context.trace_id for span in found.values()}) == 1
    parents = [("process outer", "request"), ("inside", "process outer"),
               ("process inner", "inside")]
    for child, parent in parents:
        assert found[child].parent.span_id == found[parent].context.span_id
    span = found["process outer"]
    assert span.kind.name == "CONSUMER"
    assert span.attributes["messaging.message.id"] == handle.id
    assert (span.attributes["messaging.destination.name"], span.attributes["skedulr.attempt"]) == (
        "p", 1
    )


def test_a_failed_attempt_marks_its_span(app: DrivenApp, spans: Any) -> None:
    provider, exporter = spans
    app.use(skedulr.OpenTelemetry(provider))

    @app.task(name="fails", max_retries=0)
    def fails() -> None:
        raise ValueError("no")

    fails.submit()
    app.drain()
    [span] = exporter.get_finished_spans()
    assert (span.status.status_code.name, span.status.description) == ("ERROR", "ValueError: no")
    assert [event.name for event in span.events] == ["exception"]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ConfigError, match="otel"):
        skedulr.OpenTelemetry()

"""What is published of a task's function, and read back."""

from __future__ import annotations

from typing import Any

from skedulr import LinearRetry, Skedulr, names, payload, retries
from skedulr.signatures import MOST_CHARS, Parameter, parameters_of, read, rows


def example(
    to: str, /, order: int = 3, *more: Any, urgent: bool, note: str = "a b", **rest: Any
) -> None: ...


def test_every_kind_of_parameter_is_told_apart() -> None:
    assert parameters_of(example) == (
        Parameter("to", "positional", True, None, "str"),
        Parameter("order", "any", False, "3", "int"),
        Parameter("more", "args", False, None, "Any"),
        Parameter("urgent", "keyword", True, None, "bool"),
        Parameter("note", "keyword", False, "'a b'", "str"),
        Parameter("rest", "kwargs", False, None, "Any"),
    )


def test_what_is_written_is_read_and_what_is_foreign_is_nothing() -> None:
    assert read(rows(parameters_of(example))) == parameters_of(example)
    for odd in (None, 7, [[1, 2]], [3]):
        assert read(odd) == ()


def test_a_default_that_can_not_be_shown_harms_nothing() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    hostile = Hostile()

    def takes(a: Any = hostile, b: Any = "x" * 10_000) -> None: ...

    first, second = parameters_of(takes)
    assert first.default == "..."
    assert len(second.default or "") == MOST_CHARS
    assert parameters_of(None) == ()


def test_a_published_task_carries_its_signature_through_redis() -> None:
    app = Skedulr()

    @app.task(name="mail")
    def mail(to: str, copies: int = 1) -> None: ...

    said = names.published(mail)
    back = names.unpack(names.pack(said))
    assert back is not None
    assert back.parameters == said.parameters == parameters_of(mail.function)
    old = names.payload.encode(["default", {}, 5])
    assert names.unpack(old) == names.Published("default", {}, 5)


def test_a_retry_strategy_is_published_where_it_can_travel() -> None:
    class Hourly:
        def next_delay(self, attempt: int, error: BaseException | None) -> float:
            return 3600

    app = Skedulr()
    own, foreign, none = (
        names.unpack(names.pack(names.published(task)))
        for task in (
            app.task(name="own", retry=LinearRetry(5, cap=9))(example),
            app.task(name="foreign", retry=Hourly())(example),
            app.task(name="none")(example),
        )
    )
    assert own and retries.from_wire(own.retry) == LinearRetry(5, cap=9)
    assert foreign and foreign.retry is None
    assert none and none.retry is None


def test_an_entry_of_an_earlier_release_has_no_strategy() -> None:
    known = names.unpack(payload.encode(["default", {}, 7, []]))
    assert known is not None and known.retry is None

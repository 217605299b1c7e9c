"""The errors' tree, what they carry, and hints for names."""

from __future__ import annotations

import inspect
import pickle

import pytest

from skedulr import errors


def classes() -> list[type[BaseException]]:
    return [
        value for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, BaseException)
    ]


def test_all_are_skedulr_errors_but_those_that_interrupt_a_handler() -> None:
    outside = {one.__name__ for one in classes() if not issubclass(one, errors.SkedulrError)}
    assert outside == {"TaskTimeout", "TaskCancelled"}


@pytest.mark.parametrize("interrupt", [errors.TaskTimeout, errors.TaskCancelled])
def test_a_handler_s_except_exception_does_not_swallow_an_interrupt(
    interrupt: type[BaseException],
) -> None:
    assert not issubclass(interrupt, Exception)


def test_too_large_is_a_payload_error() -> None:
    assert issubclass(errors.PayloadTooLarge, errors.PayloadError)


def test_every_error_says_what_it_is_for() -> None:
    assert [one.__name__ for one in classes() if not one.__doc__] == []


@pytest.mark.parametrize("error", [
    errors.DuplicateTask("taken", "p/a"),
    errors.TaskFailed("p/a", "dead", "ValueError", "no"),
    errors.BulkError("half", ["h"], 1),
    errors.StorageUnavailable("away", True),
    errors.Retry("again", 5.0),
    errors.Reject("never"),
], ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_what_it_carries(error: Exception) -> None:
    # Process pools and loggers do that to exceptions.
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(("error", "text"), [
    (errors.TaskFailed("p/a", "dead", "ValueError", "no"), "task p/a is dead: ValueError: no"),
    (errors.TaskFailed("p/a", "expired", None, "too late"), "task p/a is expired: too late"),
    (errors.TaskFailed("p/a", "cancelled", None, ""), "task p/a is cancelled"),
])
def test_a_failed_task_says_how_it_ended(error: errors.TaskFailed, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(("name", "known", "hint"), [
    ("prioritty", ["pool", "priority"], " (did you mean 'priority'?)"),
    ("x", ["pool", "priority"], " (known: pool, priority)"),
    ("x", [], ""),
    ("x", [f"name{i}" for i in range(13)], ""),
])
def test_a_hint_names_the_nearest_or_the_few_there_are(
    name: str, known: list[str], hint: str
) -> None:
    assert errors.nearest(name, known) == hint

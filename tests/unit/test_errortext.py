"""Any error becomes bounded text, and lets go of what its frames hold."""

from __future__ import annotations

import gc
import json
import tracemalloc
import weakref
from pathlib import Path

import gevent
import greenlet
import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skedulr import errortext
from skedulr.errortext import describe, forget


def raised(error):
    """The error after it was raised and caught, with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


class Shop(Exception):
    pass


# --- the three texts ------------------------------------------------------------------------------


def test_an_error_is_its_type_its_message_and_where_it_came_from():
    def charge(card):
        raise Shop(f"no such card: {card}")

    with pytest.raises(Shop) as caught:
        charge("1234")
    name, message, text = describe(caught.value)
    assert name == f"{__name__}.Shop"
    assert message == "no such card: 1234"
    lines = text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-3].endswith("in charge")
    assert lines[-2].strip() == 'raise Shop(f"no such card: {card}")'
    assert lines[-1] == f"{__name__}.Shop: no such card: 1234"


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        (ValueError("x"), "ValueError", "x"),
        (ValueError(), "ValueError", ""),
        (ValueError("x", 1), "ValueError", "('x', 1)"),
        (KeyError("x"), "KeyError", "'x'"),
        (OSError(2, "gone", "f"), "FileNotFoundError", "[Errno 2] gone: 'f'"),
        (json.JSONDecodeError("bad", "", 0), "json.decoder.JSONDecodeError", "bad: line 1 col"),
        (SystemExit(3), "SystemExit", "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt", ""),
        (MemoryError(), "MemoryError", ""),
        (greenlet.GreenletExit(), "greenlet.GreenletExit", ""),
        (gevent.Timeout(5), "gevent.timeout.Timeout", "5 seconds"),
        (ExceptionGroup("two", [ValueError("x")]), "ExceptionGroup", "two (1 sub-exception)"),
    ],
    # Not repr: some hold an address, and the workers of a parallel run must agree on the names.
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_types_and_messages_are_as_python_says_them(error, name, message):
    found_name, found_message, text = describe(raised(error))
    assert (found_name, found_message[: len(message)]) == (name, message)
    assert f"\n{name}" in text


def test_the_values_of_variables_are_not_in_the_text():
    password = "hunter" + "2"
    assert password not in describe(raised(Shop("no")))[2]


def test_an_error_that_was_never_raised_has_a_text_too():
    assert describe(Shop("x")) == (f"{__name__}.Shop", "x", f"{__name__}.Shop: x\n")


def test_causes_come_first_as_python_prints_them():
    def fail():
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("second")  # noqa: B904 - the implicit context is the point
        except ValueError as error:
            raise Shop("third") from error

    with pytest.raises(Shop) as caught:
        fail()
    text = describe(caught.value)[2]
    places = [
        text.index(part)
        for part in (
            "KeyError: 'first'",
            "During handling of the above exception",
            "ValueError: second",
            "direct cause of the following exception",
            "Shop: third",
        )
    ]
    assert places == sorted(places)


def test_a_context_that_was_suppressed_stays_so():
    try:
        try:
            raise KeyError("hidden")
        except KeyError:
            raise Shop("shown") from None
    except Shop as error:
        assert "hidden" not in describe(error)[2]


def test_notes_are_kept():
    error = Shop("x")
    error.add_note("while serving table 5")
    assert describe(error)[2].splitlines()[-1] == "while serving table 5"


def test_a_group_shows_its_members_with_their_tracebacks():
    inner = ExceptionGroup("inner", [raised(KeyError("deep"))])
    text = describe(raised(ExceptionGroup("outer", [raised(Shop("flat")), inner])))[2]
    assert "| " + __name__ + ".Shop: flat" in text
    assert "| | KeyError: 'deep'" in text
    assert text.count("Traceback") == 3


# --- Skedulr's own frames -------------------------------------------------------------------------


def ours(source, **names):
    """Functions as if they were in a file of the package."""
    namespace = dict(names)
    path = Path(errortext.__file__).parent / "pools" / "executor.py"
    exec(compile(source, str(path), "exec"), namespace)
    return namespace


CALLS = "def run(task):\n    return step(task)\ndef step(task):\n    return task()\n"


def test_our_own_frames_at_the_start_are_left_out_and_later_ones_stay():
    def handler():
        return run(fail)  # a handler may call Skedulr

    def fail():
        raise Shop("x")

    run = ours(CALLS)["run"]
    try:
        run(handler)
    except Shop as error:
        # The test's own frame is where a worker's greenlet starts.
        error.__traceback__ = error.__traceback__.tb_next
        text = describe(error)[2]
    names = [line.rpartition(" in ")[2] for line in text.splitlines() if " in " in line]
    assert names == ["handler", "run", "step", "fail"]


def test_an_error_that_only_our_frames_saw_keeps_them():
    try:
        ours(CALLS)["run"](None)
    except TypeError as error:
        error.__traceback__ = error.__traceback__.tb_next
        text = describe(error)[2]
    assert "executor.py" in text


# --- bounds ---------------------------------------------------------------------------------------

HUGE = 50_000_000


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * HUGE),
        ValueError("x" * HUGE, 1),
        ValueError(b"x" * HUGE),
        ValueError([["x" * 1000] * 1000] * 1000),
        KeyError("x" * HUGE),
        OSError(5, "x" * HUGE),
        ExceptionGroup("x" * 1000, [ValueError("y" * HUGE)] * 50),
        UnicodeDecodeError("utf-8", b"\xff" * HUGE, 0, 1, "bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_huge_message_is_cut_without_being_formatted(error):
    tracemalloc.start()
    try:
        name, message, text = describe(error)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < len(message) <= 2048
    assert len(text.encode()) <= 16_384
    assert name in text
    assert peak < 2_000_000


def test_a_cut_message_says_how_long_it_was():
    message = describe(ValueError("x" * 5000))[1]
    assert len(message) == 2048
    assert message.endswith("... (5,000 characters)")
    assert describe(ValueError("x" * 2048))[1] == "x" * 2048


def test_a_nested_argument_that_contains_itself_has_a_message():
    loop = ["x" * 70_000]
    loop.append(loop)
    assert describe(ValueError(loop))[1].startswith("list of 2: 'xxx")


@pytest.mark.parametrize("limit", [0, 1, 10, 50, 100, 1000, 16_384])
def test_a_traceback_is_cut_in_the_middle_to_the_byte(limit):
    text = describe(raised(Shop("é€𝄞" * 400 + "the end")), limit)[2]
    assert len(text.encode()) <= limit
    if 100 <= limit <= 1000:
        assert text.startswith("Traceback")
        assert " bytes left out ..." in text
        assert text.endswith("the end\n")


def test_a_recursion_shows_both_its_ends():
    def down(depth):
        return down(depth + 1)

    with pytest.raises(RecursionError) as caught:
        down(0)
    name, message, text = describe(caught.value)
    assert (name, message[:31]) == ("RecursionError", "maximum recursion depth exceede")
    assert "frames left out" in text
    assert text.splitlines()[-1].startswith("RecursionError: ")


def test_a_ring_of_causes_ends():
    first, second = raised(Shop("first")), raised(Shop("second"))
    first.__cause__, second.__cause__ = second, first
    text = describe(first)[2]
    assert (text.count("Shop: first"), text.count("Shop: second")) == (1, 1)
    forget(first)


def test_ten_thousand_causes_are_shown_in_part():
    error = Shop("the first")
    for number in range(10_000):
        following = Shop(f"number {number}")
        following.__cause__ = error
        error = following
    text = describe(error, 100_000)[2]
    assert text.startswith("(earlier causes left out)")
    assert text.endswith("Shop: number 9999\n")
    assert "number 9900" not in text
    forget(error)


def test_a_group_of_thousands_in_groups_of_thousands_is_shown_in_part():
    error = ValueError("leaf")
    for _ in range(300):
        error = ExceptionGroup("level", [error, *[ValueError("x")] * 1000])
    assert "errors of the group left out" in describe(error)[2]
    forget(error)


# --- hostile errors -------------------------------------------------------------------------------


def hostile(**members):
    def lie(*_):
        raise members["raises"]

    return type("Hostile", (Exception,), dict.fromkeys(members["methods"], lie))


@pytest.mark.parametrize(
    "second",
    [RuntimeError("x"), SystemExit(1), KeyboardInterrupt(), RecursionError(), MemoryError()],
)
@pytest.mark.parametrize(
    "methods", [["__str__"], ["__repr__", "__str__"], ["__getattribute__"], ["__str__", "__eq__"]]
)
def test_an_error_that_answers_with_errors_is_described_all_the_same(methods, second):
    error = raised(hostile(methods=methods, raises=second)("text"))
    name, message, text = describe(error)
    assert name.endswith("Hostile")
    assert message
    assert "in raised" in text
    forget(error)


def test_the_message_says_why_there_is_none():
    class Silent(Exception):
        def __str__(self):
            raise Shop("never")

    assert describe(Silent())[1] == f"(no message: its __str__ raised {__name__}.Shop)"


def test_an_argument_whose_repr_fails_does_not_matter():
    class Mute:
        def __repr__(self):
            raise RuntimeError

    assert describe(ValueError(Mute(), 1))[1].startswith("(no message")
    assert describe(ValueError(Mute(), "x" * 100_000))[1].startswith("tuple of 2: <")


def test_a_str_that_is_no_plain_str_becomes_one():
    class Sly(str):
        def __len__(self):
            return 1

        def __getitem__(self, part):
            raise RuntimeError

        def encode(self, *_, **__):
            raise RuntimeError

    class Odd(Exception):
        def __str__(self):
            return Sly("y" * 5000)

    _, message, text = describe(Odd())
    assert type(message) is str
    assert len(message) == 2048
    assert text.encode()


def test_a_type_with_a_false_name_has_one_anyway():
    class Renamed(Exception):
        pass

    Renamed.__module__ = None
    Renamed.__qualname__ = "R" * 5000
    assert len(describe(Renamed())[0]) == 200


def test_attributes_that_are_not_what_python_puts_there_do_no_harm():
    class Odd(Exception):
        __cause__ = "because"
        __context__ = 7
        __notes__ = [1, "fine", object(), ["x"]]  # noqa: RUF012 - hostile on purpose
        __traceback__ = "nowhere"

    error = raised(Odd("x"))
    _, message, text = describe(error)
    assert message == "x"
    assert text.startswith("Traceback")
    assert "\nfine\n" in text
    forget(error)


@given(st.text(st.characters(), max_size=3000), st.integers(0, 4000))
@settings(max_examples=100, deadline=None)
def test_whatever_the_message_all_three_texts_can_be_stored(message, limit):
    error = raised(Shop(message))
    error.add_note(message)
    parts = describe(error, limit)
    assert all(type(part) is str and part.encode() is not None for part in parts)
    assert msgpack.unpackb(msgpack.packb(list(parts))) == list(parts)
    assert len(parts[1]) <= 2048
    assert len(parts[2].encode()) <= limit


def test_a_lone_surrogate_becomes_a_question_mark():
    assert describe(Shop("a\ud800b"))[1] == "a?b"


# --- letting go -----------------------------------------------------------------------------------


class Big:
    pass


def test_forgetting_an_error_frees_the_variables_of_its_frames_and_its_causes():
    kept = []

    def fail():
        big = Big()
        kept.append(weakref.ref(big))
        raise Shop("x")

    def fail_again():
        big = Big()
        kept.append(weakref.ref(big))
        try:
            fail()
        except Shop as error:
            raise ExceptionGroup("g", [raised_in(fail)]) from error

    def raised_in(function):
        try:
            function()
        except Shop as error:
            return error

    error = None
    try:
        fail_again()
    except ExceptionGroup as caught:
        error = caught
    gc.collect()
    assert [one() is not None for one in kept] == [True, True, True]
    forget(error)
    gc.collect()
    assert [one() for one in kept] == [None, None, None]
    assert error.__traceback__ is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_forgetting_survives_a_generator_that_will_not_close():
    def stubborn():
        try:
            yield
        finally:
            raise RuntimeError("no")

    def fail():
        running = stubborn()
        next(running)
        raise Shop("x")

    with pytest.raises(Shop) as caught:
        fail()
    forget(caught.value)
    assert caught.value.__traceback__ is None


def test_forgetting_twice_or_before_it_was_raised_is_fine():
    error = Shop("x")
    forget(error)
    forget(error)

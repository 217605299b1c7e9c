"""Payloads come back equal or are refused with the place, the type and the way out."""

from __future__ import annotations

import collections
import dataclasses
import enum
import subprocess
import sys
import threading
import uuid
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skedulr import payload
from skedulr.errors import PayloadError, PayloadTooLarge
from skedulr.payload import canonical, decode, decode_stream, encode

PARIS = ZoneInfo("Europe/Paris")
SURROGATE = "\ud800"


# --- what goes in comes back ----------------------------------------------------------------------


def text():
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def offsets():
    """Fixed time zones, some with a name, down to the microsecond that Python allows."""
    day = timedelta(days=1) - timedelta(microseconds=1)
    return st.builds(
        lambda offset, name: timezone(offset, name) if name is not None else timezone(offset),
        st.timedeltas(min_value=-day, max_value=day),
        st.none() | text(),
    )


def zones():
    return st.none() | st.just(UTC) | offsets() | st.timezones()


HASHABLE_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | text()
    | st.binary(max_size=20)
    | st.datetimes(timezones=zones())
    | st.datetimes(timezones=zones()).map(lambda moment: moment.replace(fold=1))
    | st.dates()
    | st.times(timezones=zones())
    | st.times().map(lambda moment: moment.replace(fold=1))
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
)

HASHABLE = st.recursive(
    HASHABLE_LEAVES,
    lambda inner: st.frozensets(inner, max_size=4) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)

VALUES = st.recursive(
    HASHABLE | st.sets(HASHABLE, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(text(), inner, max_size=5)
    ),
    max_leaves=20,
)


def as_lists(value):
    """The value with tuples as lists, except inside sets: what encode promises to give back."""
    if type(value) in (list, tuple):
        return [as_lists(item) for item in value]
    if type(value) is dict:
        return {key: as_lists(item) for key, item in value.items()}
    return value


def typed(value):
    """A form that differs when a type, a fold, a zone's name or the sign of a zero differs."""
    kind = type(value)
    if kind in (list, tuple):
        return (kind, tuple(typed(item) for item in value))
    if kind in (set, frozenset):
        return (kind, frozenset(typed(item) for item in value))
    if kind is dict:
        return (kind, tuple((key, typed(item)) for key, item in value.items()))
    return (kind, repr(value))


@given(VALUES)
@settings(max_examples=400, deadline=None)
def test_every_supported_value_comes_back_equal_and_of_the_same_types(value):
    back = decode(encode(value))
    assert back == as_lists(value)
    assert typed(back) == typed(as_lists(value))


@pytest.mark.parametrize("moment", [datetime(2000, 1, 1, 12), time(12), time(12, 0, 0, 1)])
@pytest.mark.parametrize("micros", [1, -1, 999_999, -999_999, 1_000_001])
@pytest.mark.parametrize("name", [None, "odd"])
def test_an_offset_of_less_than_a_second_comes_back(moment, micros, name):
    """Which Python itself takes for none when it reads it."""
    offset = timedelta(microseconds=micros)
    value = moment.replace(tzinfo=timezone(offset) if name is None else timezone(offset, name))
    back = decode(encode(value))
    assert back == value and typed(back) == typed(value)


@given(st.lists(VALUES, max_size=4))
@settings(max_examples=50, deadline=None)
def test_a_stream_gives_back_every_value_in_order(values):
    stream = b"".join(encode(value) for value in values)
    assert [typed(value) for value in decode_stream(stream)] == [
        typed(as_lists(value)) for value in values
    ]


def test_a_tuple_comes_back_as_a_list_and_inside_a_set_as_a_tuple():
    assert decode(encode((1, (2, 3)))) == [1, [2, 3]]
    assert decode(encode({(1, (2, frozenset({(3,)})))})) == {(1, (2, frozenset({(3,)})))}


@pytest.mark.parametrize("fold", [0, 1])
def test_both_readings_of_the_repeated_hour_keep_their_instant_zone_and_fold(fold):
    moment = datetime(2024, 10, 27, 2, 30, tzinfo=PARIS, fold=fold)
    back = decode(encode(moment))
    assert back == moment
    assert back.astimezone(UTC) == moment.astimezone(UTC)
    assert (back.tzinfo.key, back.fold) == ("Europe/Paris", fold)


def test_a_time_in_the_gap_keeps_its_reading():
    moment = datetime(2024, 3, 31, 2, 30, tzinfo=PARIS)
    assert decode(encode(moment)) == moment


def test_a_named_offset_keeps_its_name_even_when_it_is_zero():
    for zone in (timezone(timedelta(hours=1), "CET"), timezone(timedelta(0), "GMT")):
        back = decode(encode(datetime(2024, 1, 1, tzinfo=zone)))
        assert back.tzname() == zone.tzname(None)


def test_utc_comes_back_as_the_utc_there_is():
    assert decode(encode(datetime(2024, 1, 1, tzinfo=UTC))).tzinfo is UTC


class Foreign(tzinfo):
    """A zone as older libraries make them; ``ambiguous`` looks at fold, like dateutil's."""

    def __init__(self, ambiguous=False):
        self.ambiguous = ambiguous

    def utcoffset(self, moment):
        return timedelta(hours=2 - (moment.fold if self.ambiguous and moment else 0))

    def dst(self, moment):
        return timedelta(0)

    def tzname(self, moment):
        return "ELSE"


def test_a_foreign_zone_comes_back_as_its_offset():
    moment = datetime(2024, 1, 1, 12, tzinfo=Foreign())
    back = decode(encode(moment))
    assert back == moment
    assert back.utcoffset() == timedelta(hours=2)


def test_a_foreign_zone_is_refused_in_the_hour_where_it_would_not_come_back_equal():
    with pytest.raises(PayloadError, match=r"args\[0\] has a time zone .*Foreign.*zoneinfo"):
        encode([datetime(2024, 1, 1, 12, tzinfo=Foreign(ambiguous=True))])


def test_other_zone_rules_on_the_reading_machine_change_the_clock_and_not_the_instant():
    written = payload._pack(["2024-07-01T12:00:00+01:00", 0, "Europe/Paris", None])
    back = decode(msgpack.packb(msgpack.ExtType(payload.DATETIME, written)))
    assert back == datetime(2024, 7, 1, 11, tzinfo=UTC)
    assert back.isoformat() == "2024-07-01T13:00:00+02:00"


def test_a_zone_that_the_reading_machine_lacks_is_named():
    written = payload._pack(["2024-07-01T12:00:00+01:00", 0, "Mars/Olympus", None])
    with pytest.raises(PayloadError, match=r"'Mars/Olympus' is not known.*tzdata"):
        decode(msgpack.packb(msgpack.ExtType(payload.DATETIME, written)))


def test_equal_sets_make_the_same_bytes_in_every_process():
    program = (
        "from skedulr.payload import encode;"
        "print(encode({'one', 'two', 'three', 'four', ('five',)}).hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(payload.__file__).parents[1])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


def test_the_canonical_form_ignores_the_order_of_keys_and_keeps_types_apart():
    assert canonical({"a": 1, "b": [{"d": 1, "c": 2}]}) == canonical(
        {"b": ({"c": 2, "d": 1},), "a": 1}
    )
    assert encode({"a": 1, "b": 2}) != encode({"b": 2, "a": 1})
    assert len({canonical(one) for one in (1, 1.0, True, "1", b"1", Decimal(1), None, [1])}) == 8


# --- what is refused ------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(str):
    pass


class Moment(datetime):
    pass


@dataclasses.dataclass
class Card:
    number: str


Point = collections.namedtuple("Point", "x y")


class Plain:
    def __repr__(self):
        raise RuntimeError("no message may depend on this")


class Scalar(float):
    pass


Scalar.__module__ = "numpy"

REFUSED = {
    "an int over 64 bits": (2**64, "int outside 64 bits", "a str or a Decimal"),
    "an int under 64 bits": (-(2**63) - 1, "int outside 64 bits", "a str or a Decimal"),
    "NaN": (float("nan"), "NaN", "None"),
    "a Decimal NaN": (Decimal("nan"), "NaN", "None"),
    "a signalling Decimal NaN": (Decimal("-sNaN"), "NaN", "None"),
    "a lone surrogate": (SURROGATE, "lone surrogate", "bytes"),
    "an enum": (Colour.RED, "Colour", "its .value"),
    "an int enum": (Level.LOW, "Level", "its .value"),
    "a dataclass": (Card("1"), "Card", "dataclasses.asdict(value)"),
    "a namedtuple": (Point(1, 2), "Point", "value._asdict() or tuple(value)"),
    "an OrderedDict": (collections.OrderedDict(a=1), "collections.OrderedDict", "dict(value)"),
    "a defaultdict": (collections.defaultdict(int), "collections.defaultdict", "dict(value)"),
    "a Counter": (collections.Counter("a"), "collections.Counter", "dict(value)"),
    "a subclass of str": (Word("x"), "Word", "str(value)"),
    "a subclass of datetime": (Moment(2024, 1, 1), "Moment", "datetime.fromisoformat"),
    "a numpy scalar": (Scalar(1), "numpy.Scalar", "value.tolist()"),
    "an object": (Plain(), "Plain", "its id, or its fields as a dict"),
    "a class": (Plain, "of type type", "its name"),
    "a function": (as_lists, "of type function", "its name"),
    "an exception": (ValueError("x"), "of type ValueError", "str(value)"),
    "a path": (Path("x"), "pathlib.PosixPath", "str(value)"),
    "a generator": ((one for one in "ab"), "of type generator", "list(value)"),
    "a view": ({}.keys(), "of type dict_keys", "list(value)"),
    "a range": (range(3), "of type range", "list(value)"),
    "a complex": (1j, "of type complex", "[value.real, value.imag]"),
    "a bytearray": (bytearray(b"x"), "of type bytearray", "bytes(value)"),
    "a memoryview": (memoryview(b"x"), "of type memoryview", "bytes(value)"),
    "an extension of msgpack": (msgpack.ExtType(1, b""), "ExtType", "value._asdict()"),
    "a timestamp of msgpack": (msgpack.Timestamp(1), "Timestamp", "its id, or its fields"),
    "a deque": (collections.deque(), "collections.deque", "its id, or its fields"),
}


@pytest.mark.parametrize(("value", "what", "advice"), REFUSED.values(), ids=REFUSED)
def test_what_would_not_come_back_equal_is_refused_with_its_place_type_and_way_out(
    value, what, advice
):
    with pytest.raises(PayloadError) as refused:
        encode(["fine", {"user": {"when": value}}])
    message = str(refused.value)
    assert message.startswith("args[1]['user']['when'] is ")
    assert what in message
    assert f"pass {advice}" in message


PLACES = {
    "the value itself": (lambda bad: bad, "result is "),
    "in a tuple": (lambda bad: [(1, bad)], "result[0][1] is "),
    "in a set": (lambda bad: [{bad}], "result[0]{member} is "),
    "in a frozenset in a set": (lambda bad: {frozenset({bad})}, "result{member}{member} is "),
    "under a key with a quote": (lambda bad: {"it's": bad}, 'result["it\'s"] is '),
    "under an endless key": (lambda bad: {"k" * 9000: bad}, "result['kkkkkkk"),
}


@pytest.mark.parametrize(("place", "starts"), PLACES.values(), ids=PLACES)
def test_the_path_leads_to_the_value(place, starts):
    with pytest.raises(PayloadError) as refused:
        encode(place(Colour.RED), where="result")
    assert str(refused.value).startswith(starts)
    assert len(str(refused.value)) < 300


def test_a_path_of_a_hundred_steps_is_cut_in_the_middle():
    value = Colour.RED
    for depth in range(90):
        value = {f"a rather long key for level {depth}": value}
    with pytest.raises(PayloadError, match=r"^args\['a rather long key for level 89'\].*\.\.\."):
        encode(value)


@pytest.mark.parametrize("key", [1, 1.5, True, None, b"x", (1, 2), Word("x"), Colour.RED, Plain()])
def test_a_key_that_is_no_str_is_refused_with_the_dict_it_is_in(key):
    with pytest.raises(PayloadError, match=r"^args\[0\] has .* as a key: keys must be str$"):
        encode([{"a": 1, key: 2}])


def test_a_key_with_a_lone_surrogate_is_refused():
    with pytest.raises(PayloadError, match=r"^args\[0\] has the key '\\ud800', a str with a lone"):
        encode([{SURROGATE: 1}])


def test_a_refusal_can_always_be_printed():
    with pytest.raises(PayloadError) as refused:
        encode([{"a\ud800b": float("nan")}])
    assert str(refused.value).encode()


def nested(container, depth):
    value = container()
    for _ in range(depth - 1):
        value = [value] if container is list else {"k": value}
    return value


@pytest.mark.parametrize("container", [list, dict])
def test_a_hundred_levels_pass_and_one_more_is_refused(container):
    value = nested(container, 100)
    assert decode(encode(value)) == value
    with pytest.raises(PayloadError, match="nested more than 100 deep"):
        encode(nested(container, 101))


def test_ten_sets_inside_each_other_pass_and_one_more_is_refused():
    value = frozenset()
    for _ in range(9):
        value = frozenset({value})
    assert decode(encode(value)) == value
    with pytest.raises(PayloadError, match="nested more than 100 deep"):
        encode(frozenset({value}))


def test_nesting_beyond_any_recursion_limit_is_refused_like_the_rest():
    with pytest.raises(PayloadError, match="nested more than 100 deep"):
        encode(nested(list, 5000))


def test_a_value_that_contains_itself_is_refused_where_it_does():
    loop = {"list": [1]}
    loop["list"].append(loop)
    with pytest.raises(PayloadError, match=r"^args\['list'\]\[1\] contains itself"):
        encode(loop)


def test_the_same_list_twice_is_no_cycle():
    shared = [1]
    assert decode(encode([shared, shared])) == [[1], [1]]


def test_no_recursion_error_escapes_when_the_caller_is_deep_already():
    def deeper(value):
        try:
            return deeper(value)
        except RecursionError:
            encode(value)

    with pytest.raises(PayloadError):
        deeper(nested(list, 90))


def test_a_refused_value_does_not_spoil_the_next_one():
    for _ in range(3):
        with pytest.raises(PayloadError):
            encode([1, {"a": [2, 2**70]}])
        assert decode(encode([1, 2])) == [1, 2]


# --- sizes ----------------------------------------------------------------------------------------


def test_the_limit_is_the_largest_size_that_passes():
    data = encode("x" * 100)
    assert encode("x" * 100, limit=len(data)) == data
    with pytest.raises(PayloadTooLarge, match=r"^kwargs takes 102 bytes; the limit is 101: "):
        encode("x" * 100, limit=len(data) - 1, where="kwargs")


def test_one_mebibyte_is_the_limit_unless_told():
    assert len(encode("x" * 1_048_571)) == 1_048_576
    with pytest.raises(PayloadTooLarge, match="1,048,577 bytes; the limit is 1,048,576"):
        encode("x" * 1_048_572)


def test_a_small_value_that_expands_is_refused_before_it_does():
    value = ["x"]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(PayloadTooLarge, match="over 4,194,304 bytes; the limit is 1,048,576"):
        encode(value)
    with pytest.raises(PayloadTooLarge):
        encode([["x" * 1_000_000] * 1_000] * 1_000)
    with pytest.raises(PayloadTooLarge):
        encode([{"k" * 1_000_000: 1}] * 1_000_000)


# --- reading what others wrote --------------------------------------------------------------------


@given(st.binary(max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_bytes_give_a_value_or_a_payload_error(data):
    for read in (decode, decode_stream):
        try:
            read(data)
        except PayloadError:
            pass


@given(VALUES, st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_bytes_give_a_value_or_a_payload_error(value, draw):
    data = bytearray(encode(value))
    data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        decode(bytes(data))
    except PayloadError:
        pass


def test_an_unknown_extension_names_its_number():
    with pytest.raises(PayloadError, match="extension type 99 is not known"):
        decode(msgpack.packb(msgpack.ExtType(99, b"")))


def test_a_timestamp_of_another_language_is_a_datetime_in_utc():
    assert decode(msgpack.packb(msgpack.Timestamp(0))) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("data", [b"", b"\x92\x01", b"\x01\x02", b"\x81\x01\x02", "text", None])
def test_what_is_no_value_is_a_payload_error(data):
    with pytest.raises(PayloadError, match="can not be read"):
        decode(data)


def test_a_header_that_promises_more_than_there_is_builds_nothing():
    with pytest.raises(PayloadError):
        decode(b"\xdd\xff\xff\xff\xff")
    with pytest.raises(PayloadError):
        decode(b"\xdd\x7f\xff\xff\xff" * 500)


def test_sets_nested_by_hand_run_out_before_the_stack_does():
    data = b"\x91\x01"
    for _ in range(2000):
        data = b"\x91" + msgpack.packb(msgpack.ExtType(payload.SET, data))
    with pytest.raises(PayloadError, match="nested more than 10 deep"):
        decode(data)


def test_a_torn_stream_is_not_taken_for_a_whole_one():
    stream = encode([1]) + encode([2, 3])
    assert decode_stream(b"") == []
    with pytest.raises(PayloadError, match="the last 2 bytes are no whole one"):
        decode_stream(stream[:-1])


# --- where it runs --------------------------------------------------------------------------------


def test_threads_do_not_mix_their_values():
    wrong = []

    def work(mark):
        value = [mark * 50, {mark: {mark, (mark,)}}, uuid.UUID(int=ord(mark))]
        wrong.extend(mark for _ in range(300) if decode(encode(value)) != value)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_packer_that_grew_large_is_not_kept():
    payload._spare.clear()
    encode("x" * 500_000)
    assert payload._spare == []
    encode("x")
    assert len(payload._spare) == 1


def test_importing_it_loads_nothing_that_patching_must_precede():
    program = (
        "import sys; import skedulr.payload;"
        "print([m for m in ('socket', 'ssl', 'select', 'gevent', 'redis', 'threading')"
        " if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(payload.__file__).parents[1])},
        capture_output=True,
        check=True,
        text=True,
    )
    assert answer.stdout.strip() == "[]"

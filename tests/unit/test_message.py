"""Envelopes and journals: written once, appended to, read whole."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from skedulr import PayloadError, PayloadTooLarge, message, payload

LIMIT = 1_048_576
HEAD = message.name_part("send_email")


def stamp(ms: int) -> bytes:
    """As Redis puts behind an envelope or an entry: a msgpack uint64."""
    return b"\xcf" + ms.to_bytes(8, "big")


def envelope(*args: Any, extras: dict[str, Any] | None = None, **kwargs: Any) -> bytes:
    return message.envelope(HEAD, args, kwargs, extras, LIMIT)


@pytest.mark.parametrize(("args", "kwargs", "extras"), [
    ((), {}, None),
    ((1, "two", [3.0, None]), {}, None),
    ((), {"to": "a@example.com", "n": {"deep": [b"x"]}}, None),
    ((1,), {"b": 2}, {"timeout": 5.0, "headers": {"trace": "1"}}),
])
def test_a_call_comes_back_as_it_went(
    args: tuple[Any, ...], kwargs: dict[str, Any], extras: dict[str, Any] | None
) -> None:
    body = message.envelope(HEAD, args, kwargs, extras, LIMIT) + stamp(7)
    assert message.read_call(body) == ("send_email", list(args), kwargs, extras or {})


def test_the_same_call_makes_the_same_bytes() -> None:
    assert envelope({1, 2, 3}, a="x") == envelope({3, 2, 1}, a="x")
    assert envelope(1) != envelope(True)


def test_an_envelope_is_plain_msgpack_that_other_languages_read() -> None:
    version, name, call, extras = msgpack.unpackb(envelope(1, to="a"))
    assert (version, name, call, extras) == (1, "send_email", [[1], {"to": "a"}], None)


@pytest.mark.parametrize(("call", "path"), [
    ({"args": (1, object())}, "args[1]"),
    ({"kwargs": {"to": {"a": {1: 2}}}}, "kwargs['to']['a']"),
    ({"args": ([2**70],)}, "args[0][0]"),
    ({"extras": {"headers": {"x": float("nan")}}}, "options['headers']['x']"),
])
def test_what_can_not_travel_is_named_by_its_path(call: dict[str, Any], path: str) -> None:
    given = {"args": (), "kwargs": {}, "extras": None, **call}
    with pytest.raises(PayloadError) as caught:
        message.envelope(HEAD, given["args"], given["kwargs"], given["extras"], LIMIT)
    assert str(caught.value).startswith(path)


def test_over_the_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(PayloadTooLarge, match=r"1,\d{3} bytes; the limit is 1,000"):
        message.envelope(HEAD, ("x" * 1100,), {}, None, 1000)


def test_arguments_of_either_kind_count_together() -> None:
    with pytest.raises(PayloadTooLarge, match=r"the arguments take 1,2\d\d bytes"):
        message.envelope(HEAD, ("x" * 600,), {"a": "y" * 600}, None, 1000)


def test_a_journal_tells_every_attempt_and_how_it_ended() -> None:
    good = message.success(message.success_head("w2"), 2, 130, payload.encode({"ok": 1}))
    body = (
        envelope(1, extras={"max_retries": 3}) + stamp(100)
        + message.entry(message.FAILED, "w1", 1, 110, ["ValueError", "no", "trace"]) + stamp(120)
        + good + stamp(140)
    )
    journal = message.read_journal(body)
    assert (journal.name, journal.args, journal.submitted_ms) == ("send_email", [1], 100)
    assert journal.entries == [
        message.Entry(message.FAILED, "w1", 1, 110, ["ValueError", "no", "trace"], 120),
        message.Entry(message.SUCCEEDED, "w2", 2, 130, {"ok": 1}, 140),
    ]
    assert journal.end_state == "succeeded"


@pytest.mark.parametrize(("kind", "state"), [
    (message.SUCCEEDED, "succeeded"), (message.DEAD, "dead"), (message.CANCELLED, "cancelled"),
    (message.EXPIRED, "expired"), (message.SKIPPED, "skipped"), (message.FAILED, None),
    (message.CRASHED, None), (message.RESUBMITTED, None),
])
def test_the_last_entry_says_the_state(kind: int, state: str | None) -> None:
    body = envelope() + stamp(1) + message.entry(kind, "w", 1, 1) + stamp(2)
    assert message.read_journal(body).end_state == state


def test_a_body_without_attempts_tells_when_it_was_stored() -> None:
    body = envelope() + stamp(1_785_600_000_000)
    assert message.submitted_ms(body) == 1_785_600_000_000
    assert message.read_journal(body).entries == []


@pytest.mark.parametrize("body", [
    b"", b"\x93\x01\xa1a\xc0", b"\xa3abc", b"\x94\x01\xa1a\x91\x90\xc0", stamp(3),
    envelope() + stamp(1) + b"\x01" + stamp(2),
    envelope() + stamp(1) + b"\x92\x01\x02" + stamp(2),
    envelope()[:-1],
])
def test_what_is_no_journal_is_a_payload_error(body: bytes) -> None:
    with pytest.raises(PayloadError):
        message.read_journal(body)


def test_another_version_says_what_this_release_reads() -> None:
    later = b"\x94\x03" + envelope()[2:]
    with pytest.raises(PayloadError, match="has version 3; this release reads 1 and 2"):
        message.read_call(later + stamp(1))


def test_what_a_later_release_adds_to_an_entry_is_passed_over() -> None:
    longer = msgpack.packb([message.DEAD, "w", 1, 5, None, "new"])
    journal = message.read_journal(envelope() + stamp(1) + longer + stamp(2))
    assert journal.entries == [message.Entry(message.DEAD, "w", 1, 5, None, 2)]

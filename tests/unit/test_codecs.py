"""Codecs: what only a holder of the keys can make, on the way to the worker and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skedulr
from skedulr import message, payload, testing
from skedulr.codecs import Codec, EncryptingCodec, SigningCodec, codec_of
from skedulr.errors import ConfigError, PayloadError
from skedulr.keys import PoolKeys
from skedulr.testing.driven import DrivenApp

KEY, OLD, OTHER = "a secret of the year 2026", "a secret of the year 2025", "somebody else's secret"
KINDS: list[Callable[..., Any]] = [SigningCodec, EncryptingCodec]
each = pytest.mark.parametrize("kind", KINDS)

Make = Callable[[Codec | None], tuple[DrivenApp, skedulr.Task[[int, str], str]]]


@pytest.fixture
def make() -> Iterator[Make]:
    """A driven app with a codec and a task that tells what it was given."""
    opened = []

    def build(codec: Codec | None) -> tuple[DrivenApp, skedulr.Task[[int, str], str]]:
        served = skedulr.Skedulr(codec=codec)

        @served.task(name="pay", max_retries=0)
        def pay(amount: int, to: str) -> str:
            return f"{amount} to {to}"

        context = testing.app(served=served)
        driven = context.__enter__()
        opened.append(context)
        return driven, pay

    yield build
    for context in opened:
        context.__exit__(None, None, None)


def stored(driven: DrivenApp, uid: str, name: str = "tasks") -> bytes:
    body: bytes = driven.wire.call("HGET", getattr(PoolKeys("skedulr", "default"), name), uid)
    return body


def put(driven: DrivenApp, uid: str, body: bytes) -> None:
    driven.wire.call("HSET", PoolKeys("skedulr", "default").tasks, uid, body)


@each
def test_what_is_sealed_comes_back_and_nothing_else_does(kind: Callable[..., Codec]) -> None:
    codec = kind([KEY])
    sealed = codec.seal(b"about", b"data")
    assert codec.open(b"about", sealed) == b"data"
    with pytest.raises(PayloadError):
        codec.open(b"another", sealed)
    for at in range(len(sealed)):
        with pytest.raises(PayloadError):
            codec.open(b"about", sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1:])
    for cut in range(len(sealed)):
        with pytest.raises(PayloadError):
            codec.open(b"about", sealed[:cut])


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 40))
def test_a_byte_can_not_move_from_one_part_to_the_other(
    about: bytes, data: bytes, at: int,
) -> None:
    codec = SigningCodec([KEY])
    sealed = codec.seal(about, data)
    whole = about + data
    if whole[:at] != about:
        with pytest.raises(PayloadError):
            codec.open(whole[:at], sealed[:37] + whole[at:])


@each
def test_equal_values_give_equal_bytes_and_other_keys_others(kind: Callable[..., Codec]) -> None:
    assert kind([KEY]).seal(b"a", b"b") == kind([KEY, OLD]).seal(b"a", b"b")
    assert kind([KEY]).seal(b"a", b"b") != kind([OTHER]).seal(b"a", b"b")


@each
def test_keys_are_changed_in_two_steps(kind: Callable[..., Codec]) -> None:
    before, between, after = kind([OLD]), kind([OLD, KEY]), kind([KEY, OLD])
    assert between.open(b"", before.seal(b"", b"x")) == b"x"
    assert between.open(b"", after.seal(b"", b"x")) == b"x"
    assert after.open(b"", between.seal(b"", b"x")) == b"x"
    with pytest.raises(PayloadError, match="not known here"):
        before.open(b"", after.seal(b"", b"x"))


def test_encrypted_is_not_readable_and_signed_is() -> None:
    assert b"secret" in SigningCodec([KEY]).seal(b"", b"a secret")
    assert b"secret" not in EncryptingCodec([KEY]).seal(b"", b"a secret")


@pytest.mark.parametrize("keys", [[], "text", ["short"], [b"15 bytes, no mor"[:15]]])
def test_keys_that_protect_nothing_are_refused(keys: Any) -> None:
    with pytest.raises(ConfigError):
        SigningCodec(keys)


def test_a_setting_names_the_kind_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# of this year\n{KEY}\n\n{OLD}\n")
    signing = codec_of(f"sign:{file}")
    assert signing is not None and codec_of(None) is None
    sealed = signing.seal(b"", b"x")
    assert SigningCodec([KEY, OLD]).open(b"", sealed) == b"x"
    assert isinstance(codec_of(f"encrypt:{file}"), EncryptingCodec)
    with pytest.raises(ConfigError, match="sign:FILE or encrypt:FILE"):
        codec_of("rot13:keys")
    with pytest.raises(ConfigError, match="can not be read"):
        codec_of("sign:/nowhere/keys")


@each
def test_a_task_goes_through_sealed_and_its_result_comes_back(
    kind: Callable[..., Codec], make: Make,
) -> None:
    driven, pay = make(kind([KEY]))
    handle = pay.using(id="one", tags=["rent"]).submit(100, "ann")
    body = stored(driven, "one")
    assert body[1] == message.SEALED_VERSION
    assert (b"ann" in body) is (kind is SigningCodec)
    driven.drain()
    assert handle.result(timeout=0) == "100 to ann"
    assert isinstance(message.read_journal(stored(driven, "one", "records")).entries[-1].value,
                      payload.Sealed)
    info = handle.info()
    assert info["sealed"] is True and info["tags"] == ["rent"] and info["name"] == "pay"
    assert info["args"] == ([100, "ann"] if kind is SigningCodec else [])
    assert info["result"] == ("100 to ann" if kind is SigningCodec else "(encrypted)")


@each
def test_the_same_submit_twice_is_one_task(kind: Callable[..., Codec], make: Make) -> None:
    driven, pay = make(kind([KEY]))
    assert pay.using(id="one").submit(1, "a") == pay.using(id="one").submit(1, "a")
    with pytest.raises(skedulr.DuplicateTask):
        pay.using(id="one").submit(2, "a")
    driven.drain()


def refused(driven: DrivenApp, uid: str) -> str:
    """The reason for which a task went to the dead-letter queue unread."""
    driven.drain()
    info = driven.get(f"default/{uid}").info()
    assert info["state"] == "dead" and info["error"]["type"] == "PayloadError"
    return str(info["error"]["message"])


@each
def test_what_was_tampered_with_is_dead_unread(kind: Callable[..., Codec], make: Make) -> None:
    driven, pay = make(kind([KEY]))
    pay.using(id="one", timeout=5).submit(100, "ann")
    whole = stored(driven, "one")
    longer = whole.replace(b"timeout\xcb@\x14", b"timeout\xcb@\x24")
    assert longer != whole
    put(driven, "one", longer)
    assert "the stored call can not be read" in refused(driven, "one")


@each
def test_what_nobody_sealed_is_dead_unread(kind: Callable[..., Codec], make: Make) -> None:
    driven, pay = make(kind([KEY]))
    pay.using(id="one").submit(100, "ann")
    plain = message.envelope(message.name_part("pay"), (1_000_000, "eve"), {}, None, 1000)
    put(driven, "one", plain + stored(driven, "one")[-9:])
    assert "not sealed" in refused(driven, "one")


def test_without_a_codec_what_is_sealed_is_dead_unread(make: Make) -> None:
    driven, pay = make(None)
    pay.using(id="one").submit(100, "ann")
    body = stored(driven, "one")
    sealed = message.seal_call(message.envelope_of(body), SigningCodec([KEY]))
    put(driven, "one", sealed + body[-9:])
    assert "this app has none" in refused(driven, "one")


def test_a_result_that_was_put_there_by_others_is_refused(make: Make) -> None:
    driven, pay = make(SigningCodec([KEY]))
    handle = pay.using(id="one").submit(100, "ann")
    driven.drain()
    record = stored(driven, "one", "records")
    entry = message.success(message.success_head("x"), 1, 1, payload.encode("paid"))
    forged = message.envelope_of(record) + record[-9:] + entry + record[-9:]
    driven.wire.call("HSET", PoolKeys("skedulr", "default").records, "one", forged)
    with pytest.raises(PayloadError, match="not sealed"):
        handle.result(timeout=0)


def test_ticks_of_a_schedule_are_sealed_and_a_forged_schedule_stops(make: Make) -> None:
    driven, pay = make(SigningCodec([KEY]))
    driven.schedule_recurring(pay.bind(5, "bob"), 60, name="rent")
    driven.advance(60)
    (run,) = driven.schedules()["rent"].runs()
    assert run["state"] == "succeeded" and run["sealed"] is True
    place = PoolKeys("skedulr", "default").schedules
    packed: bytes = driven.wire.call("HGET", place, "rent")
    driven.wire.call("HSET", place, "rent", packed.replace(b"bob", b"eve"))
    driven.advance(120)
    assert not any("eve" in str(one["args"]) for one in driven.schedules()["rent"].runs())


def test_steps_of_a_workflow_are_sealed_and_maps_are_refused(make: Make) -> None:
    driven, pay = make(SigningCodec([KEY]))
    with driven.workflow("rent") as w:
        first = w.add(pay.bind(5, "bob"))
        w.add(pay.bind(6, first))
    driven.drain()
    assert w.state == "succeeded"
    with pytest.raises(ConfigError, match="can not be used with a codec"), \
            driven.workflow("all") as w:
        w.map(pay.bind(5), w.add(pay.bind(5, "bob")))


def test_a_list_finds_sealed_tasks_by_their_name(make: Make) -> None:
    driven, pay = make(EncryptingCodec([KEY]))
    pay.submit(1, "a")
    from skedulr.lists import Selection, page

    found = page(driven.wire, "skedulr", ["default"], Selection(name="pay"))
    assert [one["name"] for one in found.items] == ["pay"]

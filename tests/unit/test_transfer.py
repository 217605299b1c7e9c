"""The form of exported files: what is written is read again, and nothing else is taken for one."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skedulr import __version__, transfer
from skedulr.exporter import Seen
from skedulr.transfer import END, FORMATS, HEAD, JSONL, MSGPACK, Damaged, Line

HEAD_LINE: Line = {
    "kind": HEAD, "format": 1, "release": "0.1.0", "id": "aa", "namespace": "n", "at": 1,
    "pools": {"default": {"tasks": 2}},
}
END_LINE: Line = {"kind": END, "counts": {"task": 2}, "at": 2}
TASK: Line = {"kind": "task", "pool": "default", "uid": "a", "state": "queued", "body": b"\x00\xff"}

texts = st.text(max_size=20)
ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:@=+-]{0,20}", fullmatch=True)
whole = st.integers(0, 2**53)
values = st.recursive(
    st.one_of(st.none(), st.binary(max_size=3), texts, st.floats(), st.integers(0, 9)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=6,
)
#: Journals, and what is none: nothing of it is to be read by whoever carries it.
bodies = st.one_of(
    st.binary(), values.map(msgpack.packb),
    st.tuples(values, values).map(list).map(msgpack.packb).map(lambda body: body + b"\xcf"),
)
#: On a busy machine.
patient = settings(deadline=None, suppress_health_check=list(HealthCheck))
tasks = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("task"), "pool": st.just("p"), "uid": ids, "body": bodies, **more},
        optional={"header": texts, "locked": st.just(True)},
    )
    for more in (
        {"state": st.just("queued")}, {"state": st.just("scheduled"), "due": whole},
        {"state": st.just("waiting"), "since": whole, "waits": texts},
    )
)
records = st.fixed_dictionaries({
    "kind": st.just("record"), "pool": st.just("p"), "uid": ids, "body": bodies,
    "ended": whole, "dead": st.booleans(),
})


def written(lines: Sequence[Line], form: str) -> bytes:
    file = io.BytesIO()
    write = transfer.writer(file, form)
    for line in lines:
        write(line)
    return file.getvalue()


def read(data: bytes) -> list[Line]:
    return list(transfer.read(io.BufferedReader(io.BytesIO(data))))  # type: ignore[arg-type]


@patient
@given(st.lists(st.one_of(tasks, records), max_size=5), st.sampled_from(FORMATS))
def test_what_is_written_is_read_again(lines: list[Line], form: str) -> None:
    again = read(written([HEAD_LINE, *lines, END_LINE], form))
    for line in again:
        if form == JSONL:
            line.pop("name", None)
        line.pop("last", None)
    assert again == [HEAD_LINE, *lines, END_LINE]


@patient
@given(st.lists(tasks, min_size=1, max_size=3), st.sampled_from(FORMATS), st.data())
def test_a_file_that_is_cut_anywhere_has_no_end(
    lines: list[Line], form: str, data: st.DataObject
) -> None:
    whole_file = written([HEAD_LINE, *lines, END_LINE], form)
    first = len(written([HEAD_LINE], form))
    at = data.draw(st.integers(first, len(whole_file) - (2 if form == JSONL else 1)))
    cut = whole_file[:at]
    assert transfer.is_cut(io.BytesIO(cut)) is True
    assert transfer.is_cut(io.BytesIO(whole_file)) is False
    found = read(cut)
    assert found[0] == HEAD_LINE and END not in [one["kind"] for one in found]


def test_json_lines_name_the_task_for_people() -> None:
    body = msgpack.packb([1, "send_email", [[], {}], None]) + b"\xcf" + bytes(8)
    line = json.loads(written([{**TASK, "body": body}], JSONL))
    assert line["name"] == "send_email"
    assert base64.b64decode(line["body"]) == body
    assert json.loads(written([TASK], JSONL))["name"] is None


@pytest.mark.parametrize("data", [
    b"", b"PK\x03\x04", b"{}\n", b"[1]\n", b'{"kind": "task"}\n', b"not json", b"\x81\xa1a\x01",
    b"{", b"\x82", b'{"kind": "skedulr-export", "format": 1}\n', msgpack.packb({"kind": HEAD}),
])
def test_a_file_of_something_else_is_refused(data: bytes) -> None:
    if data == b"\x82":
        assert read(data) == []  # cut in its head
        return
    with pytest.raises(Damaged, match=r"it is no export|it is empty|its head|it has format None"):
        read(data)


@pytest.mark.parametrize("form", FORMATS)
def test_a_newer_format_is_refused_by_both_names(form: str) -> None:
    newer = written([{**HEAD_LINE, "format": 2, "release": "9.9"}], form)
    with pytest.raises(Damaged) as caught:
        read(newer)
    assert str(caught.value) == (
        f"it has format 2, written by Skedulr 9.9; this release ({__version__}) reads format 1"
    )


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("line", [
    {**TASK, "uid": 7}, {**TASK, "pool": "{x}"}, {**TASK, "state": "lost"},
    {**TASK, "state": "scheduled"}, {"kind": "record", "pool": "p", "uid": "a", "body": b""},
    {"kind": 5}, {"kind": "lock", "pool": "p"}, {"kind": "edges", "pool": "p", "uid": "a"},
], ids=str)
def test_a_line_that_lacks_something_is_named(form: str, line: Line) -> None:
    with pytest.raises(Damaged, match="line 3"):
        read(written([HEAD_LINE, TASK, line], form))


@pytest.mark.parametrize(("form", "data"), [
    (JSONL, b'{"kind": "task", "body": "???"}\n'), (JSONL, b"\xff\n"), (MSGPACK, b"\xc1"),
    (MSGPACK, b"\x05"),
])
def test_a_line_that_can_not_be_read_is_named(form: str, data: bytes) -> None:
    with pytest.raises(Damaged, match="line 3"):
        read(written([HEAD_LINE, TASK], form) + data)


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_later_release_adds_is_left_alone(form: str) -> None:
    lines = [HEAD_LINE | {"more": 1}, {"kind": "novelty", "x": [1]}, {**TASK, "y": None}, END_LINE]
    found = read(written(lines, form))
    assert [one["kind"] for one in found] == [HEAD, "novelty", "task", END]
    assert found[2]["y"] is None


def test_a_pipe_can_not_be_looked_at_twice() -> None:
    class Pipe(io.BytesIO):
        def tell(self) -> int:
            raise OSError("a pipe")

    assert transfer.is_cut(Pipe(b"")) is None


@patient
@given(st.lists(st.binary(max_size=2), max_size=100))
def test_the_set_of_ids_is_a_set(uids: list[bytes]) -> None:
    seen, known = Seen(), set[bytes]()
    for uid in uids:
        assert (uid in seen) is (uid in known)
        assert seen.add(uid) is (uid not in known)
        known.add(uid)
    assert len(seen) == len(known)


def test_the_set_of_ids_grows() -> None:
    seen = Seen()
    assert all(seen.add(b"%d" % n) for n in range(20_000))
    assert not any(seen.add(b"%d" % n) for n in range(20_000))
    assert len(seen) == 20_000


#: Those of releases that are out are never written again. Exported from tests/fixtures/store-*.
KEPT = sorted((Path(__file__).parent.parent / "fixtures").glob("export-*"))
assert KEPT


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_the_files_of_earlier_releases_are_read(path: Path) -> None:
    with open(path, "rb") as file:
        assert transfer.is_cut(file) is False
        kinds = [line["kind"] for line in transfer.read(file)]
    assert kinds[0] == HEAD and kinds[-1] == END
    assert {"pool", "limit", "lock", "schedule", "edges", "task", "record"} <= set(kinds)

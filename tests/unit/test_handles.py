"""Handles: an id and the questions that can be asked about it."""

from __future__ import annotations

from typing import Any

import pytest

from skedulr import Handle


class FakeClient:
    """Answers with what it was asked."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: (name, *args)

    def get(self, id: str) -> dict[str, Any]:
        return {"id": id, "progress": 40.0}


def handle(id: str = "critical/a1") -> Handle[Any]:
    return Handle(FakeClient(), id)  # type: ignore[arg-type]


def test_an_id_is_pool_and_uid() -> None:
    one = handle("critical/x@2026-08-01T09:00:00+00:00")
    assert (one.pool, one.uid) == ("critical", "x@2026-08-01T09:00:00+00:00")
    assert repr(one) == "<Handle critical/x@2026-08-01T09:00:00+00:00>"


def test_handles_of_one_id_are_the_same_in_sets_and_dicts() -> None:
    assert handle() == handle() and len({handle(), handle()}) == 1
    assert handle() != handle("critical/a2")
    assert handle() != "critical/a1"


def test_every_look_asks_the_client() -> None:
    one = handle()
    assert one.state == ("state", "critical/a1")
    assert one.result(5) == ("result", "critical/a1", 5)
    assert one.result() == ("result", "critical/a1", None)
    assert one.cancel() == ("cancel", "critical/a1")
    assert one.resubmit() == ("resubmit", "critical/a1")
    assert one.info() == {"id": "critical/a1", "progress": 40.0}
    assert one.progress == 40.0


def test_a_handle_holds_nothing_else() -> None:
    with pytest.raises(AttributeError):
        handle().note = "x"  # type: ignore[attr-defined]

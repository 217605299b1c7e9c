"""The feed: one look for all, news at once, something at least every few seconds."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from servers import wait_until

from skedulr.errors import StorageUnavailable
from skedulr.ui import events
from skedulr.ui.events import Feed
from skedulr.ui.problems import Problem


class Source:
    """What the feed looks at, and how often it did."""

    def __init__(self) -> None:
        self.value: Any = 1
        self.looks = 0

    def look(self) -> dict[str, Any]:
        self.looks += 1
        if isinstance(self.value, Exception):
            raise self.value
        return {"value": self.value}


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def feed(source: Source) -> Feed:
    return Feed(source.look, period_s=0.01, keepalive_s=0.05)


def data(event: bytes) -> Any:
    return json.loads(event.split(b"data: ")[1])


def news(stream: Any) -> bytes:
    return next(event for event in stream if b"data: " in event)


def test_a_listener_hears_the_present_state_and_then_changes(feed: Feed, source: Source) -> None:
    stream = feed.listen()
    assert data(news(stream)) == {"value": 1}
    source.value = 2
    assert data(news(stream)) == {"value": 2}
    stream.close()  # type: ignore[attr-defined]


def test_when_nothing_changes_a_comment_is_sent(feed: Feed) -> None:
    stream = feed.listen()
    news(stream)
    assert next(stream).startswith(b":")
    stream.close()  # type: ignore[attr-defined]


def test_nobody_looks_while_nobody_listens(feed: Feed, source: Source) -> None:
    assert source.looks == 0
    stream = feed.listen()
    news(stream)
    stream.close()  # type: ignore[attr-defined]
    wait_until(lambda: feed._poller is None, what="the poller ends")
    looks = source.looks
    again = feed.listen()
    news(again)
    again.close()  # type: ignore[attr-defined]
    assert source.looks > looks


def test_many_listeners_share_one_look(feed: Feed, source: Source) -> None:
    streams = [feed.listen() for _ in range(50)]
    heard = [news(stream) for stream in streams]
    assert len(set(heard)) == 1
    pollers = [one for one in threading.enumerate() if one.name == "skedulr-ui-feed"]
    assert feed._poller in pollers
    for stream in streams:
        stream.close()  # type: ignore[attr-defined]


def test_trouble_is_an_event_and_ends_by_itself(feed: Feed, source: Source) -> None:
    source.value = StorageUnavailable("Redis is away")
    stream = feed.listen()
    event = news(stream)
    assert b"event: trouble" in event
    assert data(event) == {"message": "Redis is away"}
    source.value = RuntimeError("secret")
    assert b"secret" not in news(stream)
    source.value = 5
    assert data(news(stream)) == {"value": 5}
    stream.close()  # type: ignore[attr-defined]


def test_too_many_listeners_are_refused(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_LISTENERS", 1)
    stream = feed.listen()
    next(stream)
    with pytest.raises(Problem) as refused:
        feed.listen()
    assert refused.value.status == 503
    stream.close()  # type: ignore[attr-defined]

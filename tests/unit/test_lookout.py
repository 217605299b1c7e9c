"""Who waits for one answer looks for it a moment before giving way, where that is of use."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest
import snippets

from skedulr import lookout
from skedulr.lookout import CHANCE, MOST_LEFT_OUT, Lookout


class Counted:
    """The system's own poll, and how often it was asked."""

    asked = 0

    def __init__(self) -> None:
        self._poll = poll()

    def register(self, number: int, events: int) -> None:
        self._poll.register(number, events)

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        Counted.asked += 1
        return self._poll.poll(timeout_ms)


poll = select.poll


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection; a look in vain is over at once."""
    monkeypatch.setattr(select, "poll", Counted)
    monkeypatch.setattr(lookout, "LOOK_S", 0.0)
    here, there = socket.socketpair()
    yield here, there
    here.close()
    there.close()


def looked(one: Lookout, at: socket.socket, times: int = 1) -> list[bool]:
    """Whether the system was asked, each of so many times."""
    seen = []
    for _ in range(times):
        before = Counted.asked
        one.look(at.fileno())
        seen.append(Counted.asked > before)
    return seen


def test_after_some_looks_in_vain_more_and_more_are_left_out(
    pair: tuple[socket.socket, socket.socket]
) -> None:
    one = Lookout()
    assert looked(one, pair[0], CHANCE + 1) == [True] * (CHANCE + 1)
    assert looked(one, pair[0], 13) == [False, True, *[False] * 3, True, *[False] * 7]


def test_so_many_are_left_out_at_the_most(pair: tuple[socket.socket, socket.socket]) -> None:
    one = Lookout()
    seen = looked(one, pair[0], 5 * MOST_LEFT_OUT)
    last = len(seen) - seen[::-1].index(True) - 1
    before = last - seen[last - 1::-1].index(True) - 1
    assert last - before == MOST_LEFT_OUT + 1


def test_an_answer_in_time_makes_good_what_was_in_vain(
    pair: tuple[socket.socket, socket.socket]
) -> None:
    one, (here, there) = Lookout(), pair
    looked(one, here, CHANCE + 1)
    there.send(b"+OK\r\n")
    assert looked(one, here, 3) == [False, True, True]
    here.recv(100)
    assert looked(one, here, CHANCE + 2) == [*[True] * (CHANCE + 1), False]


def test_another_connection_is_looked_at_like_the_one_before(
    pair: tuple[socket.socket, socket.socket]
) -> None:
    one, (here, there) = Lookout(), pair
    there.send(b"+OK\r\n")
    assert looked(one, here) == [True]
    assert looked(one, there, CHANCE + 2) == [*[True] * (CHANCE + 1), False]


def test_where_the_system_has_no_poll_nobody_looks(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(select, "poll")
    assert looked(Lookout(), pair[0], 3) == [False] * 3


def test_under_gevent_it_looks_without_giving_way() -> None:
    found = snippets.run("""
import gevent, socket
from skedulr import lookout
lookout.LOOK_S = 0.0
turns = []
gevent.spawn(turns.append, "another greenlet")
here, there = socket.socketpair()
lookout.Lookout().look(here.fileno())
before = list(turns)
gevent.sleep(0)
report([before, turns])
""", patched=True)
    assert found == [[], ["another greenlet"]]

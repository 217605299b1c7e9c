"""Who waits for one answer looks for it a moment before giving way, where that is of use."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest
import snippets
from servers import Server

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
        one.look(at)
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


def test_at_a_closed_connection_nobody_looks(
    pair: tuple[socket.socket, socket.socket]
) -> None:
    pair[0].close()
    assert looked(Lookout(), pair[0]) == [False]


def test_where_the_system_has_no_poll_nobody_looks(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(select, "poll")
    assert looked(Lookout(), pair[0], 3) == [False] * 3


def test_others_have_a_turn_now_and_then_and_not_at_each_look() -> None:
    found = snippets.run("""
import gevent, socket
from skedulr import lookout
lookout.LOOK_S, lookout.CHANCE = 0.0, 1000
turns, one = [], lookout.Lookout()
here, there = socket.socketpair()

def looked(alone_s):
    lookout.ALONE_S = alone_s
    turns.clear()
    other = gevent.spawn(turns.append, "another greenlet")
    one.look(here)
    seen = list(turns)
    other.join()
    return seen

report([looked(60), looked(60), looked(0)])
""", patched=True)
    assert found == [["another greenlet"], [], ["another greenlet"]]


def test_a_loop_of_submits_lets_other_greenlets_live(server: Server) -> None:
    turns, stored = snippets.run("""
import gevent, skedulr
app = skedulr.Skedulr(url=ARGS[0])

@app.task(name="noop")
def noop(): ...

turns, stored = 0, 0

def live():
    global turns
    while True:
        gevent.sleep(0)
        turns += 1

gevent.spawn(live)
for _ in range(300):
    noop.submit()
    stored += 1
report([turns, stored])
""", server.url, patched=True)
    assert stored == 300 and turns >= 10

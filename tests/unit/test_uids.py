"""Ids made by clients: unique, sortable, new after a fork."""

from __future__ import annotations

import os
import threading

from skedulr.keys import UID
from skedulr.uids import Uids, made_ms

NOW_S = 1_785_600_000.123_4


def test_a_uid_has_twenty_characters_and_is_one_that_a_user_could_give() -> None:
    uid = Uids().next()
    assert len(uid) == 20 and UID.fullmatch(uid)


def test_it_tells_when_it_was_made() -> None:
    assert made_ms(Uids(lambda: NOW_S).next()) == 1_785_600_000_123


def test_later_ones_sort_behind_earlier_ones() -> None:
    clock = [NOW_S]
    uids = Uids(lambda: clock[0])
    made = []
    for _ in range(300):
        made.append(uids.next())
        clock[0] += 0.001
    assert made == sorted(made)


def test_inside_a_millisecond_they_differ_and_keep_their_order() -> None:
    uids = Uids(lambda: NOW_S)
    made = [uids.next() for _ in range(32_768)]
    assert len(set(made)) == len(made)
    assert made == sorted(made)


def test_a_clock_that_is_set_back_makes_no_uid_twice() -> None:
    clock = [NOW_S]
    uids = Uids(lambda: clock[0])
    first = [uids.next() for _ in range(1000)]
    clock[0] -= 0.001
    again = [uids.next() for _ in range(1000)]
    clock[0] += 0.001
    assert len({*first, *again, *(uids.next() for _ in range(1000))}) == 3000


def test_two_processes_draw_different_numbers() -> None:
    assert Uids(lambda: NOW_S).next() != Uids(lambda: NOW_S).next()


def test_after_a_fork_both_sides_go_on_with_different_ones() -> None:
    uids = Uids(lambda: NOW_S)
    uids.next()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, "".join(uids.next() for _ in range(50)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    text = os.read(reading, 4096).decode()
    theirs = {text[i:i + 20] for i in range(0, len(text), 20)}
    assert len(theirs) == 50
    assert not theirs & {uids.next() for _ in range(50)}


def test_threads_never_draw_the_same() -> None:
    uids = Uids()
    made: list[str] = []

    def draw() -> None:
        made.extend([uids.next() for _ in range(2000)])

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 16_000

"""An exchange on real sockets: what comes in pieces, late, not at all, or is no answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from redis import exceptions

from skedulr.exchange import Exchange


class Ends:
    """An exchange, and the other end of its socket."""

    def __init__(self, timeout_s: float = 5.0) -> None:
        near, self.far = socket.socketpair()
        near.settimeout(timeout_s)
        self.exchange = Exchange(near, timeout_s)

    def close(self) -> None:
        self.exchange.socket.close()
        self.far.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


@pytest.mark.parametrize(("raw", "answer"), [
    (b"+PONG\r\n", b"PONG"), (b":7\r\n", 7), (b"$-1\r\n", None), (b"*0\r\n", []), (b":0\r\n", 0),
    (b"$0\r\n\r\n", b""), (b"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", [1, [b"x"]]),
])
def test_each_kind_of_answer_comes_whole_however_it_is_cut(
    ends: Ends, raw: bytes, answer: Any
) -> None:
    ends.far.sendall(raw)
    assert ends.exchange.read(5.0) == answer
    for n in range(1, len(raw)):
        ends.far.sendall(raw[:n])
        with pytest.raises(TimeoutError):
            ends.exchange.read(0.001)
        ends.far.sendall(raw[n:])
        assert ends.exchange.read(5.0) == answer


def test_answers_that_came_together_are_read_one_by_one(ends: Ends) -> None:
    ends.far.sendall(b"+one\r\n+two\r\n-ERR three\r\n:4\r\n")
    assert (ends.exchange.read(5.0), ends.exchange.read(5.0)) == (b"one", b"two")
    with pytest.raises(exceptions.ResponseError, match=r"^ERR three$"):
        ends.exchange.read(5.0)
    assert ends.exchange.read(5.0) == 4


def test_a_script_that_is_not_known_is_an_error_of_its_own(ends: Ends) -> None:
    ends.far.sendall(b"-NOSCRIPT No matching script.\r\n")
    with pytest.raises(exceptions.NoScriptError):
        ends.exchange.read(5.0)


def test_an_answer_larger_than_what_is_read_at_once(ends: Ends) -> None:
    ends.far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
    ends.far.sendall(b"$150000\r\n" + b"x" * 150_000 + b"\r\n")
    assert ends.exchange.read(5.0) == b"x" * 150_000


def test_what_is_too_large_for_one_send_is_sent_whole() -> None:
    class Slow:
        """Takes a few bytes at first."""

        sent = b""

        def send(self, data: bytes) -> int:
            self.sent += data[:3]
            return 3

        def sendall(self, data: bytes) -> None:
            self.sent += data

    slow = Slow()
    Exchange(slow, 5.0).send(b"*1\r\n$4\r\nPING\r\n")
    assert slow.sent == b"*1\r\n$4\r\nPING\r\n"


def test_no_answer_and_no_server_are_told_apart(ends: Ends) -> None:
    with pytest.raises(TimeoutError, match=r"Timeout: no answer within 0\.01 s"):
        ends.exchange.read(0.01)
    ends.far.close()
    with pytest.raises(ConnectionError, match="the server closed the connection"):
        ends.exchange.read(5.0)


def test_each_answer_may_have_a_bound_of_its_own(ends: Ends) -> None:
    for timeout_s in (0.01, 5.0, 0.02):
        ends.far.sendall(b"+x\r\n")
        ends.exchange.read(timeout_s)
        assert ends.exchange.socket.gettimeout() == timeout_s


def test_what_is_no_answer_of_redis(ends: Ends) -> None:
    ends.far.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(hiredis.ProtocolError):
        ends.exchange.read(5.0)

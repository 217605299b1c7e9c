"""One connection: which error each fault becomes, what is dropped after it, what is repeated."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from proxy import Proxy, black_hole
from redis import exceptions
from servers import Server, wait_until

from skedulr.addresses import options_of
from skedulr.app import Skedulr
from skedulr.errors import ConfigError
from skedulr.lookout import Lookout
from skedulr.pools.plainwire import PlainWire
from skedulr.redis_scripts import Script, script
from skedulr.wire import (
    Barred,
    Gone,
    NotAnswered,
    NotRedis,
    Refused,
    Wire,
    WireError,
    make_connection,
)
from skedulr.wire_errors import judge

#: Echoes its arguments.
ECHO = Script("echo", "return ARGV")


@pytest.fixture
def wire(one_server: Server) -> Iterator[Wire]:
    made = Wire(one_server.url, name="test:wire", timeout_s=2)
    yield made
    made.close()


@pytest.fixture
def proxy(one_server: Server) -> Iterator[Proxy]:
    with Proxy(one_server.url) as made:
        yield made


@pytest.fixture
def proxied(proxy: Proxy) -> Iterator[Wire]:
    made = Wire(proxy.url, name="test:proxied", timeout_s=0.3)
    yield made
    made.close()


def connections(server: Server, name: str) -> int:
    return sum(1 for one in server.client.client_list() if one["name"] == name)


# --- the ordinary ---------------------------------------------------------------------------------


def test_nothing_is_connected_before_the_first_call(one_server: Server, wire: Wire) -> None:
    assert not wire.connected
    assert wire.call("PING") == b"PONG"
    assert wire.connected
    assert connections(one_server, "test:wire") == 1


def test_answers_come_as_bytes_numbers_lists_and_none(wire: Wire) -> None:
    assert wire.call("SET", "k", "ü") == b"OK"
    assert wire.call("GET", "k") == "ü".encode()
    assert wire.call("GET", "none") is None
    assert wire.call("INCRBY", "n", 7) == 7
    assert wire.call("MGET", "k", "none", b"n") == ["ü".encode(), None, b"7"]


class Looked(Lookout):
    """How often somebody looked."""

    times = 0

    def look(self, at: Any) -> None:
        self.times += 1
        super().look(at)


def test_nobody_looks_for_an_answer_that_takes_its_time(wire: Wire) -> None:
    """As of a WAIT for replicas: to look for that in vain would keep the next submits from it."""
    wire.run(ECHO, [], [])  # known there from now on
    wire.lookout = looked = Looked()
    assert wire.call("PING") == b"PONG"
    assert wire.run(ECHO, [], ["a"]) == [b"a"]
    assert looked.times == 2
    wire.call("PING", timeout_s=1.0)
    assert wire.replicated("k", 1, 10) == 0
    assert looked.times == 2


def test_several_questions_go_in_one_piece_and_are_answered_in_order(wire: Wire) -> None:
    assert wire.calls([("SET", "a", 1), ("GET", "a"), ("EXISTS", "b")]) == [b"OK", b"1", 0]


def test_an_answer_of_many_megabytes_comes_whole(wire: Wire) -> None:
    big = b"x" * 5_000_000
    wire.call("SET", "big", big)
    assert wire.call("GET", "big") == big


def test_closing_twice_and_calling_again_are_safe(one_server: Server, wire: Wire) -> None:
    wire.call("PING")
    wire.close()
    wire.close()
    wait_until(lambda: connections(one_server, "test:wire") == 0)
    assert wire.call("PING") == b"PONG"


def test_a_database_a_password_and_a_name_are_taken_from_the_address(
    fresh_server: Callable[..., Server],
) -> None:
    server = fresh_server(tcp=True)
    server.client.config_set("requirepass", "s3cret")
    url = server.url.replace("redis://", "redis://:s3cret@").replace("/0", "/3")
    wire = Wire(url, name="test:db")
    wire.call("SET", "k", "v")
    mine = [one for one in redis.Redis.from_url(url).client_list() if one["name"] == "test:db"]
    assert [one["db"] for one in mine] == ["3"]
    wire.close()


# --- scripts --------------------------------------------------------------------------------------


def test_a_script_runs_by_its_sha_and_is_sent_whole_once(server: Server) -> None:
    server.client.script_flush()
    server.client.config_resetstat()
    wire = Wire(server.url, name="test:script")
    for _ in range(3):
        assert wire.run(ECHO, [], ["a", 1]) == [b"a", b"1"]
    stats = server.client.info("commandstats")
    assert (stats["cmdstat_evalsha"]["calls"], stats["cmdstat_eval"]["calls"]) == (3, 1)
    wire.close()


def test_a_script_survives_script_flush(server: Server) -> None:
    wire = Wire(server.url, name="test:script")
    wire.run(ECHO, [], ["a"])
    server.client.script_flush()
    assert wire.run(ECHO, [], ["b"]) == [b"b"]
    wire.close()


def test_a_fault_in_a_script_is_ours_and_keeps_the_connection(wire: Wire) -> None:
    with pytest.raises(exceptions.ResponseError) as caught:
        wire.run(Script("bad", "return redis.call('NOSUCH')"), [], [])
    assert not isinstance(caught.value, WireError)
    assert wire.connected and wire.call("PING") == b"PONG"


# --- refusals: "not now" --------------------------------------------------------------------------


def test_a_replica_refuses_writes_and_is_left(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(replica_read_only="yes")
    wire = Wire(server.url, name="test:readonly")
    submit = script("submit")
    keys = [f"{{n:p}}:{name}" for name in submit.keys]
    arguments = [0, "a", b"envelope", "", ""]
    server.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    for attempt in (lambda: wire.call("SET", "a", 1), lambda: wire.run(submit, keys, arguments)):
        with pytest.raises(Refused, match="READONLY"):
            attempt()
        assert not wire.connected
    server.client.execute_command("REPLICAOF", "NO", "ONE")
    assert wire.call("SET", "a", 1) == b"OK"
    wire.close()


def test_a_full_server_refuses_and_the_connection_stays(server: Server) -> None:
    wire = Wire(server.url, name="test:full")
    submit = script("submit")
    keys = [f"{{n:p}}:{name}" for name in submit.keys]
    server.fill()
    for attempt in (
        lambda: wire.call("SET", "a", 1),
        lambda: wire.run(submit, keys, [0, "a", b"envelope", "", ""]),
    ):
        with pytest.raises(Refused, match="OOM"):
            attempt()
        assert wire.connected
    server.flush()
    assert wire.run(submit, keys, [0, "a", b"envelope", "", ""])[1] == b"s"
    wire.close()


def test_a_server_that_runs_a_long_script_refuses(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(busy_reply_threshold="100")
    wire = Wire(server.url, name="test:busy")
    wire.call("PING")
    spinner = Wire(server.url, name="test:spin", timeout_s=30)

    def spin() -> None:
        with pytest.raises((exceptions.ResponseError, WireError)):
            spinner.call("EVAL", "while true do end", 0)

    thread = threading.Thread(target=spin)
    thread.start()

    def refused() -> bool:
        try:
            wire.call("PING")
        except Refused as error:
            return "BUSY" in str(error)
        return False

    wait_until(refused, what="the server says BUSY")
    assert wire.connected
    server.client.script_kill()
    thread.join()
    assert wire.call("PING") == b"PONG"
    wire.close()
    spinner.close()


def test_a_server_that_loads_its_data_refuses(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server("redis", dbfilename="dump.rdb")
    server.client.eval("for i = 1, 400 do redis.call('SET', 'k' .. i, i) end", 0)
    server.client.save()
    server.stop()
    server.options.update({
        "key-load-delay": "2000", "loading-process-events-interval-bytes": "1024",
    })
    starting = threading.Thread(target=server.start)
    starting.start()
    wire = Wire(server.url, name="test:loading", timeout_s=5)
    seen: list[str] = []

    def answered() -> bool:
        try:
            return bool(wire.call("EXISTS", "k1") == 1)
        except WireError as error:
            seen.append(f"{type(error).__name__}: {error}")
            return False

    wait_until(answered, timeout=20)
    starting.join()
    assert any(text.startswith("Refused: LOADING") for text in seen), seen
    wire.close()


@pytest.mark.parametrize(("reply", "kind"), [
    ("READONLY You can't write against a read only replica.", Refused),
    ("LOADING Redis is loading the dataset in memory", Refused),
    ("BUSY Redis is busy running a script.", Refused),
    ("OOM command not allowed when used memory > 'maxmemory'.", Refused),
    ("MISCONF Redis is configured to save RDB snapshots", Refused),
    ("MASTERDOWN Link with MASTER is down", Refused),
    ("CLUSTERDOWN The cluster is down", Refused),
    ("TRYAGAIN Multiple keys request during rehashing of slot", Refused),
    ("NOREPLICAS Not enough good replicas to write.", Refused),
    ("UNBLOCKED force unblock from blocking operation, instance state changed", Refused),
    ("OOM allow-oom flag is not set on the script", Refused),
    ("ERR user_script:3: OOM command not allowed when used memory > 'maxmemory'.", Refused),
    ("ERR Error running script: -READONLY You can't write against a read only replica.", Refused),
    ("GONE this owner was released", Gone),
    ("ERR user_script:9: GONE this owner was released", Gone),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", None),
    ("ERR unknown command 'NOSUCH'", None),
    ("NOPERM this user has no permissions to run the 'evalsha' command", None),
])
def test_each_reply_has_its_meaning(reply: str, kind: type[WireError] | None) -> None:
    judged = judge(exceptions.ResponseError(reply))
    assert type(judged) is (kind or type(None))


@pytest.mark.parametrize(("error", "word"), [
    (exceptions.ReadOnlyError("You can't write against a read only replica."), "READONLY"),
    (exceptions.OutOfMemoryError("command not allowed"), "OOM"),
])
def test_codes_that_the_library_cuts_off_are_put_back(
    error: exceptions.ResponseError, word: str
) -> None:
    assert str(judge(error)).startswith(word)


# --- no answer ------------------------------------------------------------------------------------


def test_nobody_listens(one_server: Server) -> None:
    with Proxy(one_server.url) as proxy:
        url = proxy.url
    with pytest.raises(NotAnswered, match="refused") as caught:
        Wire(url, name="test").call("PING")
    assert caught.value.sent is False


def test_a_host_that_has_no_address() -> None:
    with pytest.raises(NotAnswered) as caught:
        Wire("redis://no-such-host.invalid:6379/0", name="test").call("PING")
    assert caught.value.sent is False


def test_a_host_that_swallows_connects() -> None:
    url, kept = black_hole()
    with pytest.raises(NotAnswered, match=r"[Tt]imeout|timed out") as caught:
        Wire(url, name="test", timeout_s=0.2).call("PING")
    assert caught.value.sent is False
    for one in kept:
        one.close()


def test_something_else_than_redis_answers() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(NotAnswered) as caught:
        Wire(f"redis://127.0.0.1:{listener.getsockname()[1]}/0", name="test").call("PING")
    assert caught.value.sent is False
    thread.join()
    listener.close()


def test_wrong_credentials_say_so(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(tcp=True)
    server.client.config_set("requirepass", "s3cret")
    for login, told in (
        ("", "it asks for a password"), (":wrong@", "it refuses this user or password"),
        ("nobody:wrong@", "it refuses this user or password"),
    ):
        url = server.url.replace("redis://", f"redis://{login}")
        with pytest.raises(Barred, match=told):
            Wire(url, name="test").call("PING")
        with pytest.raises(Barred, match=told):
            PlainWire(url, name="test").call("PING")


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n"])
def test_something_else_that_answers_is_said_to_be_no_redis(greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def greet() -> None:
            for _ in range(2):
                taken, _ = listener.accept()
                taken.recv(1000)
                taken.sendall(greeting)
                taken.close()

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        for kind in (Wire, PlainWire):
            with pytest.raises(NotRedis, match="something else than Redis answers there"):
                kind(url, name="test").call("PING")
        thread.join()


def test_an_answer_that_does_not_come_may_have_been_acted_on(
    proxy: Proxy, proxied: Wire, one_server: Server
) -> None:
    proxied.call("PING")
    proxy.set("drop_reply", times=1)
    with pytest.raises(NotAnswered) as caught:
        proxied.call("INCR", "n")
    assert caught.value.sent is True and not proxied.connected
    assert one_server.client.get("n") == b"1"


def test_a_connection_that_is_silent_is_given_up_in_time(proxy: Proxy, proxied: Wire) -> None:
    proxied.call("PING")
    proxy.set("stall")
    with pytest.raises(NotAnswered, match=r"Timeout") as caught:
        proxied.call("PING")
    assert caught.value.sent is True and not proxied.connected
    proxy.set("pass")
    assert proxied.call("PING") == b"PONG"


def test_one_call_may_have_a_bound_of_its_own(one_server: Server) -> None:
    wire = Wire(one_server.url, name="test:bound", timeout_s=0.1)
    assert wire.call("BLPOP", "none", 0.3, timeout_s=5) is None
    assert wire.connected
    wire.close()


def test_a_reset_connection_is_made_again_at_the_next_call(proxy: Proxy, proxied: Wire) -> None:
    proxied.call("PING")
    proxy.cut()
    with pytest.raises(NotAnswered):
        proxied.call("PING")
    assert proxied.call("PING") == b"PONG"


def test_a_late_answer_is_never_taken_for_the_next_one(proxy: Proxy, proxied: Wire) -> None:
    proxied.call("SET", "k", "old")
    proxy.set("stall")
    with pytest.raises(NotAnswered):
        proxied.call("GET", "k")
    proxy.set("pass")
    assert proxied.call("ECHO", "new") == b"new"


def test_after_an_error_among_several_answers_none_is_left_over(wire: Wire) -> None:
    wire.call("SET", "text", "x")
    with pytest.raises(exceptions.ResponseError):
        wire.calls([("PING",), ("INCR", "text"), ("ECHO", "left over")])
    assert wire.call("ECHO", "mine") == b"mine"


def test_an_interrupt_in_mid_call_drops_the_connection(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.call("PING")
    exchange: Any = wire._exchange

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(exchange, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        wire.call("ECHO", "lost")
    assert not wire.connected
    assert wire.call("ECHO", "mine") == b"mine"


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("url", "why"), [
    ("redis+sentinel://ann:pw@h1,h2", "write redis+sentinel://HOST,HOST/SERVICE/DB"),
    ("redis+sentinel://:pw@h1/main?sentinel_pasword=x", "no option 'sentinel_pasword'"),
    ("rediss+cluster://:pw@", "write rediss+cluster://HOST,HOST"),
    ("redis://h?sokcet_keepalive=1", "no option 'sokcet_keepalive' (did you mean "
                                     "'socket_keepalive'?); known are db, username, password"),
    ("unix:///run/redis.sock?foo", "no option 'foo'"),
    ("redis://h?ssl_cert_reqs=none", "no option 'ssl_cert_reqs'"),
    ("redis://h?db=first", "Invalid value for 'db' in connection URL"),
    ("redis://h:99x", "Port could not be cast"),
    ("http://h", "must specify one of the following schemes"),
])
def test_an_address_that_can_not_be_used_is_a_mistake_of_the_configuration(
    url: str, why: str
) -> None:
    wire = Wire(url, name="test:never")
    with pytest.raises(ConfigError) as caught:
        wire.call("PING")
    assert why in str(caught.value)
    assert "pw" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_client_tells_it_at_once() -> None:
    app = Skedulr(url="redis+sentinel://h1,h2/main?quorum=2")
    with pytest.raises(ConfigError, match="no option 'quorum'"):
        app.submit("work")


@pytest.mark.parametrize("more", [
    "socket_timeout=9", "decode_responses=True", "max_connections=10&retry_on_timeout=yes",
    "protocol=3&health_check_interval=5&client_name=web", "timeout=3",
])
def test_what_others_say_in_the_same_address_changes_nothing(
    one_server: Server, more: str
) -> None:
    wire = Wire(f"{one_server.url}?{more}", name="test:shared", timeout_s=2)
    try:
        assert wire.call("PING") == b"PONG"
        assert connections(one_server, "test:shared") == 1
    finally:
        wire.close()


def test_options_for_the_connection_itself_are_kept() -> None:
    options = options_of("rediss://h/3?socket_connect_timeout=1.5&ssl_cert_reqs=none")
    assert (options["db"], options["socket_connect_timeout"]) == (3, 1.5)
    assert options["ssl_cert_reqs"] == "none"
    made = make_connection(
        options_of("rediss://h?ssl_cert_reqs=none&ssl_check_hostname=no"), name="n", timeout_s=1
    )
    assert made.host == "h"


def test_a_socket_is_reached_whatever_is_said_of_tcp(one_server: Server) -> None:
    wire = Wire(f"{one_server.url}?socket_keepalive=yes&db=0", name="test:socket", timeout_s=2)
    assert wire.call("PING") == b"PONG"
    wire.close()

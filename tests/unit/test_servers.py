"""The test suite's own servers and helpers keep their promises."""

from __future__ import annotations

import pytest
import redis
from servers import MissingServer, Server, binary_of, leaks, selected, wait_until


def test_a_server_is_empty_for_each_test_and_answers(server: Server) -> None:
    assert server.client.dbsize() == 0
    server.client.set("left", "behind")


def test_nothing_is_left_from_the_test_before(server: Server) -> None:
    assert server.client.dbsize() == 0


def test_both_servers_are_used_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_SERVERS", raising=False)
    assert selected() == ("redis", "valkey")
    monkeypatch.setenv("TEST_SERVERS", "valkey")
    assert selected() == ("valkey",)


def test_a_server_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SERVERS", "memcached")
    with pytest.raises(MissingServer, match="memcached"):
        selected()


def test_a_missing_server_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingServer, match="apt install"):
        binary_of("redis")


@pytest.mark.parametrize("name", selected())
def test_a_killed_server_comes_back_with_its_append_only_file(fresh_server, name: str) -> None:
    own = fresh_server(name, appendonly="yes", appendfsync="always")
    own.client.set("kept", "1")
    own.kill()
    with pytest.raises(redis.exceptions.ConnectionError):
        own.client.ping()
    own.start()
    assert own.client.get("kept") == b"1"


def test_a_server_listens_on_a_port_if_asked_to(fresh_server) -> None:
    own = fresh_server(tcp=True)
    assert own.url == f"redis://127.0.0.1:{own.port}/0"
    assert own.client.ping()


def test_a_full_server_refuses_writes_until_it_is_flushed(server: Server) -> None:
    server.fill()
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        server.client.set("a", "1")
    server.flush()
    server.client.set("a", "1")


def test_waiting_returns_what_became_true() -> None:
    answers = iter([0, None, "", "yes"])
    assert wait_until(lambda: next(answers)) == "yes"


def test_waiting_in_vain_says_what_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 s in vain until pigs fly"):
        wait_until(lambda: False, timeout=0.01, what="pigs fly")


def test_keys_nobody_made_and_owners_keys_without_an_expiry_are_leaks(server: Server) -> None:
    client = server.client
    client.set("{skedulr:default}:ready", "")
    client.set("{skedulr}:pools", "")
    client.set("{skedulr:default}:own:n1-0-1", "", ex=10)
    assert leaks(client) == []
    client.set("{skedulr:default}:own:n1-0-2", "")
    client.set("{skedulr:default}:typo", "")
    assert leaks(client) == [
        "{skedulr:default}:own:n1-0-2 has no expiry",
        "{skedulr:default}:typo is no key of keys.py",
    ]

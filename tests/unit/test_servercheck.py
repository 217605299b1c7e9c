"""The check of a server at start: too old, forgetful, or silent about itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from redis.exceptions import ResponseError
from servers import Server, selected

from skedulr import launch
from skedulr.config import Config
from skedulr.errors import ConfigError
from skedulr.servercheck import check_server
from skedulr.wire import Wire

Servers = Callable[..., Server]


class Told:
    """A wire that answers INFO and CONFIG GET with what it was given, and refuses the rest."""

    def __init__(self, settings: Mapping[str, str] | None = None, **info: str) -> None:
        self._info, self._settings = info, settings
        self.url = "redis://told"

    def every_node(self) -> list[Told]:
        return [self]

    def call(self, *command: str) -> Any:
        if command[0] == "INFO" and self._info:
            section = "".join(f"{name}:{value}\r\n" for name, value in self._info.items())
            return f"# {command[1]}\r\n{section}".encode()
        if command[0] == "CONFIG" and self._settings is not None:
            value = self._settings.get(command[2])
            return [] if value is None else [command[2].encode(), value.encode()]
        raise ResponseError("NOPERM this user has no permissions to run the command")


def check(told: Told) -> list[str]:
    return check_server(told)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["6.2.14", "5.0.7", "3.2"])
def test_a_server_that_is_too_old_is_refused_with_what_is_needed(version: str) -> None:
    with pytest.raises(ConfigError, match=rf"Redis {version}, .*needs Redis 7\.0 or Valkey 7\.2"):
        check(Told(redis_version=version))


@pytest.mark.parametrize("version", ["7.0.0", "7.2.4", "8.10.1", "10.0", "255.255.255", "unstable"])
def test_a_newer_server_is_taken(version: str) -> None:
    assert check(Told(redis_version=version, valkey_version="9.0.1")) == []


def test_what_may_not_be_asked_is_not_complained_of() -> None:
    assert check(Told()) == []
    assert check(Told(aof_enabled="0", maxmemory_policy="noeviction")) == []
    assert check(Told({}, aof_enabled="0")) == []


@pytest.mark.parametrize(("aof", "save", "warned"), [
    ("0", "", True), ("1", "", False), ("0", "3600 1 300 100", False), ("1", "3600 1", False),
])
def test_neither_of_the_two_ways_of_keeping_is_warned_of(
    aof: str, save: str, warned: bool
) -> None:
    found = check(Told({"save": save}, aof_enabled=aof))
    assert [line for line in found if "on disk" in line] == found
    assert bool(found) is warned


@pytest.mark.parametrize("name", selected())
def test_a_real_server_that_keeps_everything_is_sound(fresh_server: Servers, name: str) -> None:
    server = fresh_server(name, appendonly="yes")
    wire = Wire(server.url, name="test:check")
    assert check_server(wire) == []
    wire.close()


@pytest.mark.parametrize("name", selected())
def test_a_real_server_that_forgets_is_warned_of_line_by_line(
    fresh_server: Servers, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = fresh_server(name, maxmemory_policy="allkeys-lru")
    with caplog.at_level(logging.INFO, "skedulr.master"):
        assert launch._server(Config(redis=server.url)) == (server.url, None, False)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "WARNING"]
    assert "maxmemory-policy allkeys-lru" in caplog.text
    assert "set appendonly yes" in caplog.text


@pytest.mark.parametrize("name", selected())
def test_a_user_who_may_not_ask_starts_quietly(
    fresh_server: Servers, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = fresh_server(name, tcp=True)
    server.client.execute_command(
        "ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all", "-info", "-config"
    )
    url = server.url.replace("://", "://worker:secret@")
    with caplog.at_level(logging.INFO, "skedulr.master"):
        assert launch._server(Config(redis=url)) == (url, None, False)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "secret" not in caplog.text


def test_a_master_refuses_a_server_that_is_too_old_in_one_line(
    one_server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("skedulr.servercheck.OLDEST", (99, 0))
    monkeypatch.setattr("skedulr.logs.set_up", lambda *args, **options: None)
    assert launch.run(["--redis", one_server.url]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("skedulr-master: this server is Redis ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("address", [
    "redis+sentinel://h1,h2/main?quorum=2", "redis+cluster://h1,h2?readonly=1",
])
def test_a_master_refuses_an_address_that_can_not_be_used_in_one_line(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("skedulr.logs.set_up", lambda *args, **options: None)
    assert launch.run(["--redis", address]) == 2
    line = capsys.readouterr().err
    assert "no option" in line
    assert line.count("\n") == 1


def test_a_node_of_a_cluster_is_not_taken_for_a_server_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"part of a Cluster: write .* redis\+cluster://"):
        check(Told(redis_version="7.2.4", redis_mode="cluster"))

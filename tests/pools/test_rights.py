"""TLS with an authority of one's own, a user with the printed rights alone, and its password.

One server asks for all of it: it speaks TLS only, wants a client certificate, and lets nobody in
but two users. What it denies it writes down, and that must be nothing that is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import certificates
import psutil
import pytest
from harness import WORK, Node, wait_until
from servers import Server, free_port, selected

import skedulr
from skedulr import acl
from skedulr.errors import StorageUnavailable
from skedulr.pools.plainwire import PlainWire
from skedulr.wire import NotAnswered, Wire, WireError

pytestmark = pytest.mark.server

NAMESPACE = "guarded"
PASSWORD = "s3cr@t/#?%"

MORE_WORK = WORK + '''

@task(name="flaky", max_retries=2, retry=skedulr.LinearRetry(0.1))
def flaky():
    if current_task().attempt < 2:
        raise RuntimeError("not yet")
    skedulr.report_progress(50, "half")
    return 7


@task(name="doomed", max_retries=0)
def doomed():
    raise RuntimeError("never")


@skedulr.every(0.2)
@task(name="tick")
def tick():
    note("ticked")
'''


class Guarded(Server):
    """``url`` is that of the user with the printed rights; ``client`` may do everything."""

    def __init__(self, name: str, folder: Path) -> None:
        self.certificates = certificates.make(folder)
        place = {what: str(folder / what) for what in ("ca.pem", "server.pem", "server.key")}
        (folder / "users.acl").write_text(
            "user default off\nuser admin on >admin ~* &* +@all\n"
            + acl.lines(NAMESPACE)[0].replace(">PASSWORD", f">{PASSWORD}") + "\n"
        )
        super().__init__(
            name, tcp=True, tls_cert_file=place["server.pem"], tls_key_file=place["server.key"],
            tls_ca_cert_file=place["ca.pem"], tls_auth_clients="yes",
            aclfile=str(folder / "users.acl"), acllog_max_len="1000",
        )
        self.options["tls-port"], self.port = str(self.port), 0
        self.query = "?" + "&".join((
            f"ssl_ca_certs={folder}/ca.pem", f"ssl_certfile={folder}/client.pem",
            f"ssl_keyfile={folder}/client.key",
        ))
        self.place = f"localhost:{self.options['tls-port']}/0"
        self.url = f"rediss://admin:admin@{self.place}{self.query}"

    def url_of(self, user: str, password: str) -> str:
        return f"rediss://{user}:{quote(password, safe='')}@{self.place}{self.query}"

    def denied(self) -> list[str]:
        """What was denied so far: "<user> <reason> <object>"."""
        wire = Wire(self.url, name="test:denied")
        found = []
        for entry in wire.call("ACL", "LOG", 1000):
            one = dict(zip(entry[::2], entry[1::2], strict=True))
            found.append(b" ".join(one[part] for part in (b"username", b"reason", b"object")))
        wire.close()
        return [text.decode() for text in found]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(selected()[0], tmp_path_factory.mktemp("guarded"))
    yield made.start()
    made.close()


def test_the_printed_rights_are_enough_for_the_whole_way_and_the_password_is_seen_nowhere(
    guarded: Guarded, nodes: Callable[..., Node], tmp_path: Path
) -> None:
    url = guarded.url_of("skedulr", PASSWORD)
    file = tmp_path / "url"
    file.write_text(url + "\n")
    address = f"127.0.0.1:{free_port()}"
    node = nodes(
        None, "--lease", "1.5", "--ui", address, "--log-level", "debug", work=MORE_WORK,
        namespace=NAMESPACE, env={"SKEDULR_REDIS_URL_FILE": str(file)},
    )
    node.app = app = skedulr.Skedulr(url=url, namespace=NAMESPACE)
    node.start()
    _exercise(app, node)
    pages = [_ask(address, path) for path in (
        "/", "/tasks", "/dead", "/schedules", "/nodes", "/submit", "/changes", "/redis",
        "/api/stats", "/api/nodes", "/api/tasks", "/api/history", "/api/schedules",
    )]
    began = json.loads(_ask(address, "/api/tasks/remove", {"state": "succeeded"}))
    wait_until(lambda: json.loads(_ask(address, f"/api/operations/{began['id']}"))["state"] ==
               "finished", "the UI removes what ended")
    spoken = [_command(file, *words) for words in (
        ("stats",), ("check",), ("doctor",), ("config",), ("list",), ("dead", "list"),
        ("schedules", "list"),
    )]
    # The heart has a connection of its own, made without gevent.
    names = [one["name"] for one in guarded.client.client_list()]
    assert any(name.endswith(":heart") for name in names), names
    children = psutil.Process(node.pid).children(recursive=True)
    lines = [" ".join(one.cmdline()) for one in (psutil.Process(node.pid), *children)]
    node.signal(15)
    assert node.wait() == 0
    refused = [one for one in guarded.denied() if not one.endswith(tuple(acl.OPTIONAL))]
    assert refused == []
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        for text in (node.log, *pages, *spoken, *lines):
            assert secret not in text


def _exercise(app: skedulr.Skedulr, node: Node) -> None:
    assert app.submit("flaky").result(timeout=10) == 7
    doomed = app.submit("doomed")
    wait_until(lambda: doomed.state == "dead", "it died")
    assert doomed.resubmit()
    # Longer than a lease: the heart renews it.
    held = app.submit("hold", 2.2)
    delayed = app.remote("quick", delay=0.2).submit()
    key = app.remote("quick", delay=60, unique="until_done", key="k", on_duplicate="return")
    assert key.submit().id == key.submit().id
    with app.workflow("two") as flow:
        first = flow.add(app.remote("quick").bind())
        flow.add(app.remote("quick").bind(), on_success=first)
    assert flow.wait(timeout=10)
    node.effects.wait("ticked", count=2)
    app.schedule_recurring(app.remote("quick").bind(), 3600, name="mine").run()
    assert [one.name for one in app.schedules()] == ["mine", "tick"]
    app.unschedule("mine")
    running = app.submit("hold", 30)
    node.effects.wait("began", running.id.partition("/")[2])
    assert running.cancel()
    wait_until(lambda: running.state == "cancelled", "it was told at once", timeout=1.5)
    app.pause()
    app.resume()
    app.scale_pool("default", 3)
    assert app.wait([held, delayed], timeout=10)
    assert len(node.effects.all(held.id.partition("/")[2], "began")) == 1
    assert app.purge("default") >= 1


def _ask(address: str, path: str, value: object = None) -> str:
    asked = urllib.request.Request(
        f"http://{address}{path}", data=None if value is None else json.dumps(value).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _command(file: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "skedulr", *words, "--namespace", NAMESPACE], timeout=30,
        env={**os.environ, "SKEDULR_REDIS_URL_FILE": str(file)}, capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_another_namespace_is_out_of_reach_one_that_begins_alike_too(guarded: Guarded) -> None:
    url = guarded.url_of("skedulr", PASSWORD)
    wire = Wire(url, name="test:other")
    for key in ("{guarded2}:pools", "{guarded2:default}:ready", "{guard}:pools", "pools"):
        with pytest.raises(Exception, match=r"(?i)no permissions"):
            wire.call("TYPE", key)
        with pytest.raises(Exception, match="permissions"):
            wire.call("PUBLISH", key, "x")
    wire.close()
    guarded.client.execute_command("ACL", "LOG", "RESET")


@pytest.mark.parametrize("kind", [Wire, PlainWire])
def test_who_can_not_show_certificate_or_password_is_told_so(
    kind: type[Wire] | type[PlainWire], guarded: Guarded
) -> None:
    good = guarded.url_of("skedulr", PASSWORD)
    assert kind(good, name="test:good").call("PING") == b"PONG"
    folder = guarded.certificates
    for wrong in (
        good.replace(f"&ssl_certfile={folder}/client.pem&ssl_keyfile={folder}/client.key", ""),
        good.replace(f"ssl_ca_certs={folder}/ca.pem&", ""),
        guarded.url_of("skedulr", "guessed"),
    ):
        with pytest.raises((WireError, NotAnswered)) as caught:
            kind(wrong, name="test:wrong", timeout_s=2).call("PING")
        assert not caught.value.sent or "certificate" in str(caught.value).lower()
        assert "guessed" not in str(caught.value)


def test_a_submit_with_a_wrong_password_says_so_and_not_which(guarded: Guarded) -> None:
    app = skedulr.Skedulr(
        url=guarded.url_of("skedulr", "guessed"), namespace=NAMESPACE, submit_timeout=0.5
    )
    with pytest.raises(StorageUnavailable, match="refuses this user or password") as caught:
        app.submit("work")
    assert "guessed" not in str(caught.value)
    app.close()


@pytest.mark.parametrize("kind", [Wire, PlainWire])
def test_a_unix_socket_takes_user_password_and_database(
    kind: type[Wire] | type[PlainWire], fresh_server: Callable[..., Server]
) -> None:
    server = fresh_server()
    server.client.execute_command("ACL", "SETUSER", "ann", "on", ">p@ss", "~*", "&*", "+@all")
    path = server.url.removeprefix("unix://")
    wire: Any = kind(f"unix://ann:p%40ss@{path}?db=2", name="test:socket")
    wire.call("SET", "k", "v")
    assert wire.call("ACL", "WHOAMI") == b"ann"
    assert server.client.info("keyspace")["db2"]["keys"] == 1
    wire.close()

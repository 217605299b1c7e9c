"""The heart's connection: what it does with a real server, in clear and over TLS."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from servers import free_port

from skedulr.pools.plainwire import PlainWire
from skedulr.redis_scripts import script
from skedulr.wire import NotAnswered


@pytest.fixture
def plain(one_server):
    made = PlainWire(one_server.url, name="skedulr:test:heart")
    yield made
    made.close()


def test_answers_commands_and_scripts_and_shows_its_name(plain, one_server):
    assert plain.call("PING") == b"PONG"
    assert b"skedulr:test:heart" in plain.call("CLIENT", "LIST")
    plain.call("SCRIPT", "FLUSH")
    keys = ["{s:p}:tasks", "{s:p}:records", "{s:p}:watch"]
    assert plain.run(script("watch"), keys, ["unknown", "channel"]) is None


def test_connects_again_after_its_connection_was_killed(plain, one_server):
    plain.call("PING")
    one_server.client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(NotAnswered):
        plain.call("PING")
    assert plain.call("PING") == b"PONG"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    """An authority, and a certificate of it for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    assert shutil.which("openssl"), "no openssl on the PATH"

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority",
            "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server", "-keyout", "s.key",
            "-out", "s.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "s.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "names", "-out", "s.crt")
    return folder


@pytest.fixture
def tls_port(certificates, fresh_server) -> int:
    """A real server that listens for TLS only, at this port."""
    port = free_port()
    fresh_server(
        "redis", tls_port=str(port), tls_cert_file=str(certificates / "s.crt"),
        tls_key_file=str(certificates / "s.key"), tls_ca_cert_file=str(certificates / "ca.crt"),
        tls_auth_clients="no",
    )
    return port


def test_speaks_tls_and_checks_the_certificate(certificates, tls_port):
    url = f"rediss://127.0.0.1:{tls_port}/0"
    trusting = PlainWire(f"{url}?ssl_ca_certs={certificates / 'ca.crt'}", name="t")
    assert trusting.call("PING") == b"PONG"
    # More than one TLS record, both ways.
    assert trusting.call("ECHO", b"x" * 200_000) == b"x" * 200_000
    trusting.close()
    with pytest.raises(NotAnswered, match="certificate verify failed"):
        PlainWire(url, name="t").call("PING")


def test_tls_towards_a_server_without_it_is_an_error_and_no_hang(fresh_server):
    server = fresh_server(tcp=True)
    with pytest.raises(NotAnswered):
        PlainWire(f"rediss://127.0.0.1:{server.port}/0", name="t", timeout_s=3).call("PING")

"""What a proxy forwards counts where the proxy is listed, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from skedulr.errors import ConfigError
from skedulr.ui.proxies import Proxies

FORWARDED = {
    "HTTP_X_FORWARDED_FOR": "6.6.6.6, 203.0.113.9, 10.0.0.3", "HTTP_X_FORWARDED_PROTO": "https",
    "HTTP_X_FORWARDED_HOST": "jobs.example.com", "HTTP_X_FORWARDED_PREFIX": "/ops/jobs/",
}


def believed(peer: str, listed: list[str], **more: str) -> dict[str, Any]:
    environ = {
        "REMOTE_ADDR": peer, "wsgi.url_scheme": "http", "HTTP_HOST": "10.0.0.5:8725",
        "SCRIPT_NAME": "", **FORWARDED, **more,
    }
    Proxies(listed).believe(environ)
    return {name: environ[name] for name in
            ("REMOTE_ADDR", "wsgi.url_scheme", "HTTP_HOST", "SCRIPT_NAME")}


UNTOUCHED = {"wsgi.url_scheme": "http", "HTTP_HOST": "10.0.0.5:8725", "SCRIPT_NAME": ""}


def test_a_listed_proxy_tells_where_it_is_reached_and_by_whom() -> None:
    assert believed("10.0.0.2", ["10.0.0.0/8"]) == {
        "REMOTE_ADDR": "203.0.113.9", "wsgi.url_scheme": "https",
        "HTTP_HOST": "jobs.example.com", "SCRIPT_NAME": "/ops/jobs",
    }


@pytest.mark.parametrize("listed", [[], ["10.0.0.3"], ["192.168.0.0/16"]])
def test_anybody_else_tells_nothing(listed: list[str]) -> None:
    assert believed("10.0.0.2", listed) == {"REMOTE_ADDR": "10.0.0.2", **UNTOUCHED}


def test_a_made_up_chain_is_believed_up_to_the_last_proxy_only() -> None:
    assert believed("10.0.0.2", ["10.0.0.2"])["REMOTE_ADDR"] == "10.0.0.3"
    mapped = believed("::ffff:10.0.0.2", ["10.0.0.2", "10.0.0.3"])
    assert mapped["REMOTE_ADDR"] == "203.0.113.9"


@pytest.mark.parametrize("prefix", ["//evil.example", "jobs", "/a/../b", "/a//b", "/%2e", "/a?b"])
def test_a_prefix_that_is_no_path_is_passed_over(prefix: str) -> None:
    found = believed("10.0.0.2", ["10.0.0.2"], HTTP_X_FORWARDED_PREFIX=prefix)
    assert found["SCRIPT_NAME"] == ""


def test_of_several_values_the_nearest_proxys_counts() -> None:
    found = believed(
        "10.0.0.2", ["10.0.0.2"], HTTP_X_FORWARDED_PROTO="https, http",
        HTTP_X_FORWARDED_HOST="evil.example, jobs.example.com",
        HTTP_X_FORWARDED_FOR="not an address",
    )
    assert found["wsgi.url_scheme"] == "http" and found["HTTP_HOST"] == "jobs.example.com"
    assert found["REMOTE_ADDR"] == "10.0.0.2"


def test_what_is_no_address_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"--ui-proxies proxy\.example: .*IPv4 or IPv6"):
        Proxies(["proxy.example"])

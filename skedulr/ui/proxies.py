"""Proxies that are believed: what they forward of the request that reached them.

``X-Forwarded-For``, ``-Proto``, ``-Host`` and ``-Prefix`` count only where the peer of the
connection is one of the listed addresses: anybody can send them. Of several values the last is
taken, which is what the nearest proxy itself has seen or set.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any

from ..errors import ConfigError

Environ = dict[str, Any]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PREFIX = re.compile(r"(/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)*")
_HOST = re.compile(r"[A-Za-z0-9.\-\[\]:]{1,255}")


class Proxies:
    """Addresses and networks (``10.0.0.0/8``) whose headers count. Raises ConfigError for others.

    >>> Proxies(["127.0.0.1"]).believe(environ)      # doctest: +SKIP
    """

    def __init__(self, listed: Iterable[str]) -> None:
        self._networks = [_network(one) for one in listed]

    def believe(self, environ: Environ) -> None:
        """Put what a listed peer forwarded in the place of what the connection says."""
        if not self._networks or not self._is_listed(environ.get("REMOTE_ADDR", "")):
            return
        proto = _last(environ, "PROTO")
        if proto in ("http", "https"):
            environ["wsgi.url_scheme"] = proto
        host = _last(environ, "HOST")
        if _HOST.fullmatch(host):
            environ["HTTP_HOST"] = host
        prefix = _last(environ, "PREFIX").rstrip("/")
        if prefix and _PREFIX.fullmatch(prefix):
            environ["SCRIPT_NAME"] = prefix + environ.get("SCRIPT_NAME", "").rstrip("/")
        self._find_caller(environ)

    def _find_caller(self, environ: Environ) -> None:
        """The last address in the chain that is no proxy of ours: beyond it anything may be made
        up."""
        for text in reversed(environ.get("HTTP_X_FORWARDED_FOR", "").split(",")):
            address = _address(text.strip())
            if address is None:
                return
            environ["REMOTE_ADDR"] = str(address)
            if not self._is_listed(str(address)):
                return

    def _is_listed(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._networks)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(f"--ui-proxies {text}: {error}") from None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    # A socket that takes both kinds shows 127.0.0.1 as ::ffff:127.0.0.1.
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _last(environ: Environ, name: str) -> str:
    text: str = environ.get(f"HTTP_X_FORWARDED_{name}", "")
    return text.rpartition(",")[2].strip()

"""Addresses: what a URL says about where Redis is and how to talk to it.

Three kinds. One server is at a host and port, or a socket. With Sentinel the URL names sentinels
and a service, and the sentinels say where its master is. In a Cluster the URL names a few nodes,
and these say which of them has which part of the keys. Nothing connects here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from redis.connection import parse_url

from .config import CLUSTER as CLUSTER
from .config import SENTINEL as SENTINEL
from .config import SERVER, hide_password
from .config import kind_of as kind_of
from .errors import ConfigError, nearest

#: Where there are others to try, none is waited for longer than this to take a connection, seconds.
CONNECT_S = 2.0
#: Where sentinels and servers listen, unless the URL says otherwise.
SENTINEL_PORT, SERVER_PORT = 26379, 6379

#: What may stand behind the ``?`` of an address.
URL_OPTIONS = ("db", "username", "password", "socket_connect_timeout", "socket_keepalive")
TLS_OPTIONS = (
    "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_certfile", "ssl_keyfile",
    "ssl_password", "ssl_check_hostname", "ssl_ciphers", "ssl_min_version",
)
#: Sentinels have users of their own; without these they are asked without credentials.
SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
#: What an address that others use as well may say, and a connection of ours decides by itself.
OWN_MATTERS = (
    "socket_timeout", "timeout", "client_name", "protocol", "health_check_interval",
    "max_connections", "retry_on_timeout", "decode_responses",
)


class Node(NamedTuple):
    """One process that can be connected to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """A URL, read. ``options`` are those of a redis-py connection to a server, without its host
    where that has to be found out; ``nodes`` are the sentinels, or the first nodes to ask."""

    kind: str
    options: Mapping[str, Any]
    nodes: tuple[Node, ...] = ()
    service: str = ""
    sentinel_options: Mapping[str, Any] | None = None

    def at(self, node: Node) -> dict[str, Any]:
        """The options of a connection to this server."""
        return {**self.options, "host": node.host, "port": node.port}

    def at_sentinel(self, node: Node) -> dict[str, Any]:
        """The options of a connection to this sentinel."""
        return {**(self.sentinel_options or {}), "host": node.host, "port": node.port}


@lru_cache(maxsize=64)
def read_address(url: str) -> Address:
    """What a URL means. Raises ConfigError for one that can not be used.

    >>> read_address("redis+sentinel://a,b:5000/main/3").nodes
    (Node(host='a', port=26379), Node(host='b', port=5000))
    """
    scheme, _, rest = url.partition("://")
    kind = kind_of(url)
    if kind == SERVER:
        return Address(SERVER, options_of(url))
    base = scheme.partition("+")[0]
    place, mark, query = rest.partition("?")
    credentials, at, place = place.rpartition("@")
    hosts, _, path = place.partition("/")
    service, _, database = path.partition("/") if kind == SENTINEL else ("", "", path)
    own, others = _split(query) if kind == SENTINEL else ({}, query)
    port = SENTINEL_PORT if kind == SENTINEL else SERVER_PORT
    nodes = tuple(_node(host, port) for host in hosts.split(",") if host)
    if not nodes or (kind == SENTINEL and not service):
        raise ConfigError(f"'{hide_password(url)}': write {scheme}://HOST,HOST" + (
            "/SERVICE/DB" if kind == SENTINEL else ""
        ))
    tail = f"?{others}" if mark and others else ""
    options = options_of(f"{base}://{credentials}{at}server/{database.strip('/') or 0}{tail}", url)
    options = {key: value for key, value in options.items() if key not in ("host", "port")}
    options.setdefault("socket_connect_timeout", CONNECT_S)
    return Address(kind, options, nodes, service, _of_sentinels(options, own))


def options_of(url: str, shown: str | None = None) -> dict[str, Any]:
    """What the address of one server means for a redis-py connection.

    Raises ConfigError for one that can not be used, which names ``shown`` in its place.

    >>> options_of("redis://db:7000/2?socket_keepalive=no")
    {'socket_keepalive': False, 'host': 'db', 'port': 7000, 'db': 2}
    """
    scheme, _, rest = url.partition("://")
    named = hide_password(url if shown is None else shown)
    known = URL_OPTIONS + (TLS_OPTIONS if scheme == "rediss" else ())
    for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True):
        if name not in known + OWN_MATTERS:
            raise ConfigError(
                f"'{named}': no option {name!r}{nearest(name, known)}; "
                f"known are {', '.join(known)}"
            )
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:
        raise ConfigError(f"'{named}': {str(error).rstrip('.')}") from None
    return {name: value for name, value in options.items() if name not in OWN_MATTERS}


def _split(query: str) -> tuple[dict[str, str], str]:
    """The options that are for sentinels, and the query without them."""
    pairs = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in pairs if name in SENTINEL_OPTIONS}
    return own, urlencode([pair for pair in pairs if pair[0] not in SENTINEL_OPTIONS])


def _of_sentinels(options: Mapping[str, Any], own: Mapping[str, str]) -> dict[str, Any]:
    """A sentinel is talked to as its servers are, TLS too, save for user and database."""
    kept = {
        name: value for name, value in options.items()
        if name not in ("username", "password", "db")
    }
    return kept | {name.removeprefix("sentinel_"): value for name, value in own.items()}


def _node(text: str, port: int) -> Node:
    host, colon, given = text.rpartition(":")
    if not colon or "]" in given:
        host, given = text, str(port)
    return Node(host.strip("[]"), int(given))

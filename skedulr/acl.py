"""The rights that Skedulr needs on a server, as a line for Redis' ACL: nothing that is not used.

What scripts use is read from the scripts; what Python sends stands here, and a test reads the
sources for what is missing. Keys and channels are those of one namespace.
"""

from __future__ import annotations

import re

from .config import CLUSTER, SENTINEL, kind_of
from .keys import check_name
from .redis_scripts import names, script

#: Who may do nothing yet.
USER = "skedulr"

#: Sent from Python, by clients, children, masters, the UI and the commands.
SENT = frozenset((
    "blpop", "client|setname", "del", "eval", "evalsha", "exec", "exists", "get", "hdel", "hexists",
    "hget", "hgetall", "hincrby", "hkeys", "hlen", "hmget", "hrandfield", "hscan", "hset", "hsetnx",
    "hstrlen", "hvals", "info", "llen", "lpush", "lrange", "ltrim", "multi", "pexpire", "ping",
    "pttl", "publish", "role", "rpush", "scan", "scard", "select", "set", "smismember", "sscan",
    "subscribe", "time", "type", "wait", "xrevrange", "zadd", "zcard", "zcount", "zlexcount",
    "zmscore", "zrange", "zrangebylex", "zrangebyscore", "zrank", "zrem", "zrevrange",
    "zrevrangebyscore", "zrevrank", "zscan", "zscore",
))
#: Asked, and lived without: the check of the server at a master's start, and the UI's Redis page.
#: CONFIG GET tells passwords, the slow log what others send.
OPTIONAL = frozenset(("config|get", "slowlog|get"))
IN_A_CLUSTER = frozenset(("asking", "cluster|slots"))
#: What a user of the sentinels needs; theirs is another ACL.
OF_SENTINELS = frozenset(("client|setname", "ping", "sentinel|get-master-addr-by-name"))


def commands(url: str = "") -> list[str]:
    """All commands that are needed on the servers that ``url`` leads to, sorted."""
    more = IN_A_CLUSTER if kind_of(url) == CLUSTER else frozenset[str]()
    return sorted(SENT | of_scripts() | more)


def of_scripts() -> frozenset[str]:
    """Those that scripts use: Redis asks for the right to each of them."""
    found = set()
    for name in names():
        found |= set(re.findall(r"redis\.p?call\(\s*'(\w+)'", script(name).text))
    return frozenset(command.lower() for command in found)


def rules(namespace: str, url: str = "") -> str:
    """What a user may do in a namespace, as ACL SETUSER takes it.

    >>> rules("shop")[:64]
    'resetchannels &{shop}:* resetkeys ~{shop}:* ~{shop:* -@all +blpo'
    """
    check_name("namespace", namespace)
    # A brace or a colon follows the name: a namespace that begins with this one is another one.
    keys = f"resetkeys ~{{{namespace}}}:* ~{{{namespace}:*"
    allowed = " ".join(f"+{command}" for command in commands(url))
    return f"resetchannels &{{{namespace}}}:* {keys} -@all {allowed}"


def lines(namespace: str, url: str = "") -> list[str]:
    """Lines of an ACL file; the password is to be put in."""
    found = [f"user {USER} on >PASSWORD {rules(namespace, url)}"]
    if kind_of(url) == SENTINEL:
        allowed = " ".join(f"+{command}" for command in sorted(OF_SENTINELS))
        found.append(f"user {USER} on >PASSWORD resetchannels resetkeys -@all {allowed}")
    return found

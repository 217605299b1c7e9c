"""What comes instead of an answer, by what the caller does about it.

``NotAnswered``  the connection broke or timed out; ``sent`` tells whether the server may have acted
``Refused``      Redis said "not now": read-only, loading, busy, out of memory; nothing was changed
``Redirected``   a node of a Cluster said that another one has this key; nothing was changed
``Gone``         this process was taken for dead and its claims are given to others
"""

from __future__ import annotations

from typing import NoReturn

from hiredis import ProtocolError
from redis import exceptions

#: Replies that mean "try again later", by their first word.
NOT_NOW = frozenset((
    "READONLY", "LOADING", "BUSY", "OOM", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
    "NOREPLICAS", "UNBLOCKED",
))
#: After these the connection is dropped as well: the server may have changed its role.
ROLE_CHANGED = frozenset(("READONLY", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED"))
#: redis-py cuts the code off the messages that it has classes for.
_CODES: dict[type[Exception], str] = {
    exceptions.ReadOnlyError: "READONLY", exceptions.OutOfMemoryError: "OOM",
    exceptions.MovedError: "MOVED", exceptions.AskError: "ASK",
    exceptions.TryAgainError: "TRYAGAIN", exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.MasterDownError: "MASTERDOWN",
}


class WireError(Exception):
    """The root of what a wire raises for the caller to ride out."""

    sent = False


class NotAnswered(WireError):
    """No answer came. ``sent`` is False only where the command certainly was not sent whole."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Barred(NotAnswered):
    """Redis answers, and does not let us in: a password, or rights of this user, are missing."""


class NotRedis(NotAnswered):
    """Something else answers at this address."""


class Refused(WireError):
    """Redis answered that it can not do this now; nothing was changed."""


class Redirected(WireError):
    """Another node has the slot: for good, or (``asking``) this key while the slot is being moved.
    ``host`` may be '': the same as that of this node."""

    def __init__(self, slot: int, host: str, port: int, *, asking: bool) -> None:
        super().__init__(
            f"this server is part of a Cluster, and slot {slot} is at {host}:{port}; the address "
            "of a Cluster is redis+cluster://HOST,HOST"
        )
        self.slot, self.host, self.port, self.asking = slot, host, port, asking


class Gone(WireError):
    """The owner was released: whatever it claimed belongs to others now."""


def reply_error(text: str) -> exceptions.ResponseError:
    """redis-py's error for what Redis answered; with its code, unlike redis-py's own.

    >>> str(reply_error("ERR no such key"))
    'ERR no such key'
    """
    kind = exceptions.NoScriptError if text.startswith("NOSCRIPT") else exceptions.ResponseError
    return kind(text)


def judge(error: exceptions.ResponseError) -> WireError | None:
    """The wire error that a reply of Redis stands for, or None where it is a fault of ours."""
    text = str(error)
    code = _CODES.get(type(error), text.partition(" ")[0])
    if code == "GONE" or "GONE this owner" in text:
        return Gone(text)
    if code in ("MOVED", "ASK"):
        slot, place = text.removeprefix(f"{code} ").split(" ")[:2]
        host, _, port = place.rpartition(":")
        return Redirected(int(slot), host, int(port), asking=code == "ASK")
    if code in NOT_NOW or "OOM command not allowed" in text or "-READONLY" in text:
        return Refused(f"{code} {text}" if code not in text else text)
    return None


def barred_by(text: str) -> Barred | None:
    """The error that a reply to the first commands of a connection stands for, if it is that one;
    with or without its code, which redis-py cuts off.

    >>> str(barred_by("NOAUTH Authentication required."))
    'it asks for a password (Authentication required.)'
    """
    code, _, rest = text.partition(" ")
    plain = rest if code in ("NOAUTH", "WRONGPASS", "NOPERM") else text
    known = (
        ("NOAUTH", "authentication required", "it asks for a password"),
        ("WRONGPASS", "username-password pair", "it refuses this user or password"),
        ("NOPERM", "has no permissions", "the user may not do what is needed"),
        ("ERR", "client sent auth, but no password is set", "it knows no password"),
        ("ERR", "auth <password> called without any password", "it knows no password"),
    )
    for name, words, meaning in known:
        if (code == name and name != "ERR") or words in text.lower():
            return Barred(f"{meaning} ({plain})", sent=False)
    return None


def break_off(error: BaseException, *, sent: bool) -> NoReturn:
    """Raise what a broken-off call comes to."""
    if isinstance(error, exceptions.BusyLoadingError):
        raise Refused(f"LOADING {error}") from error
    if isinstance(error, (exceptions.InvalidResponse, ProtocolError)):
        text = f"something else than Redis answers there ({error})"
        raise NotRedis(text, sent=sent) from error
    if isinstance(error, (exceptions.RedisError, OSError)):
        # redis-py's sentences end in a stop; ours go on.
        raise NotAnswered(str(error).rstrip(".") or type(error).__name__, sent=sent) from error
    raise error  # a kill or a time-out of the greenlet in mid-command

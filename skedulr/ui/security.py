"""Security: who may see, who may change, and what a browser is allowed to do with the answers.

- ``Credentials``: users with a password and a role, and session cookies that need no memory here.
- ``Guard``: Host, credentials, and for changes the method, the origin and the role.
- ``HEADERS``: the policy every answer carries.

The checks guard against other machines, other web pages (a foreign Origin, a form on another site,
a name that was rebound to this address) and viewers. They do not guard against someone who can
talk to Redis: that person owns the queue already.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConfigError
from .problems import Problem

Environ = dict[str, Any]

ADMIN, VIEWER = "admin", "viewer"
COOKIE = "skedulr_session"
SESSION_S = 12 * 3600
#: Answered without credentials and under any Host: what probes and load balancers ask.
OPEN_PATHS = ("/livez", "/readyz", "/healthz")
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

HEADERS = (
    ("Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
     "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    # Not no-referrer: under that a browser sends "Origin: null" with our own forms.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. ``name`` is None where nobody had to say."""

    name: str | None
    role: str

    @property
    def may_change(self) -> bool:
        return self.role == ADMIN


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str = field(repr=False)
    role: str = ADMIN


class Credentials:
    """Users, and the sessions they open. ``key()`` is a secret that all masters share."""

    def __init__(self, users: Iterable[User], key: Callable[[], bytes]) -> None:
        self._users = {user.name: user for user in users}
        self._key = key

    def check(self, name: str, password: str) -> Caller | None:
        """The caller of that name and password, or None. Takes as long for either."""
        user = self._users.get(name)
        expected = user.password if user else "no user has this one"
        same = hmac.compare_digest(_digest(expected), _digest(password))
        return Caller(user.name, user.role) if user and same else None

    def open_session(self, caller: Caller, now_s: float) -> str:
        """The text of a cookie that stands for the caller until SESSION_S from now."""
        assert caller.name is not None
        head = f"{_b64(caller.name.encode())}.{int(now_s + SESSION_S)}"
        return f"{head}.{self._sign(caller.name, head)}"

    def resume(self, text: str, now_s: float) -> Caller | None:
        """The caller that a cookie stands for, or None: forged, old, or the password changed."""
        head, _, signature = text.rpartition(".")
        name_text, _, until = head.partition(".")
        try:
            name, until_s = base64.urlsafe_b64decode(name_text.encode()).decode(), int(until)
        except (ValueError, binascii.Error):
            return None
        user = self._users.get(name)
        if user is None or until_s < now_s or until_s > now_s + SESSION_S + 60:
            return None
        if not _same(self._sign(name, head), signature):
            return None
        return Caller(user.name, user.role)

    def _sign(self, name: str, head: str) -> str:
        # The password is part of it, so that changing one ends its sessions.
        user = self._users[name]
        text = "\0".join(("session", head, user.password, user.role))
        return hmac.new(self._key(), text.encode(), sha256).hexdigest()


def read_users(text: str | None, file: str | None) -> list[User]:
    """Users from ``USER:PASSWORD`` and from a file with one such line a user.

    In the file a line may begin with ``viewer``: that user sees everything and changes nothing.
    Empty lines and lines that begin with ``#`` do not count. Raises ConfigError.
    """
    users = [_user(text, ADMIN, "--ui-auth")] if text else []
    if file:
        try:
            lines = Path(file).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"--ui-auth-file {file}: {why}") from None
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            first, _, rest = line.strip().partition(" ")
            role = first if first in (ADMIN, VIEWER) and rest else ADMIN
            login = rest.strip() if rest and first in (ADMIN, VIEWER) else line.strip()
            users.append(_user(login, role, f"--ui-auth-file {file}, line {number}"))
        if not users:
            raise ConfigError(f"--ui-auth-file {file}: no line with USER:PASSWORD in it")
    return users


def _user(text: str, role: str, where: str) -> User:
    name, _, password = text.partition(":")
    if not name or not password:
        raise ConfigError(f"{where}: USER:PASSWORD is expected")
    return User(name, password, role)


class Guard:
    """Decides on each request before anything else looks at it.

    ``hosts``: names (with or without a port) this UI is reached by, beside those of ``loopback``;
    None: the host application has checked. ``auth``: Credentials, or ``auth(environ) -> bool``, or
    None. ``read_only``: nobody changes anything.
    """

    def __init__(
        self, *, auth: Credentials | Callable[[Environ], bool] | None, read_only: bool,
        hosts: Iterable[str] | None, loopback: bool, key: Callable[[], bytes],
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.auth, self.read_only, self.loopback = auth, read_only, loopback
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._key, self._wall_s = key, wall_s

    @property
    def has_users(self) -> bool:
        """Whether people log in here, rather than at the host application or not at all."""
        return isinstance(self.auth, Credentials)

    # Who

    def caller(self, environ: Environ) -> Caller | None:
        """Who asks, or None where nobody who may."""
        if self.auth is None:
            return Caller(None, VIEWER if self.read_only else ADMIN)
        if not isinstance(self.auth, Credentials):
            allowed = self.auth(environ)
            return Caller(None, VIEWER if self.read_only else ADMIN) if allowed is True else None
        found = self._by_password(environ) or self._by_cookie(environ)
        if found is not None and self.read_only:
            return Caller(found.name, VIEWER)
        return found

    def _by_password(self, environ: Environ) -> Caller | None:
        kind, _, text = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        except (ValueError, binascii.Error):
            return None
        assert isinstance(self.auth, Credentials)
        return self.auth.check(name, password)

    def _by_cookie(self, environ: Environ) -> Caller | None:
        assert isinstance(self.auth, Credentials)
        try:
            cookie = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(COOKIE)
        except CookieError:
            return None
        return self.auth.resume(cookie.value, self._wall_s()) if cookie else None

    # Whence

    def check_host(self, environ: Environ) -> None:
        """421 for a name this UI does not go by: a foreign page may have rebound it to us."""
        if self._hosts is None:
            return
        host = environ.get("HTTP_HOST", "")
        name = _host_name(host)
        if name is not None and (host.lower() in self._hosts or name in self._hosts):
            return
        if name in LOCAL_NAMES or (not self.loopback and _is_address(name)):
            return
        raise Problem(
            421, "unknown_host",
            f"this UI does not go by the name {host[:100]!r}: start the master with --ui-host NAME",
        )

    def check_change(self, environ: Environ, caller: Caller) -> None:
        """Whether this request may change something: same origin, and a role that may."""
        self.check_origin(environ)
        if not caller.may_change:
            why = "this UI is read-only" if self.read_only else "a viewer can not change anything"
            raise Problem(403, "read_only", why)

    def check_origin(self, environ: Environ) -> None:
        """403 for what another site's page sends. What says nothing of its origin is no page."""
        if environ.get("HTTP_SEC_FETCH_SITE", "same-origin") not in ("same-origin", "none"):
            raise Problem(403, "foreign_origin", "a change must come from this UI's own pages")
        origin = environ.get("HTTP_ORIGIN")
        if origin is not None and not self._is_own(origin, environ.get("HTTP_HOST", "")):
            raise Problem(
                403, "foreign_origin",
                f"a change must come from this UI's own pages, not from {origin[:100]!r}",
            )

    def _is_own(self, origin: str, host: str) -> bool:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or not host:
            return False
        netloc = _without_default_port(parts.netloc.lower(), parts.scheme)
        if netloc == _without_default_port(host.lower(), parts.scheme):
            return True
        # Behind a proxy that names us otherwise: the names this UI was told it is known by.
        return self._hosts is not None and netloc in self._hosts

    # Forms

    def form_token(self, caller: Caller) -> str:
        """What our own forms carry, so that one on another site can not be sent here."""
        text = f"form\0{caller.name or ''}\0{int(self._wall_s() // 86400)}"
        return hmac.new(self._key(), text.encode(), sha256).hexdigest()

    def check_form_token(self, caller: Caller, token: str) -> None:
        """403 for a token that no form of today or yesterday carried."""
        day = int(self._wall_s() // 86400)
        for one in (day, day - 1):
            text = f"form\0{caller.name or ''}\0{one}"
            made = hmac.new(self._key(), text.encode(), sha256).hexdigest()
            if _same(made, token):
                return
        raise Problem(403, "stale_form", "this form is too old, or not ours: load the page again")


def session_cookie(text: str, *, path: str, secure: bool, max_age_s: int = SESSION_S) -> str:
    """A Set-Cookie header for a session; an empty text ends it."""
    age_s = max_age_s if text else 0
    flag = "; Secure" if secure else ""
    return f"{COOKIE}={text}; Path={path or '/'}; Max-Age={age_s}; HttpOnly; SameSite=Lax{flag}"


def wants_page(headers: Mapping[str, Any]) -> bool:
    """Whether a browser asks for a page, rather than a program for data."""
    return "text/html" in headers.get("HTTP_ACCEPT", "")


def _host_name(host: str) -> str | None:
    """The name in a Host header, without port and brackets; None for what is none."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
        name = parts.hostname
    except ValueError:
        return None
    if not name or parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return name.rstrip(".")


def _is_address(name: str | None) -> bool:
    """Nobody can rebind an address, only a name."""
    try:
        ipaddress.ip_address(name or "")
    except ValueError:
        return False
    return True


def _without_default_port(netloc: str, scheme: str) -> str:
    return netloc.removesuffix(":443" if scheme == "https" else ":80")


def _same(one: str, other: str) -> bool:
    """Compared in constant time; ``other`` may hold any character."""
    return hmac.compare_digest(one.encode(), other.encode("utf-8", "surrogatepass"))


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()

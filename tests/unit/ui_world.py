"""A namespace with tasks and the UI over it, in this process: no workers, no sockets.

``World`` submits through the client and plays the worker through the store. ``Browser`` asks the
WSGI application as a server would, and keeps cookies.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from skedulr import message
from skedulr.client import Client, ClientConfig
from skedulr.keys import PoolKeys
from skedulr.store import END_DEAD, END_SUCCEEDED, Ending, Failure, Lane, Store
from skedulr.ui.app import make_app
from skedulr.ui.calls import call_of
from skedulr.wire import Wire

NAMESPACE = "ui"


class World:
    """Tasks in Redis at ``url``."""

    def __init__(self, url: str) -> None:
        self.client = Client(ClientConfig(url=url, namespace=NAMESPACE, name="test"))
        self._wire = Wire(url, name="world")
        self._lanes: dict[str, Lane] = {}

    def submit(self, name: str = "work", *args: Any, **options: Any) -> str:
        """Queue a task; its id."""
        given = {"name": name, "args": list(args), "options": options}
        return self.client.submit(call_of(given)).id

    def start(self, pool: str = "default", count: int = 1) -> list[tuple[bytes, bytes]]:
        """Claim tasks as a worker would; (uid, token) of each."""
        claims = self._store(pool).claim(self._lane(pool), count, count, 60_000)
        return [(uid, claims.token) for uid in claims.rows[::4]]

    def succeed(self, result: Any = None, pool: str = "default", count: int = 1) -> None:
        """Run the next tasks to a good end."""
        entry = message.entry(message.SUCCEEDED, "n.1", 1, self.now_ms() - 120, result)
        self._end(pool, count, END_SUCCEEDED, entry)

    def die(
        self, error: str = "ValueError", text: str = "card declined", pool: str = "default",
        count: int = 1, trace: str = "Traceback (most recent call last): ...",
    ) -> None:
        """Run the next tasks into the dead-letter queue."""
        entry = message.entry(
            message.DEAD, "n.1", 1, self.now_ms() - 45, [error, text, trace]
        )
        self._end(pool, count, END_DEAD, entry)

    def fail_once(self, pool: str = "default", delay_ms: int = 60_000) -> None:
        """The next task's attempt fails and is planned again."""
        entry = message.entry(message.FAILED, "n.1", 1, self.now_ms(), ["OSError", "away", "..."])
        held = self.start(pool)
        self._store(pool).retry(
            self._lane(pool), [Failure(uid, token, delay_ms, entry) for uid, token in held]
        )

    def now_ms(self) -> int:
        seconds, micros = self._wire.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def call(self, *command: Any) -> Any:
        """A command to Redis."""
        return self._wire.call(*command)

    def _end(self, pool: str, count: int, kind: str, entry: bytes) -> None:
        held = self.start(pool, count)
        assert len(held) == count, "the pool has not that many tasks"
        tasks = PoolKeys(NAMESPACE, pool).tasks
        names = [message.read_call(self._wire.call("HGET", tasks, uid))[0] for uid, _ in held]
        endings = [
            Ending(uid, token, f"{kind} 20 150 {name}", entry)
            for (uid, token), name in zip(held, names, strict=True)
        ]
        self._store(pool).finish(self._lane(pool), endings)

    def _store(self, pool: str) -> Store:
        return Store(PoolKeys(NAMESPACE, pool))

    def _lane(self, pool: str) -> Lane:
        return self._lanes.setdefault(pool, Lane(self._wire, "n.1.1"))


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def code(self) -> str:
        """The code of an error."""
        code: str = self.json["error"]["code"]
        return code

    def header(self, name: str) -> str | None:
        return {key.lower(): text for key, text in self.headers}.get(name.lower())


@dataclass
class Browser:
    """Asks ``app``; ``environ`` is part of every request."""

    app: Callable[..., Iterable[bytes]]
    environ: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1:8725"

    def get(self, path: str, **environ: Any) -> Answer:
        """A page, or data."""
        return self.ask("GET", path, **environ)

    def page(self, path: str, **environ: Any) -> Answer:
        """As a browser asks for a page."""
        return self.ask("GET", path, HTTP_ACCEPT="text/html,*/*", **environ)

    def post(self, path: str, value: Any = None, **environ: Any) -> Answer:
        """Send JSON."""
        body = json.dumps({} if value is None else value).encode()
        environ.setdefault("CONTENT_TYPE", "application/json")
        return self.ask("POST", path, body, **environ)

    def send(self, path: str, page: str = "/submit", **fields: Any) -> Answer:
        """Send a form as the page at ``page`` would."""
        token = re.search(r'name="token" value="(\w+)"', self.page(page).text)
        form = {"token": token[1] if token else "", **fields}
        return self.ask(
            "POST", path, urlencode(form, doseq=True).encode(),
            CONTENT_TYPE="application/x-www-form-urlencoded", HTTP_ACCEPT="text/html",
            HTTP_ORIGIN=f"http://{self.host}", HTTP_SEC_FETCH_SITE="same-origin",
        )

    def ask(self, method: str, path: str, body: bytes = b"", **environ: Any) -> Answer:
        """Any request."""
        route, _, query = path.partition("?")
        given = {
            "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": route, "QUERY_STRING": query,
            "SERVER_NAME": "localhost", "SERVER_PORT": "8725", "HTTP_HOST": self.host,
            "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "127.0.0.1", "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body), "wsgi.errors": io.StringIO(), "wsgi.version": (1, 0),
            "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
            **({"CONTENT_LENGTH": str(len(body))} if body else {}), **self.environ, **environ,
        }
        if self.cookies:
            given["HTTP_COOKIE"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        answer = Answer(0, [], b"")

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> None:
            answer.status, answer.headers = int(status.split()[0]), headers

        chunks = self.app(given, start)
        answer.body = b"".join(chunks)
        for name, text in answer.headers:
            if name.lower() == "set-cookie":
                key, _, value = text.partition(";")[0].partition("=")
                self.cookies[key] = value
        return answer


def basic(user: str, password: str) -> dict[str, str]:
    """The environ of a request with credentials."""
    text = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"HTTP_AUTHORIZATION": f"Basic {text}"}


def browse(world: World, **options: Any) -> Browser:
    """The UI over a world."""
    return Browser(make_app(world.client, **options))

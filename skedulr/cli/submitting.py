"""``skedulr submit``: one call from the command line, or a file of calls.

A file is read line by line and submitted as it is read, so its length does not matter. Its first
bad line stops it; everything above that line is submitted then, and the count says so.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any

from .. import options
from ..errors import ConfigError, SkedulrError, nearest
from ..tasks import Call, Task
from . import exits
from .progress import Progress
from .session import Session

#: The flags that are options of the call, by the option's name.
CALL_FLAGS = (
    "pool", "priority", "delay", "at", "timeout", "max_retries", "expires", "id", "key", "tags",
    "keep_result", "unique", "on_duplicate", "headers",
)
_LINE_KEYS = ("name", "args", "kwargs", "options")


def submit(session: Session) -> int:
    """The command."""
    return _submit_file(session) if session.given.jsonl else _submit_one(session)


def _submit_one(session: Session) -> int:
    given = session.given
    if given.name is None:
        raise ConfigError("which task? give its NAME, or calls with --jsonl FILE")
    args = _array("--args", _json("--args", given.args or "[]"))
    kwargs = _object("--kwargs", _json("--kwargs", given.kwargs or "{}"))
    task = session.app.remote(given.name, **_flags(given))
    handle = session.app.submit_call(task.bind(*args, **kwargs))
    if session.output.json:
        session.output.document(handle.info())
    else:
        session.output.line(handle.id)
        if sys.stderr.isatty():
            _say_who_runs_it(session, handle.id, given.name)
    return exits.OK


def _say_who_runs_it(session: Session, id: str, name: str) -> None:
    """For a person: why nobody may take what was submitted, which by itself is no mistake."""
    client = session.client
    try:
        found = client.overview()
        published = client.ask(lambda wire: wire.call("HKEYS", client.space.names))
    except SkedulrError:
        return  # it is stored, and that was asked for
    pool = id.partition("/")[0]
    served = [one["name"] for one in found.pools if not one["unserved"]]
    names = [one.decode("utf-8", "replace") for one in published]
    if all(node["silent"] for node in found.nodes):
        session.hint("no master runs in this namespace: the task waits for one (skedulr-master)")
    elif pool not in served:
        session.hint(f"no node serves pool {pool!r}{nearest(pool, served)}: the task waits for one")
    elif name not in names:
        session.hint(f"no worker knows a task {name!r}{nearest(name, names)}: it waits for one")


def _flags(given: Any) -> dict[str, Any]:
    """The call's options from the command line, in the form that ``using`` takes."""
    found = {name: getattr(given, name) for name in CALL_FLAGS}
    found = {name: value for name, value in found.items() if value is not None}
    if "at" in found:
        found["at"] = moment("--at", found["at"])
    if found.get("keep_result") == 0:
        found["keep_result"] = False
    if "unique" in found:
        found["unique"] = _window(found["unique"])
    if "headers" in found:
        found["headers"] = dict(found["headers"])
    return found


def _window(text: str) -> str | float:
    """``--unique``: a word or a number of seconds; which words there are is for options to say."""
    try:
        return float(text)
    except ValueError:
        return text


def moment(name: str, value: Any) -> Any:
    """Epoch seconds, or an aware datetime from ISO text; ConfigError says what would do."""
    if not isinstance(value, str):
        return value
    try:
        number = float(value)
    except ValueError:
        pass
    else:
        if not math.isfinite(number):
            raise ConfigError(f"{name} {value} is no time: {_TIMES}")
        return number
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigError(f"{name} {value!r} is no time: {_TIMES}") from None
    if when.utcoffset() is None:
        raise ConfigError(f"{name} {value!r} has no offset from UTC: {_TIMES}")
    return when


_TIMES = "give epoch seconds, or ISO with an offset as in 2026-12-01T09:00+01:00 or ...T08:00Z"


# ------------------------------------------------------------------------------------- JSON


def _json(what: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise ConfigError(
            f"{what} is not JSON: {error}; got {_short(text)}{_LIKE.get(what, '')}"
        ) from None
    except RecursionError:
        raise ConfigError(f"{what} is nested too deep") from None


#: How the flags' values look: JSON's own quotes are double, so the shell's are single.
_LIKE = {
    "--args": """; write it as in --args '["two", 2]'""",
    "--kwargs": """; write it as in --kwargs '{"day": 1}'""",
}


def _no_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _array(what: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{what} takes a JSON array, as in [1, \"two\"]; got {_short(value)}")
    return value


def _object(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{what} takes a JSON object, as in {{\"day\": 1}}; got {_short(value)}")
    return value


def _short(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


# ------------------------------------------------------------------------------------ a file


class _Calls:
    """The calls of a file, one after the other; raises at the first line that makes none."""

    def __init__(
        self, file: IO[bytes], make: Callable[[str | None, Mapping[str, Any]], Task[..., Any]],
        on_read: Callable[[int], None],
    ) -> None:
        self._file, self._make, self._on_read = file, make, on_read
        self.line = 0
        #: Lines whose calls were read and are not known to be stored: two parcels of 500 at most.
        self.under_way: deque[int] = deque()

    def __iter__(self) -> Iterator[Call[Any]]:
        for raw in self._file:
            self.line += 1
            self._on_read(len(raw))
            if not raw.strip():
                continue
            call = self._read(raw)
            self.under_way.append(self.line)
            yield call

    def _read(self, raw: bytes) -> Call[Any]:
        try:
            text = raw.decode("utf-8-sig" if self.line == 1 else "utf-8")
        except UnicodeDecodeError:
            raise ConfigError("it is not UTF-8") from None
        item = _object("a line", _json("it", text))
        for key in item:
            if key not in _LINE_KEYS:
                raise ConfigError(f"it has an unknown key {key!r}{nearest(key, _LINE_KEYS)}")
        name = item.get("name")
        if name is not None and not isinstance(name, str):
            raise ConfigError(f"its name is {_short(name)}, not a text")
        given = _object("options", item.get("options") or {})
        task = self._make(name, given)
        args = _array("args", item.get("args") or [])
        return Call(task, tuple(args), _object("kwargs", item.get("kwargs") or {}))


def _submit_file(session: Session) -> int:
    given = session.given
    for name in ("args", "kwargs", "id"):
        if getattr(given, name) is not None:
            raise ConfigError(f"--{name} belongs to one call: with --jsonl, each line has its own")
    flags = _flags(given)
    options.check(flags)
    with _opened(given.jsonl) as (file, size), Progress(sys.stderr, size) as progress:
        calls = _Calls(file, _maker(session, flags), progress.read)
        failure, line = None, 0
        try:
            for _ in session.app.submit_iter(calls):
                calls.under_way.popleft()
                progress.count += 1
        except SkedulrError as error:
            # All before the bad one are stored first: a line that made no call is the last read.
            failure, line = error, calls.under_way.popleft() if calls.under_way else calls.line
        except KeyboardInterrupt:
            session.complain(f"interrupted: {_stored(progress.count)}{_perhaps(calls)}")
            raise
    return _report(session, calls, progress, failure, line)


def _report(
    session: Session, calls: _Calls, progress: Progress, failure: SkedulrError | None, line: int
) -> int:
    """The last words: how many were submitted, and which line stopped it."""
    document: dict[str, Any] = {"submitted": progress.count}
    if failure is None:
        if session.output.json:
            session.output.document(document)
        else:
            session.output.line(_stored(progress.count) + progress.took())
        return exits.OK
    session.complain(
        f"line {line:,}: {session.explain(failure)}; {_stored(progress.count)}{_perhaps(calls)}"
    )
    if session.output.json:
        session.output.document(document | {"line": line, "error": str(failure)})
    return exits.USAGE if isinstance(failure, ConfigError) else exits.FAILURE


def _stored(count: int) -> str:
    return f"{count:,} {'task is' if count == 1 else 'tasks are'} submitted"


def _perhaps(calls: _Calls) -> str:
    """Calls that were sent, or about to be: nobody knows of them."""
    left = len(calls.under_way)
    if not left:
        return ""
    return f", and perhaps {'the line' if left == 1 else f'some of the {left:,} lines'} behind it"


def _maker(
    session: Session, flags: Mapping[str, Any]
) -> Callable[[str | None, Mapping[str, Any]], Task[..., Any]]:
    """What makes the task of a line; lines that only differ in their id share the work."""
    default_name: str | None = session.given.name
    made: dict[str, Task[..., Any]] = {}

    def make(name: str | None, given: Mapping[str, Any]) -> Task[..., Any]:
        name = name or default_name
        if name is None:
            raise ConfigError("it has no name, and no NAME is on the command line")
        own = {key: value for key, value in given.items() if key != "id"}
        shared_key = json.dumps([name, own], sort_keys=True)
        task = made.get(shared_key)
        if task is None:
            if len(made) >= 1000:
                made.clear()
            task = made[shared_key] = session.app.remote(name).using(**_merged(flags, own))
        return task.using(id=given["id"]) if "id" in given else task

    return make


def _merged(flags: Mapping[str, Any], own: Mapping[str, Any]) -> Any:
    merged = {**flags, **own}
    # Between --delay for all lines and "at" in one, the line's own word counts.
    for one, other in (("delay", "at"), ("at", "delay")):
        if one in own and other not in own:
            merged.pop(other, None)
    if "at" in merged:
        merged["at"] = moment("at", merged["at"])
    return merged


@contextmanager
def _opened(name: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """The file and its size; ``-`` is standard input, whose size nobody knows."""
    if name == "-":
        yield sys.stdin.buffer, None
        return
    try:
        file = open(name, "rb")  # noqa: SIM115 - closed below, errors of the body are not ours
        size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ConfigError(f"--jsonl {name}: {error.strerror}") from None
    with file:
        yield file, size or None

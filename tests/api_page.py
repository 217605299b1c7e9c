"""Writes ``examples/docs/api.md`` from docstrings, signatures and the HTTP description.

    python tests/api_page.py

``tests/unit/test_api_page.py`` fails while the page is stale.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import skedulr
from skedulr import middleware, otel, testing
from skedulr.context import Context
from skedulr.hooks import EVENTS
from skedulr.options import Options
from skedulr.schedule_client import Schedule

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "examples" / "docs" / "api.md"

_HEAD = """\
# Reference

<!-- Written by tests/api_page.py from docstrings, signatures and the HTTP description.
     Change those, then run it. -->

Names below are taken from `skedulr`. The functions are the methods of one default app; an app of
your own, `app = skedulr.Skedulr(url=...)`, has them too. Flags and commands are in
[commands](commands.md), schedules are explained in [schedules](schedules.md).

Where a time is asked for, seconds or a timedelta will do; datetimes must be aware.
"""

#: What each option of ``@task`` and ``using`` means. There is no other place that says it.
OPTIONS = {
    "pool": "the pool whose workers run it (`default`)",
    "priority": "-100 to 100, higher first (0)",
    "delay": "not before so long from the submit",
    "at": "not before this time: an aware datetime or epoch seconds",
    "timeout": "most time for one attempt; None: no limit (None)",
    "max_retries": "attempts after the first (3); None: what the strategy says",
    "retry": "how long to wait between attempts: `LinearRetry`, `ExponentialBackoff`, or an object "
             "with `next_delay(attempt, error)`; without it "
             "`ExponentialBackoff(base=1, cap=600, jitter=0.2)`",
    "retry_on": "only these errors are tried again: a class or a tuple (all)",
    "never_retry_on": "these are not (none)",
    "expires": "dropped if it has not started so long after it was due, or submitted",
    "id": "its id, of one call only: the same call with the same id is one task",
    "key": "a name shown with the task; `{argument}` is filled in; with `unique` what must differ",
    "unique": '`"until_done"`, `"until_start"` or seconds: one task at a time with this key, '
              "or with these arguments",
    "on_duplicate": 'with `unique`: `"raise"`, `"return"` the one there is, or `"replace"` it '
                    '(`"raise"`)',
    "limit": "`Limit(concurrency=3, key=)` or `Limit(rate=10, per=60, key=)`, or a list of them: "
             "see [limits](limits.md)",
    "keep_result": "how long the result is kept, or False: not at all",
    "headers": "a dict that travels with the task: `current_task().headers`",
    "tags": "texts to search by",
    "redact": "arguments that are never shown",
    "on_commit": "stored when the current database transaction is committed: True, or an alias "
                 "(Django)",
    "depends_on": "wait until these tasks (handles or ids, one or several) have succeeded; of one "
                  "call only, as are the next four: see [workflows](workflows.md)",
    "on_success": "the same",
    "on_failure": "wait until one of these ended otherwise",
    "after": "wait until these have ended, however they did",
    "allow_missing": "a task it waits for may be unknown, and come later (False)",
}
_CLASSES = ("Task", "Call", "Chain", "Handle", "Schedule", "Workflow", "Step", "Skedulr")
_STRATEGIES = ("LinearRetry", "ExponentialBackoff")
_LIMITS = ("Limit",)
_MIDDLEWARE = ("Logging", "Recovery", "OpenTelemetry")
_CONTEXT = ("current_task", "task_id", "report_progress")


def page() -> str:
    """The whole page."""
    parts = [_HEAD, "## Functions\n"]
    parts += [_entry(name, getattr(skedulr, name)) for name in _functions()]
    parts += ["## Options of tasks and calls\n",
              "On `@task` for all calls, by `using` for some.\n", _table(("option", "meaning"), (
                  (f"`{name}`", OPTIONS[name]) for name in Options.__annotations__))]
    for name, kind in (("Task", skedulr.Task), ("Call", skedulr.Call), ("Chain", skedulr.Chain),
                       ("Handle", skedulr.Handle),
                       ("Schedule", Schedule), ("Workflow", skedulr.Workflow),
                       ("Step", skedulr.Step)):
        parts += [f"## {name}\n", _doc(kind), *_members(kind)]
    parts += ["## Inside a task\n", *(_entry(name, getattr(skedulr, name)) for name in _CONTEXT)]
    parts += ["### What `current_task()` gives\n", _doc(Context), *_members(Context)]
    parts += ["## Limits\n", *(_entry(name, getattr(skedulr, name)) for name in _LIMITS)]
    parts += ["## Retry strategies and middleware\n"]
    parts += [_entry(name, getattr(skedulr, name)) for name in (*_STRATEGIES, *_MIDDLEWARE)]
    parts += ["Middleware of your own:\n", _doc(middleware), "## Events\n",
              "`@skedulr.on(event)` has a function called with:\n",
              _table(("event", "called with"), ((f"`{k}`", v) for k, v in EVENTS.items()))]
    parts += ["## Errors\n", _table(("error", "derives from", "meaning"), _errors())]
    parts += ["## `skedulr.testing`\n"]
    parts += [_entry(name, getattr(testing, name))
              for name in ("app", "inline", "server", "embedded", "Clock")]
    parts += ["## `skedulr.otel`\n", _doc(otel), _entry("install", otel.install)]
    parts += ["## HTTP\n", _table(("request", "does", "answers"), _requests())]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _functions() -> list[str]:
    return [name for name in skedulr.__all__ if name not in _CONTEXT
            and not inspect.isclass(getattr(skedulr, name)) and callable(getattr(skedulr, name))]


def _entry(name: str, thing: Any) -> str:
    return f"**`{name}{_signature(thing)}`**\n\n{_doc(thing)}"


def _members(kind: Any) -> Iterable[str]:
    for name, member in vars(kind).items():
        if name.startswith("_") or not getattr(member, "__doc__", None):
            continue
        if isinstance(member, property):
            yield f"**`.{name}`**\n\n{_doc(member)}"
        elif callable(member):
            yield f"**`.{name}{_signature(member)}`**\n\n{_doc(member)}"


def _signature(thing: Any) -> str:
    """The parameters with their defaults. Annotations would double its length."""
    if inspect.isclass(thing):
        thing = thing.__init__
    parameters = []
    star = False
    for one in inspect.signature(thing).parameters.values():
        if one.name == "self" or (one.name == "function" and one.default is None):
            continue  # a decorator's own is not for the reader to give
        if one.kind is one.KEYWORD_ONLY and not star:
            parameters.append("*")
            star = True
        if one.kind is one.VAR_POSITIONAL:
            parameters.append(f"*{one.name}")
            star = True
        elif one.kind is one.VAR_KEYWORD:
            parameters.append(f"**{'options' if one.name == 'given' else one.name}")
        elif one.default is one.empty:
            parameters.append(one.name)
        elif callable(one.default):
            parameters.append(f"{one.name}={one.default.__name__}")
        else:
            parameters.append(f"{one.name}={one.default!r}")
    return f"({', '.join(parameters)})"


def _doc(thing: Any) -> str:
    """The docstring as Markdown; indented or typed examples become code."""
    text = inspect.cleandoc(thing.__doc__ or "")
    text = re.sub(r" *# doctest: \+SKIP$", "", text, flags=re.MULTILINE)
    text = re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith(">>>"):
            paragraphs.append(f"```pycon\n{paragraph}\n```")
        elif paragraph.startswith("    "):
            paragraphs.append(f"```text\n{textwrap.dedent(paragraph)}\n```")
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs) + "\n"


def _errors() -> Iterable[tuple[str, str, str]]:
    for name in skedulr.__all__:
        kind = getattr(skedulr, name)
        if inspect.isclass(kind) and issubclass(kind, BaseException):
            above = ", ".join(base.__name__ for base in kind.__bases__)
            yield f"`{name}`", f"`{above}`", " ".join(_doc(kind).split())


def _requests() -> Iterable[tuple[str, str, str]]:
    described = json.loads((ROOT / "skedulr/ui/static/openapi.json").read_text("utf-8"))
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            if method in ("get", "post"):
                yield f"`{method.upper()} {path}`", one["summary"], ", ".join(one["responses"])


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    ) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}: {len(page().splitlines())} lines")

"""Signatures: what a task's function takes, as text, for those who have its name only.

Published beside a task's pool and defaults; the UI makes a form of it. Defaults and annotations are
shown and never evaluated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

#: Longer texts are cut, more parameters left out.
MOST_CHARS, MOST_PARAMETERS = 200, 50

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional", inspect.Parameter.POSITIONAL_OR_KEYWORD: "any",
    inspect.Parameter.VAR_POSITIONAL: "args", inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_KEYWORD: "kwargs",
}


class Parameter(NamedTuple):
    """One parameter. ``kind`` is "any", "positional", "keyword", or "args" and "kwargs" for those
    that take all the rest; ``default`` and ``annotation`` are source text or None."""

    name: str
    kind: str
    required: bool
    default: str | None
    annotation: str | None


def parameters_of(function: Callable[..., Any] | None) -> tuple[Parameter, ...]:
    """The parameters of a function; none where they can not be found out.

    >>> parameters_of(lambda to, retries=3: None)[1]
    Parameter(name='retries', kind='any', required=False, default='3', annotation=None)
    """
    if function is None:
        return ()
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(_parameter(one) for one in list(found)[:MOST_PARAMETERS])


def read(rows: Any) -> tuple[Parameter, ...]:
    """Parameters from what was published; none for what no release of ours wrote."""
    try:
        return tuple(Parameter(*row) for row in rows)
    except TypeError:
        return ()


def rows(parameters: Iterable[Parameter]) -> list[list[Any]]:
    """Parameters as they are published."""
    return [list(one) for one in parameters]


def _parameter(found: inspect.Parameter) -> Parameter:
    empty = inspect.Parameter.empty
    kind = _KINDS[found.kind]
    return Parameter(
        found.name, kind, found.default is empty and kind not in ("args", "kwargs"),
        None if found.default is empty else _text(found.default),
        None if found.annotation is empty else _annotation(found.annotation),
    )


def _annotation(given: Any) -> str:
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    return text[:MOST_CHARS]


def _text(value: Any) -> str:
    """A default's ``repr`` is the user's code: it may fail, and that is no reason to fail here."""
    try:
        return repr(value)[:MOST_CHARS]
    except Exception:
        return "..."

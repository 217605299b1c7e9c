"""Plain: any value a task carries as strict JSON, and the requests' JSON read back.

JSON has no NaN, bytes, dates, decimals or sets. They are shown as text: a page of a hundred tasks
must not break because of one of them. Nothing read here is trusted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any

#: Deeper values are cut: no parser on the other side has to be deeper.
MOST_DEPTH = 100


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` in JSON's own types, what is foreign to it as text.

    >>> plain({"rate": float("nan"), "raw": b"\\xff", "tags": {"b", "a"}})
    {'rate': 'NaN', 'raw': "b'\\\\xff'", 'tags': ['a', 'b']}
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _odd_float(value)
    if depth > MOST_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item, depth + 1) for item in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, bytes):
        return repr(value)
    return str(value)


def _odd_float(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def dump(value: Any) -> str:
    """Strict JSON in ASCII: a lone surrogate is escaped, and never breaks the answer."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))


def pretty(value: Any) -> str:
    """JSON for reading, indented, in the characters that were written."""
    text = json.dumps(plain(value), allow_nan=False, indent=2, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


def parse(text: bytes) -> Any:
    """The value of a JSON text; ValueError for what is none, NaN and repeated keys included."""
    try:
        return json.loads(
            text.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_object
        )
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"the key {key[:100]!r} is given twice")
        made[key] = value
    return made

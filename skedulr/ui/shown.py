"""Shown: numbers, times and values as people read them, for the templates.

What returns ``Markup`` holds tags of our own around numbers and escaped text; everything else is
plain text, which the templates escape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import bottle

from .plain import pretty

#: A value longer than this is cut on a page, characters.
CUT = 20_000
SHORT = 160

#: What stands where nothing is known.
NOTHING = "—"

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def count(value: float | None) -> str:
    """``1234567`` as ``1,234,567``; nothing known as a dash."""
    return NOTHING if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Tasks a second, with as many digits as tell something."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """``0.0123`` as ``12 ms``, ``4000`` as ``1 h 6 min``; nothing known as a dash."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 0.00095:
        return f"{seconds * 1e6:.0f} µs" if seconds > 0 else "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    left, parts = round(seconds), []
    for size, name in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {name}")
            left %= size
    return " ".join(parts[:2])


def about(seconds: float | None) -> str:
    """A duration in its largest unit, for where there is little room: ``3 h``."""
    return " ".join(duration(seconds).split(" ")[:2])


def every(seconds: float) -> str:
    """The period of a schedule: ``every 10 s``, ``every 1 h 30 min``."""
    return f"every {seconds:g} s" if seconds < 60 else f"every {duration(seconds)}"


def millis(ms: float | None) -> str:
    """A duration given in milliseconds."""
    return duration(None if ms is None else ms / 1000)


def workflow_colour(state: str) -> str:
    """The colour of a workflow's state is that of a task's."""
    return {"failed": "dead", "starting": "waiting"}.get(state, state)


def size(number: float | None) -> str:
    """Bytes, as ``12.3 MB``."""
    if number is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def moment(epoch_s: float | None, now_s: float) -> str:
    """A ``<time>`` tag: how long ago or ahead, the exact time on hover. Markup."""
    if not epoch_s or not math.isfinite(epoch_s) or not 0 < epoch_s < 253_402_300_799:
        return NOTHING
    at = datetime.fromtimestamp(epoch_s, UTC)
    exact = at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03} UTC"
    return (
        f'<time datetime="{at.isoformat(timespec="milliseconds")}" title="{exact}" '
        f'data-at="{epoch_s:.3f}">{relative(epoch_s - now_s)}</time>'
    )


def relative(seconds: float) -> str:
    """``-90`` as ``1 min ago``, ``90`` as ``in 1 min``."""
    distance = abs(seconds)
    if distance < 1:
        return "now"
    number, unit = next(
        (f"{distance // size:.0f}", name) for size, name in _UNITS if distance >= size
    )
    return f"{number} {unit} ago" if seconds < 0 else f"in {number} {unit}"


def value(given: Any) -> tuple[str, int]:
    """A value for reading, and how many characters were cut off."""
    text = pretty(given)
    return (text[:CUT], len(text) - CUT) if len(text) > CUT else (text, 0)


def brief(given: Any, length: int = SHORT) -> str:
    """A value in one short line."""
    text = " ".join(str(given).split())
    return text if len(text) <= length else text[: length - 1] + "…"


def call(task: dict[str, Any], length: int = SHORT) -> str:
    """A task's arguments in one short line, as in a call."""
    args = [_atom(one) for one in (task.get("args") or [])[:20]]
    kwargs = [f"{key}={_atom(one)}" for key, one in list((task.get("kwargs") or {}).items())[:20]]
    return brief(", ".join([*args, *kwargs]), length)


def _atom(given: Any) -> str:
    if isinstance(given, str):
        return repr(given[:SHORT])
    if isinstance(given, (list, dict)):
        return brief(repr(given)[: 4 * SHORT], SHORT) if len(given) <= 50 else f"[{len(given)}]"
    return str(given)[:SHORT]


def link(base: str, path: str, **query: Any) -> str:
    """An address below the place the UI is mounted at; parameters without value are left out."""
    kept = {key: one for key, one in query.items() if one not in (None, "")}
    return base + quote(path, safe="/:@=+.-_~") + (f"?{urlencode(kept)}" if kept else "")


def sparkline(
    values: Sequence[float], over: Sequence[float] = (), width: int = 120, height: int = 24
) -> str:
    """Bars of a small chart, those of ``over`` (a part of the values) in front. Markup; needs no
    script and no style."""
    top = max(values, default=0) or 1
    bars = _bars(values, top, width, height)
    if any(over):
        bars += f'<g class="over">{_bars(over, top, width, height)}</g>'
    return (
        f'<svg class="spark" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" aria-hidden="true">{bars}</svg>'
    )


def _bars(values: Sequence[float], top: float, width: int, height: int) -> str:
    step, bars = width / max(1, len(values)), []
    for i, one in enumerate(values):
        tall = max(1.0, one / top * (height - 2)) if one else 0.0
        if tall:
            bars.append(
                f'<rect x="{i * step:.1f}" y="{height - tall:.1f}" '
                f'width="{max(1.0, step - 1):.1f}" height="{tall:.1f}"/>'
            )
    return "".join(bars)


def share(part: float, whole: float) -> str:
    """A part as ``12 %``; of nothing a dash."""
    return NOTHING if not whole else f"{100 * part / whole:.{0 if part >= whole / 10 else 1}f} %"


def escape(text: str) -> str:
    """Text made harmless inside of tags and quotes."""
    escaped: str = bottle.html_escape(text)
    return escaped

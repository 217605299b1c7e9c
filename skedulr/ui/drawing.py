"""Drawings of workflows: where each step stands, as numbers for an SVG made on the server.

Pure. Steps go into layers, each one layer below the last of what it waits for; inside a layer each
stands near the middle of those above it (two sweeps down and up, as Sugiyama's method does). Made
here and not by a library in the browser: so the drawing is there without JavaScript, needs no
inline style, and stays up to date like every other part of a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: More steps are not drawn: the table has them.
MOST_DRAWN = 200
#: Sizes, px.
WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 168, 46, 18, 38, 10
#: So often the order of the layers is gone over, down and up.
SWEEPS = 4


class Box(NamedTuple):
    """A step: its place, and what is written in it."""

    x: int
    y: int
    step: Mapping[str, Any]
    title: str
    note: str


class Drawing(NamedTuple):
    """``lines`` are the paths of SVG from a box to one that waits for it."""

    width: int
    height: int
    boxes: list[Box]
    lines: list[str]


def draw(steps: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """The drawing of a workflow's steps; None for none, or too many."""
    if not steps or len(steps) > MOST_DRAWN:
        return None
    ids = {one["id"] for one in steps}
    above = {one["id"]: [p for p in one.get("depends_on") or () if p in ids] for one in steps}
    layers = _ordered(_layers(above), above)
    widest = max(len(layer) for layer in layers)
    width = widest * (WIDTH + GAP_X) - GAP_X + 2 * EDGE
    places: dict[str, tuple[int, int]] = {}
    for depth, layer in enumerate(layers):
        left = (width - len(layer) * (WIDTH + GAP_X) + GAP_X) // 2
        for at, id in enumerate(layer):
            places[id] = (left + at * (WIDTH + GAP_X), EDGE + depth * (HEIGHT + GAP_Y))
    return Drawing(
        width, len(layers) * (HEIGHT + GAP_Y) - GAP_Y + 2 * EDGE,
        [Box(*places[one["id"]], one, _title(one), _note(one)) for one in steps],
        [_line(places[parent], places[id]) for id, parents in above.items() for parent in parents],
    )


def _layers(above: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Steps by how many others are before them on the longest way; chains are too long for
    recursion."""
    below: dict[str, list[str]] = {id: [] for id in above}
    open_ = {id: len(parents) for id, parents in above.items()}
    for id, parents in above.items():
        for parent in parents:
            below[parent].append(id)
    depth = dict.fromkeys(above, 0)
    ready = [id for id, count in open_.items() if count == 0]
    for id in ready:
        for child in below[id]:
            depth[child] = max(depth[child], depth[id] + 1)
            open_[child] -= 1
            if open_[child] == 0:
                ready.append(child)
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for id, at in depth.items():
        layers[at].append(id)
    return layers


def _ordered(layers: list[list[str]], above: Mapping[str, Sequence[str]]) -> list[list[str]]:
    below: dict[str, list[str]] = {id: [] for id in above}
    for id, parents in above.items():
        for parent in parents:
            below[parent].append(id)
    at = {id: n / len(layer) for layer in layers for n, id in enumerate(layer)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for layer in layers if down else reversed(layers):
            layer.sort(key=lambda id: _middle([at[one] for one in near[id]], at[id]))
            for n, id in enumerate(layer):
                at[id] = (n + 0.5) / len(layer)
    return layers


def _middle(places: Sequence[float], own: float) -> float:
    return sum(places) / len(places) if places else own


def _line(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1, x2, y2 = start[0] + WIDTH // 2, start[1] + HEIGHT, end[0] + WIDTH // 2, end[1]
    bend = (y2 - y1) // 2
    return f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"


def _title(step: Mapping[str, Any]) -> str:
    return _cut(str(step.get("name") or step.get("task") or step["id"].rpartition(".")[2]))


def _note(step: Mapping[str, Any]) -> str:
    mapped = step.get("mapped")
    if mapped and mapped["total"]:
        return f"{step['state']}, {mapped['counts'].get('succeeded', 0):,} of {mapped['total']:,}"
    return str(step["state"])


def _cut(text: str) -> str:
    return text if len(text) <= 22 else text[:21] + "…"

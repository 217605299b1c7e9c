"""Reading the Markdown pages: their fenced blocks, code spans, links and anchors.

What a test is to do with a Python block says an HTML comment on the line above it:

    <!-- snippet: driven -->           run it, on the testing kit's app
    <!-- snippet: driven, as mail -->  the same; later blocks of the page may import it as ``mail``
    <!-- snippet: pytest -->           run its test functions, with the kit's fixtures
    <!-- snippet: not run: WHY -->     compile it, and check the names it takes from skedulr
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "examples" / "docs"

_FENCE = re.compile(r"^```(\w*)\s*$")
_NOTE = re.compile(r"^<!-- snippet: (.*?) -->$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SOURCE = re.compile(r"""(?:src|srcset|href)=["']([^"']+)["']""")
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what the comment above it says, and where it begins."""

    page: Path
    line: int
    language: str
    note: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """README and every other Markdown page that is for readers."""
    return [ROOT / "README.md", *sorted((ROOT / "examples").rglob("*.md"))]


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """The fenced blocks of a page, in order."""
    found, inside, note = [], None, ""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            inside = (number, fence[1], note, [])
        elif inside is not None and line == "```":
            found.append(Block(page, *inside[:3], "\n".join(inside[3]) + "\n"))
            inside = None
        elif inside is not None:
            inside[3].append(line)
        else:
            given = _NOTE.match(line)
            note = given[1] if given else ""
    assert inside is None, f"{page}: the block of line {inside and inside[0]} has no end"
    return tuple(found)


@cache
def prose(page: Path) -> str:
    """The page without its fenced blocks and comments."""
    kept, fenced = [], False
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            kept.append(line)
    return re.sub(r"<!--.*?-->", "", "\n".join(kept), flags=re.DOTALL)


def spans(page: Path) -> list[str]:
    """What stands between single backticks."""
    return _SPAN.findall(prose(page))


def links(page: Path) -> Iterator[str]:
    """The targets of links and pictures."""
    text = prose(page)
    yield from _LINK.findall(_SPAN.sub("code", text))
    yield from _SOURCE.findall(text)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors GitHub gives to a page's headings."""
    found: dict[str, int] = {}
    names = set()
    for line in prose(page).splitlines():
        if re.match(r"#{1,6} ", line):
            slug = re.sub(r"[^\w\- ]", "", line.lstrip("# ").strip().lower()).replace(" ", "-")
            again = found.get(slug, -1) + 1
            found[slug] = again
            names.add(f"{slug}-{again}" if again else slug)
    return frozenset(names)

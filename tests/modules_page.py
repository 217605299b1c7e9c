"""Writes the map of modules at the end of ``examples/docs/internals.md`` from their docstrings.

    python tests/modules_page.py

``tests/unit/test_docs.py`` fails while the map is stale.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "skedulr"
PAGE = ROOT / "examples" / "docs" / "internals.md"
BEGIN, END = "<!-- modules_page.py: begin -->", "<!-- modules_page.py: end -->"
#: Folders in the order of the page, each with its heading.
FOLDERS = {
    "": "the package itself", "pools": "processes", "hub": "time inside of a process",
    "ui": "the page and the HTTP interface", "cli": "the commands", "bench": "`skedulr bench`",
    "testing": "the testing kit", "integrations": "frameworks", "contrib": "large frameworks",
}


def page() -> str:
    """The whole page, its map as it has to be."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{''.join(_sections())}{END}{after}"


def _sections() -> Iterator[str]:
    for folder, heading in FOLDERS.items():
        files = (PACKAGE / folder).rglob("*.py") if folder else PACKAGE.glob("*.py")
        rows = [f"| `{_name(file)}` | {duty} |" for file in sorted(files) if (duty := _duty(file))]
        where = f"skedulr/{folder}/" if folder else "skedulr/"
        yield f"`{where}`: {heading}.\n\n| module | |\n|---|---|\n" + "\n".join(rows) + "\n\n"


def _name(file: Path) -> str:
    """``pools/child.py``; of the package itself ``client.py``."""
    return file.relative_to(PACKAGE).as_posix()


def _duty(file: Path) -> str:
    """The first sentence, or line, of its docstring; nothing for a front that says none."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    if file.name == "__init__.py" and file.parent != PACKAGE:
        return ""  # the heading says it
    first = text.partition("\n\n")[0].replace("\n", " ")
    return re.sub(r"``([^`]+)``", r"`\1`", first).rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote the map of {PAGE.name}")

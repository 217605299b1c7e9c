"""The Lua scripts: one file a command, shared steps in ``includes/`` (see assembly.py).

A script's header says what it is for. Its ``KEYS`` line names the pool's keys it takes, in order;
``store.py`` fills them in from those names, so the two can not disagree.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files

from .assembly import put_together

_KEYS = re.compile(r"^-- KEYS:? +(.*(?:\n--  +.*)*)", re.MULTILINE)


class Script:
    """One command's text with its includes, the SHA1 Redis knows it by, its keys' names."""

    __slots__ = ("keys", "name", "sha", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.sha = sha1(text.encode()).hexdigest()
        found = _KEYS.search(text)
        self.keys = tuple(found[1].replace("--", " ").split()) if found else ()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"


@cache
def script(name: str) -> Script:
    """The script called ``name``, read and put together once a process."""
    return Script(name, put_together(name, _read))


def names() -> list[str]:
    """All scripts there are, sorted."""
    return sorted(
        entry.name.removesuffix(".lua")
        for entry in files(__name__).iterdir()
        if entry.name.endswith(".lua")
    )


@cache
def _read(path: str) -> str:
    # Most scripts include the same few files.
    return files(__name__).joinpath(*path.split("/")).read_text("utf-8")

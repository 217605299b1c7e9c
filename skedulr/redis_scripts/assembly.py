"""Puts a script together from its file and those that it includes.

``-- include: name`` stands for ``includes/name.lua``, each once, its own includes before it, there
where a script names it first: what a script does before needs none of it. Lua makes each function
anew whenever a script runs, and eighty of them were a third of what a lone submit cost the server.
So with ``-- include rarely: name`` the functions of that file are made when the first of them is
called. A file is rare in a script where all who include it there say so; outside of it nothing but
calls of its functions may be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

_INCLUDE = re.compile(r"^-- include( rarely)?: (\w+)\n", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)", re.MULTILINE)
_CALL = re.compile(r"(?<![\w.:])(\w+)(?=\()")

#: ``{0}`` the file, ``{1}`` its text, ``{2}`` its functions as fields of a table.
_ON_DEMAND = """\
local made_{0}
local function from_{0}(wanted)
if not made_{0} then
{1}
made_{0} = {{{2}}}
end
return made_{0}[wanted]
end
"""


@dataclass(slots=True)
class Piece:
    """A part of a file, up to where it includes another one."""

    file: str
    text: str


def put_together(name: str, read: Callable[[str], str]) -> str:
    """The whole text of the script ``name``; ``read(path)`` gives the text of a file.

    Raises ValueError for includes that go in a circle.
    """
    pieces, rare = collect(name, read)
    made_on_demand = {
        function: piece.file
        for piece in pieces if piece.file in rare for function in _FUNCTION.findall(piece.text)
    }
    for piece in pieces:
        piece.text = _CALL.sub(partial(_call, made_on_demand, piece.file), piece.text)
        if piece.file in rare and piece.text:
            fields = ", ".join(f"{one} = {one}" for one in _FUNCTION.findall(piece.text))
            piece.text = _ON_DEMAND.format(piece.file, piece.text.rstrip("\n"), fields)
    return "".join(piece.text for piece in pieces)


def collect(name: str, read: Callable[[str], str]) -> tuple[list[Piece], set[str]]:
    """The pieces of a script in their order, as they are; and which of their files are rare."""
    pieces: list[Piece] = []
    known, often = {name}, {name}

    def add(name: str, path: str, way: tuple[str, ...]) -> None:
        text, begin = read(path), 0
        for match in _INCLUDE.finditer(text):
            pieces.append(Piece(name, text[begin:match.start()]))
            begin, other = match.end(), match[2]
            if other in way:
                raise ValueError(f"includes go in a circle: {' -> '.join((*way, other))}")
            if not match[1]:
                often.add(other)
            if other not in known:
                known.add(other)
                add(other, f"includes/{other}.lua", (*way, other))
        pieces.append(Piece(name, text[begin:]))

    add(name, f"{name}.lua", (name,))
    return pieces, known - often


def _call(made_on_demand: dict[str, str], file: str, match: re.Match[str]) -> str:
    """How a function is called from ``file``."""
    name = match[1]
    rare = made_on_demand.get(name, file)
    return name if rare == file else f"from_{rare}('{name}')"

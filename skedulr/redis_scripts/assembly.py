"""Puts a script together from its file and those that it includes.

``-- include: name`` stands for ``includes/name.lua``, each once, its own includes before it, there
where a script names it first: what a script does before needs none of it. Lua makes each function
anew whenever a script runs, and eighty of them were a third of what a lone submit cost the server.
So with ``-- include rarely: name`` the functions of that file are made
when the first of them is called. A file is rare in a script where all who include it there say so;
outside of it nothing but calls of its functions may be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_INCLUDE = re.compile(r"^-- include( rarely)?: (\w+)\n", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)", re.MULTILINE)
_VALUE = re.compile(r"^local (?!function\b)([\w, ]+?)(?: *=|$)", re.MULTILINE)
_COMMENT = re.compile(r"--.*")

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


def put_together(name: str, read: Callable[[str], str]) -> str:
    """The whole text of the script ``name``; ``read(path)`` gives the text of a file.

    Raises ValueError for includes that go in a circle, and for another use of a rare file's names
    than a call.
    """
    pieces: list[_Piece] = []
    often: set[str] = set()

    def add(name: str, path: str, way: tuple[str, ...]) -> None:
        text, begin = read(path), 0
        for match in _INCLUDE.finditer(text):
            pieces.append(_Piece(name, text[begin:match.start()]))
            begin, other = match.end(), match[2]
            if other in way:
                raise ValueError(f"includes go in a circle: {' -> '.join((*way, other))}")
            if not match[1]:
                often.add(other)
            if all(piece.file != other for piece in pieces):
                add(other, f"includes/{other}.lua", (*way, other))
        pieces.append(_Piece(name, text[begin:]))

    add(name, f"{name}.lua", (name,))
    for rare in dict.fromkeys(piece.file for piece in pieces):
        if rare != name and rare not in often:
            _make_on_demand(rare, pieces)
    return "".join(piece.text for piece in pieces)


@dataclass(slots=True)
class _Piece:
    """A part of a file, up to where it includes another one."""

    file: str
    text: str


def _make_on_demand(rare: str, pieces: list[_Piece]) -> None:
    # All includes stand at the beginning of an include: what follows them is one piece.
    own = [piece for piece in pieces if piece.file == rare][-1]
    functions = _FUNCTION.findall(own.text)
    values = ", ".join(_VALUE.findall(own.text)).split(", ")
    called = re.compile(rf"(?<![\w.:])({'|'.join(functions)})(?=\()")
    used = re.compile(rf"(?<![\w.:])({'|'.join(filter(None, [*functions, *values]))})\b")
    for piece in pieces:
        if piece.file != rare:
            piece.text = called.sub(rf"from_{rare}('\1')", piece.text)
            left = used.search(_COMMENT.sub("", piece.text).replace(f"from_{rare}('", "from."))
            if left:
                raise ValueError(f"{rare}.lua is included rarely, and {piece.file}.lua uses its "
                                 f"{left[1]} otherwise than by a call")
    fields = ", ".join(f"{one} = {one}" for one in functions)
    own.text = _ON_DEMAND.format(rare, own.text.rstrip("\n"), fields)

"""Puts a script together from its file and those that it includes.

``-- include: name`` stands for ``includes/name.lua``, each once, its own includes before it. Lua
makes each function anew whenever a script runs, and eighty of them were a third of what a lone
submit costs the server. So with ``-- include rarely: name`` the functions of that file are made
when the first of them is called. A file is rare in a script where all who include it there say so;
outside of it nothing but calls of its functions may be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
    texts: dict[str, str] = {}
    often: set[str] = {""}

    def add(name: str, path: str, way: tuple[str, ...]) -> None:
        text = read(path)
        for rarely, other in _INCLUDE.findall(text):
            if other in way:
                raise ValueError(f"includes go in a circle: {' -> '.join((*way, other))}")
            if not rarely:
                often.add(other)
            if other not in texts:
                add(other, f"includes/{other}.lua", (*way, other))
        # Behind those that it includes.
        texts[name] = _INCLUDE.sub("", text)

    add("", f"{name}.lua", (name,))
    for rare in [one for one in texts if one not in often]:
        _make_on_demand(rare, texts)
    return "".join(texts.values())


def _make_on_demand(rare: str, texts: dict[str, str]) -> None:
    own = texts[rare]
    functions, values = _FUNCTION.findall(own), ", ".join(_VALUE.findall(own)).split(", ")
    called = re.compile(rf"(?<![\w.:])({'|'.join(functions)})(?=\()")
    used = re.compile(rf"(?<![\w.:])({'|'.join(filter(None, [*functions, *values]))})\b")
    for name, text in texts.items():
        if name != rare:
            texts[name] = text = called.sub(rf"from_{rare}('\1')", text)
            left = used.search(_COMMENT.sub("", text).replace("from_" + rare + "('", ".from('."))
            if left:
                raise ValueError(f"{rare}.lua is included rarely, and {name or 'the script'} uses "
                                 f"its {left[1]} otherwise than by a call")
    fields = ", ".join(f"{one} = {one}" for one in functions)
    texts[rare] = _ON_DEMAND.format(rare, own.rstrip("\n"), fields)

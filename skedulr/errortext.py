"""A handler's error as bounded text, whatever the error is and does; and its memory given back.

- ``describe``: type, message and traceback as text that always encodes as UTF-8.
- ``forget``: frees what the error's frames hold.

The standard library formats every message in full, however large, and calls the error's own code
while it does. Here each piece is cut before it is put together, and foreign code (``__str__``,
``__repr__`` of what it carries) may raise what it likes. What can not be bounded: the time and
memory that a ``__str__`` written in Python takes itself.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from itertools import islice
from types import FrameType, TracebackType, WrapperDescriptorType
from typing import Any

#: A message has at most this many characters, a type's name this many.
MESSAGE_CHARS = 2048
TYPE_CHARS = 200

#: Of a traceback's frames this many are kept at its start and at its end. A recursion has more.
_FRAMES = 50

#: Errors shown of a chain of causes (and of all groups in it together), notes shown of each.
_ERRORS, _NOTES = 20, 10

#: Groups inside groups are shown this deep.
_GROUPS_DEEP = 5

#: Where this package's code is, as frames name it.
_OUR_FOLDER = os.path.dirname((lambda: None).__code__.co_filename) + os.sep

_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"


def describe(error: BaseException, limit: int = 16_384) -> tuple[str, str, str]:
    """``(type, message, traceback)`` of ``error``; never raises.

    The type is ``module.qualname``, without the module for built-in ones. The message has at most
    2,048 characters, the traceback at most ``limit`` bytes as UTF-8: the middle is left out, since
    the start says what was called and the end where it broke. Skedulr's own frames at the start
    are left out, too, and so are the values of variables.

    >>> describe(ValueError("no such card"))
    ('ValueError', 'no such card', 'ValueError: no such card\\n')
    """
    name, message = _type_name(error), _message(error)
    try:
        text = "".join(_chain(error, _Budget(_ERRORS), 0))
    except BaseException:
        # Nothing is known to come here; but then what can be said is better than nothing.
        text = f"{name}: {message}\n"
    return name, message, _cut_middle(_clean(text), limit)


def forget(error: BaseException) -> None:
    """Let go of the variables that ``error``'s frames keep alive, and of its traceback.

    So for its causes and the errors of a group. Never raises. Frames that still run keep theirs.
    """
    for one in _related(error):
        try:
            found = _get(one, "__traceback__")
            BaseException.with_traceback(one, None)
            traceback.clear_frames(found)
        except BaseException:
            pass  # a generator's finally block may raise when its frame is cleared


def _related(error: BaseException) -> Iterator[BaseException]:
    """``error``, and every error that can be reached from it, once each."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            todo += [_get(one, "__cause__"), _get(one, "__context__"), *_members(one)]


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if issubclass(type(error), BaseExceptionGroup):
        members: tuple[BaseException, ...] = _get(error, "exceptions", BaseExceptionGroup)
        return members
    return ()


def _get(error: BaseException, name: str, owner: type[BaseException] = BaseException) -> Any:
    """What Python itself keeps in the error, past any ``__getattribute__`` or property."""
    return getattr(owner, name).__get__(error)


# --- names and messages ---------------------------------------------------------------------------


def _type_name(error: BaseException) -> str:
    kind = type(error)
    try:
        module = kind.__module__
        prefix = "" if module == "builtins" else f"{module}."
        return _clean(_cut(f"{prefix}{kind.__qualname__}", TYPE_CHARS))
    except BaseException:
        return "unknown type"


def _message(error: BaseException) -> str:
    try:
        return _clean(_cut(_own_text(error), MESSAGE_CHARS))
    except BaseException as second:
        return f"(no message: its __str__ raised {_type_name(second)})"


def _own_text(error: BaseException) -> str:
    """``str(error)``, but for built-in ``__str__`` over large arguments: those put the whole of
    them into one string first.
    """
    args = _get(error, "args")
    if not isinstance(type(error).__str__, WrapperDescriptorType) or _is_light(args):
        return str(error)
    if isinstance(error, UnicodeError):
        return str(error)  # tells the position, not the text
    if len(args) != 1:
        return _brief(args)
    only = args[0]
    is_text = type(only) is str and not isinstance(error, KeyError)
    return only if is_text else _brief(only)


#: Arguments up to this size are formatted in full.
_LIGHT = 65_536


def _is_light(args: tuple[Any, ...]) -> bool:
    return _weigh(args, _LIGHT, 0) >= 0


def _weigh(value: Any, left: int, depth: int) -> int:
    """What remains of ``left`` after the characters, bytes and items in ``value``."""
    kind = type(value)
    if kind in _TEXTS:
        return left - len(value)
    if kind not in _CONTAINERS:
        return left - 1
    left -= len(value)
    for item in _flat(value):
        if left < 0 or depth > 20:
            return -1
        left = _weigh(item, left, depth + 1)
    return left


_TEXTS = frozenset({str, bytes, bytearray})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


def _flat(container: Any) -> Iterator[Any]:
    if type(container) is dict:
        return (part for pair in container.items() for part in pair)
    items: Iterator[Any] = iter(container)
    return items


def _brief(value: Any, depth: int = 0) -> str:
    """Like repr, of the first few items and characters; other objects by their type alone."""
    kind = type(value)
    if kind in _TEXTS:
        rest = f"... ({len(value):,} long)" if len(value) > 200 else ""
        return repr(value[:200]) + rest
    if kind in (int, float, bool, type(None)):
        return repr(value)
    if kind not in _CONTAINERS or depth > 3:
        return f"<{kind.__qualname__}>"
    items = [_brief(item, depth + 1) for item in islice(_flat(value), 10)]
    rest = ", ..." if len(value) > 10 else ""
    return f"{kind.__name__} of {len(value):,}: {', '.join(items)}{rest}"


# --- the traceback --------------------------------------------------------------------------------


class _Budget:
    """How many more errors may be shown, and which have been: causes can form a ring."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.seen: set[int] = set()

    def take(self, error: BaseException) -> bool:
        if self.left <= 0 or id(error) in self.seen:
            return False
        self.left -= 1
        self.seen.add(id(error))
        return True


def _chain(error: BaseException, budget: _Budget, depth: int) -> Iterator[str]:
    """The causes of ``error`` from the first to ``error`` itself, as Python prints them."""
    links: list[tuple[BaseException, str]] = []
    one: BaseException | None = error
    link = ""
    while one is not None and budget.take(one):
        links.append((one, link))
        one, link = _before(one)
    if one is not None:
        yield "(earlier causes left out)\n\n"
    for one, link in reversed(links):
        yield from _single(one, budget, depth)
        if link:
            yield f"\n{link}\n\n"


def _before(error: BaseException) -> tuple[BaseException | None, str]:
    """The error that came before, and the sentence that Python puts between the two."""
    cause = _get(error, "__cause__")
    if cause is not None:
        return cause, _CAUSE
    if _get(error, "__suppress_context__"):
        return None, ""
    return _get(error, "__context__"), _CONTEXT


def _single(error: BaseException, budget: _Budget, depth: int) -> Iterator[str]:
    frames = _frames(_get(error, "__traceback__"))
    if frames:
        yield "Traceback (most recent call last):\n"
        yield from _format_frames(frames)
    message = _message(error)
    yield _type_name(error) + (f": {message}\n" if message else "\n")
    yield from _notes(error)
    yield from _group(error, budget, depth)


_Frame = tuple[FrameType, int]


def _frames(found: TracebackType | None) -> list[_Frame]:
    """The frames of a traceback with their lines, outermost first, without ours at the start.

    An error that only our own frames saw (a handler called with the wrong arguments, a bug of
    ours) keeps them: without any, nobody could tell where it comes from.
    """
    frames = list(traceback.walk_tb(found))
    ours = 0
    while ours < len(frames) and frames[ours][0].f_code.co_filename.startswith(_OUR_FOLDER):
        ours += 1
    return frames[ours:] or frames


def _format_frames(frames: list[_Frame]) -> Iterator[str]:
    left_out = len(frames) - 2 * _FRAMES
    if left_out <= 0:
        yield from _format_all(frames)
        return
    yield from _format_all(frames[:_FRAMES])
    yield f"  ... {left_out:,} frames left out ...\n"
    yield from _format_all(frames[-_FRAMES:])


def _format_all(frames: list[_Frame]) -> list[str]:
    # Without the carets under each line: finding their place costs five times the rest, and a
    # pool may fail thousands of tasks a second.
    return traceback.StackSummary.extract(iter(frames), limit=len(frames)).format()


def _notes(error: BaseException) -> Iterator[str]:
    try:
        notes = error.__notes__
    except BaseException:
        return  # there are none, or it is a property that fails
    if type(notes) is list:
        for note in notes[:_NOTES]:
            yield (_cut(note, MESSAGE_CHARS) if type(note) is str else _brief(note)) + "\n"


def _group(error: BaseException, budget: _Budget, depth: int) -> Iterator[str]:
    """The errors of a group, each indented under its number."""
    members = _members(error)
    for number, member in enumerate(members, 1):
        if depth >= _GROUPS_DEEP or budget.left <= 0:
            yield f"({len(members) - number + 1:,} errors of the group left out)\n"
            return
        yield f"+---------------- {number} ----------------\n"
        for piece in _chain(member, budget, depth + 1):
            yield "".join(f"| {line}" for line in piece.splitlines(keepends=True))


# --- cutting --------------------------------------------------------------------------------------


def _cut(text: str, chars: int) -> str:
    """At most ``chars`` characters of ``text``, as a plain str even if it is of a subclass."""
    length = str.__len__(text)
    if length <= chars:
        return str.__str__(text)
    note = f"... ({length:,} characters)"
    return str.__getitem__(text, slice(chars - len(note))) + note


def _cut_middle(text: str, limit: int) -> str:
    """At most ``limit`` bytes: the start and the end, with a note of how much is missing."""
    data = text.encode()
    if len(data) <= limit:
        return text
    note = f"\n... {len(data) - limit:,} bytes left out ...\n".encode()
    room = limit - len(note)
    if room <= 0:
        return _whole(data[: max(limit, 0)])
    head, tail = data[: room // 2], data[len(data) - (room - room // 2) :]
    return _whole(head) + note.decode() + _whole(tail)


def _whole(data: bytes) -> str:
    """The text in ``data`` without a character that was cut in half."""
    return data.decode(errors="ignore")


def _clean(text: str) -> str:
    """``text`` with ``?`` for what UTF-8 has no form for (lone surrogates)."""
    return text.encode(errors="replace").decode()

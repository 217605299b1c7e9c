"""From a call to what the submit script takes: envelope, placing, key and unique digest.

Pure: it asks and sends nothing, so whatever is wrong with a call is raised in the caller.
"""

from __future__ import annotations

import inspect
import math
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from . import dependencies, limiting, message, options, payload
from .codecs import Codec
from .errors import ConfigError
from .limiting import Limit
from .store import Submission
from .tasks import Call, NoApp, Task, check_redact, previous

#: Options of the task that travel with every call, because readers need them as well as the worker.
_ALWAYS = ("expires", "headers", "tags")
_MODES = {"until_done": "d", "until_start": "s"}
_ON_DUPLICATE = {"raise": "x", "return": "r", "replace": "p"}


def prepare(
    call: Call[Any], uid: str, limit: int, codec: Codec | None = None
) -> tuple[str, Submission]:
    """The pool and the submission of a call, sealed by ``codec`` if there is one. ``uid`` is used
    where the call gives no id.

    Raises PayloadError, PayloadTooLarge (over ``limit`` bytes), ConfigError.
    """
    task = call.task
    own, placing = task.own, ""
    pool, uid = task.option("pool", "default"), own.get("id") or uid
    waits = dependencies.waits_of(own, pool, uid) if own else None
    extras: dict[str, Any] = {}
    if not task.plain:
        extras, priority, when, lock = _what_travels(call)
        if "_map" in own:
            extras["map"] = _template(*own["_map"])
        if waits is not None:
            if when == "-" and "expires" in extras:
                when = "+0"  # due when it has waited: it expires from then on
            placing = f"{priority} {when} {lock} {waits.letters}"
            if "_workflow" in own:
                placing += "W" if own.keys() & {"_map", "_part"} else "w"
        elif priority or lock != "-" or when != "-":
            placing = f"{priority} {when} {lock}"
    if waits is None:
        body = message.envelope(task.head, call.args, call.kwargs, extras, limit)
        if codec is not None:
            body = message.seal_call(body, codec)
        return pool, Submission(uid, body, placing)
    extras |= dependencies.extras_of(waits, own.get("_workflow"))
    body = message.envelope(
        task.head, call.args, call.kwargs, extras, limit,
        limit + dependencies.BYTES_A_PARENT * len(waits.parents),
    )
    if codec is not None:
        body = message.seal_call(body, codec)
    return pool, Submission(uid, body, placing, waits)


def _what_travels(
    call: Call[Any], limited: bool = True
) -> tuple[dict[str, Any], int, str, str]:
    """The extras of a call but for what it waits for; and its placing, see ``_placing``, with the
    limits behind the lock where ``limited``."""
    task = call.task
    extras = {name: value for name in _ALWAYS if (value := task.option(name)) is not None}
    extras |= options.extras_of(task.own)
    key = task.option("key")
    if key is not None:
        extras["key"] = format_key(key, call)
    if task.option("redact"):
        extras["redact"] = redacted(call, task.option("redact"))
    if task.unplaced:
        extras["unplaced"] = True
    priority, when, lock = _placing(task, call, extras.get("key"))
    if limited:
        lock += _limits(call, extras)
    if priority or lock != "-":
        # A resubmit gives it the same place, the same lock and the same limits again.
        extras["placing"] = f"{priority} - {lock}"
    return extras, priority, when, lock


def _template(call: Call[Any], source: str | int) -> dict[str, Any]:
    """What a map step's envelope says of the tasks that it makes, one for each item of the result
    of ``source``; see spreading.py. ``previous`` stands where the item goes."""
    by_item = _limits_by_item(call)
    extras, priority, when, lock = _what_travels(call, limited=by_item is None)
    places: list[int | str] = [at for at, one in enumerate(call.args) if one is previous]
    places += [name for name, one in call.kwargs.items() if one is previous]
    plain = priority == 0 and when == lock == "-"
    return {
        "source": source, "at": places, "extras": extras,
        "args": [None if at in places else one for at, one in enumerate(call.args)],
        "kwargs": {at: None if at in places else one for at, one in call.kwargs.items()},
        "placing": "" if plain and not by_item else f"{priority} {when} {lock}",
        **({"limits": by_item} if by_item else {}),
    }


def _limits_by_item(call: Call[Any]) -> dict[str, Any] | None:
    """The limits of a call for each item of a list, where a key names the item: as plain values,
    with what else the keys name. None where all items have the same keys, or there is no limit."""
    limits = call.task.option("limit") or ()
    names = {name for one in limits for name in limiting.names_in(one.key)}
    if not names:
        return None
    bound = _arguments(call)
    named = {name: bound[name] for name in names if name in bound}
    given = {at for at, one in enumerate(call.args) if one is previous}
    of_item = [name for name, value in named.items() if value is previous]
    if not of_item and not any(name.isdigit() and int(name) in given for name in names):
        return None
    return {
        "rows": limiting.rows(limits), "item": of_item,
        "values": {name: value for name, value in named.items() if value is not previous},
        "hidden": list(call.task.option("redact") or ()),
    }


def format_key(key: str, call: Call[Any]) -> str:
    """``key`` with the call's arguments filled in: ``"u{to}"`` -> ``"ua@example.com"``."""
    if "{" not in key:
        return key
    return _formatted(key, call, _arguments(call))


def _formatted(key: str, call: Call[Any], arguments: dict[str, Any]) -> str:
    try:
        return key.format(*call.args, **arguments)
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"key={key!r} names what the call does not have: {error} (arguments of "
            f"{call.task.name}: {', '.join(arguments) or 'none'})"
        ) from None


def redacted(call: Call[Any], names: Iterable[str]) -> list[int | str]:
    """Where the arguments called ``names`` are in a call: positions, and names of keywords.

    A call by name alone has no signature: all that is positional counts as named. Raises
    ConfigError for a name that no parameter has.
    """
    function, hidden = call.task.function, set(names)
    if function is None:
        return [*range(len(call.args)), *(name for name in call.kwargs if name in hidden)]
    parameters = _signature(function).parameters
    check_redact(call.task.name, function, hidden)
    places: list[int | str] = [name for name in call.kwargs if name in hidden]
    for at, parameter in enumerate(parameters.values()):
        if parameter.name not in hidden:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            places += range(at, len(call.args))
        elif parameter.kind is parameter.VAR_KEYWORD:
            places += [name for name in call.kwargs if name not in parameters]
        elif parameter.kind is not parameter.KEYWORD_ONLY and at < len(call.args):
            places.append(at)
    return places


def unique_digest(call: Call[Any], key: str | None) -> str:
    """What makes a call the same as another: its key, or its bound arguments with defaults.

    Types count: 1, 1.0, True and "1" differ. The order of keyword arguments does not. A call by
    name alone has no signature to bind to; it equals others that are written the same way.
    """
    same = ["key", key] if key is not None else ["arguments", _bound(call)]
    digest = blake2b(payload.canonical([call.task.name, *same]), digest_size=16).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _placing(
    task: Task[..., Any], call: Call[Any], key: str | None
) -> tuple[int, str, str]:
    """Priority, when and unique lock, as the options of submit.lua spell them."""
    priority = task.option("priority", 0)
    delay, at = task.option("delay"), task.option("at")
    if "at" in task.own:
        delay = None
    unique = task.option("unique")
    when = "-"
    if delay is not None:
        when = f"+{round(delay * 1000)}"
    elif at is not None:
        # Rounded up: a task never starts before its time.
        when = f"@{math.ceil(at * 1000)}"
    lock = "-"
    if unique is not None:
        mode, window_ms = _MODES.get(unique, "w"), 0
        if mode == "w":
            window_ms = max(1, round(unique * 1000))
        what = _ON_DUPLICATE[task.option("on_duplicate", "raise")]
        lock = f"{mode}:{what}:{window_ms}:{unique_digest(call, key)}"
    return priority, when, lock


def limits_by_name(
    name: str, function: Callable[..., Any] | None, limits: tuple[Limit, ...],
    args: Sequence[Any], kwargs: dict[str, Any],
) -> str:
    """The same for a call whose producer knew of no limit, as the options of submit.lua have it; ""
    where its key can not be filled in: it must not be lost for that."""
    task: Task[..., Any] = Task(
        app=NoApp(), name=name, function=function, defaults={"limit": limits}
    )
    try:
        return _limits(Call(task, tuple(args), kwargs), {})
    except ConfigError:
        return ""


def _limits(call: Call[Any], extras: dict[str, Any]) -> str:
    """What the options of submit.lua say of a call's limits, a blank before it, or "". Readers find
    names and keys in the envelope."""
    task = call.task
    limits = task.option("limit")
    if not limits:
        return ""
    _refuse_filled(call, limits)
    bound: list[dict[str, Any]] = []  # once a call, whatever the number of keys

    def fill(key: str) -> str:
        if "{" not in key:
            return key
        if not bound:
            bound.append(_arguments(call))
        return _formatted(key, call, bound[0])

    rows = limiting.shown(limits, task.name, fill, task.option("redact") or ())
    if rows:
        extras["limits"] = rows
    return " " + limiting.placing_of(limits, task.name, fill)


def _refuse_filled(call: Call[Any], limits: Iterable[Limit]) -> None:
    """A key can not name what is known only when another step has its result."""
    function, filled = call.task.function, set()
    for at, _ in call.task.own.get("_fill") or ():
        filled.add(str(at))
        parameters = [] if function is None else list(_signature(function).parameters)
        if isinstance(at, int) and at < len(parameters):
            filled.add(parameters[at])
    for one in limits:
        if named := filled & limiting.names_in(one.key):
            raise ConfigError(
                f"key={one.key!r} of a limit of {call.task.name} names {min(named)!r}, which is "
                "the result of another step: it is not known when the task is submitted"
            )


def _bound(call: Call[Any]) -> Any:
    function = call.task.function
    if function is None:
        return [list(call.args), call.kwargs]
    try:
        bound = _signature(function).bind(*call.args, **call.kwargs)
    except TypeError as error:
        raise ConfigError(f"{call.task.name} can not be called like this: {error}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


@lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Reading it costs more than all else of a submit."""
    return inspect.signature(function)


def _arguments(call: Call[Any]) -> dict[str, Any]:
    bound = _bound(call)
    return bound if isinstance(bound, dict) else dict(call.kwargs)

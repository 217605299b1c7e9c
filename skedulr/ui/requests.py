"""Requests: bodies and parameters read in a bounded way, each refusal a Problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from .plain import parse
from .problems import Problem

#: Beside the arguments a submit may take this much, bytes.
OVERHEAD_BYTES = 65_536
_CHUNK = 65_536


def read_json(environ: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The object a request carries, {} for an empty body; 400, 413, 415."""
    _expect_type(environ, "application/json")
    body = read_body(environ, limit)
    try:
        value = parse(body) if body.strip() else {}
    except ValueError as error:
        raise Problem(400, "bad_json", f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Problem(400, "bad_json", "the body is to be a JSON object: {...}")
    return value


def read_form(environ: Mapping[str, Any], limit: int = 262_144) -> dict[str, list[str]]:
    """The fields of a form, all values of each; 400, 413, 415."""
    _expect_type(environ, "application/x-www-form-urlencoded")
    body = read_body(environ, limit)
    try:
        return parse_qs(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=1000, errors="strict"
        )
    except ValueError:
        raise Problem(400, "bad_form", "the form can not be read") from None


def read_body(environ: Mapping[str, Any], limit: int) -> bytes:
    """The whole body, of at most ``limit`` bytes; 413 as soon as it is known to be larger."""
    text = environ.get("CONTENT_LENGTH") or ""
    if text and not text.isdecimal():
        raise Problem(400, "bad_request", f"Content-Length {text[:40]!r} is no number")
    # Without a length only a server that ends chunked bodies itself can be read to the end.
    length = int(text) if text else limit + 1 if environ.get("wsgi.input_terminated") else 0
    if text and length > limit:
        raise _too_large(limit)
    pieces, read = [], 0
    while read < length:
        piece = environ["wsgi.input"].read(min(_CHUNK, length - read))
        if not piece:
            break
        pieces.append(piece)
        read += len(piece)
    if read > limit:
        raise _too_large(limit)
    if text and read < length:
        raise Problem(400, "bad_request", "the body ended before its Content-Length")
    return b"".join(pieces)


def number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query string; 400 outside of ``least`` to ``most``."""
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
        raise Problem(400, "bad_parameter", f"{name}={text[:40]!r}: a number {least} to {most}")
    return int(text)


def only(given: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    """400 for a parameter nobody would look at: a typing error must not widen a selection."""
    for name in given:
        if name not in known:
            text = f"{what} takes no {name[:60]!r}; it takes {', '.join(known) or 'nothing'}"
            raise Problem(400, "unknown_parameter", text)


def _expect_type(environ: Mapping[str, Any], wanted: str) -> None:
    given = _type_of(environ)
    if given != wanted:
        raise Problem(
            415, "unsupported_type",
            f"a change needs Content-Type: {wanted}, not {given[:80] or 'none'}",
        )


def _type_of(environ: Mapping[str, Any]) -> str:
    return str(environ.get("CONTENT_TYPE") or "").partition(";")[0].strip().lower()


def _too_large(limit: int) -> Problem:
    return Problem(413, "too_large", f"the body may have {limit:,} bytes")

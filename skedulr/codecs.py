"""Codecs: arguments and results signed, or encrypted, so that who can write to Redis can not make
your workers run what your producers did not send.

- ``SigningCodec``: an HMAC by one of several keys. Everything stays readable.
- ``EncryptingCodec``: encrypted (the extra ``crypto``). Names, options, tags and keys of tasks stay
  readable, and so do errors and tracebacks.

Both seal a call's arguments together with its name and options, and a result together with its
task's name; neither says that a call was not stored twice, or under another id. The first key seals
and all open, so keys are changed in two steps: add the new one behind, then put it first.

A codec turns ``(about, data)`` into bytes that only it could have made, and back. Yours needs the
same two methods. Equal calls must give equal bytes: that is how a repeated submit is known.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256, sha512
from pathlib import Path
from typing import Protocol

from .errors import ConfigError, PayloadError

#: Shorter keys can be guessed, bytes.
SHORTEST_KEY = 16
_SIGNED, _ENCRYPTED = b"S", b"E"
_ID, _MAC = 4, 32


class Codec(Protocol):
    """What seals and opens. Both must be safe to call from any thread."""

    def seal(self, about: bytes, data: bytes) -> bytes:
        """``data``, bound to ``about``, in a form that ``open`` can tell from any other."""
        ...

    def open(self, about: bytes, sealed: bytes) -> bytes:
        """What was sealed; raises PayloadError for anything else, or under another ``about``."""
        ...


class SigningCodec:
    """Signs with HMAC-SHA256; 37 bytes a value. Raises ConfigError for a key that is too short.

    ``keys``: texts or bytes of 16 bytes or more; the first signs, all verify.

    >>> codec = SigningCodec(["a long and secret text", "the one of last year"])
    >>> codec.open(b"mail", codec.seal(b"mail", b"data"))
    b'data'
    >>> codec.open(b"mail", codec.seal(b"bill", b"data"))
    Traceback (most recent call last):
    skedulr.errors.PayloadError: the signature is not right
    """

    def __init__(self, keys: Iterable[str | bytes]) -> None:
        self._keys = {_key_id(key): key for key in map(_checked, _several(keys))}
        self._first = next(iter(self._keys))

    @classmethod
    def from_file(cls, path: str | Path) -> SigningCodec:
        """Keys from a file, one a line; empty lines and lines that begin with ``#`` do not
        count."""
        return cls(_lines(path))

    def seal(self, about: bytes, data: bytes) -> bytes:
        """``data`` with its signature before it."""
        return _SIGNED + self._first + self._sign(self._first, about, data) + data

    def open(self, about: bytes, sealed: bytes) -> bytes:
        """``data`` again; PayloadError."""
        id, signature = sealed[1:1 + _ID], sealed[1 + _ID:1 + _ID + _MAC]
        data = sealed[1 + _ID + _MAC:]
        if sealed[:1] != _SIGNED:
            raise PayloadError("it is not signed but sealed in another way")
        if id not in self._keys:
            raise PayloadError(f"it is signed by a key that is not known here ({id.hex()})")
        if not hmac.compare_digest(self._sign(id, about, data), signature):
            raise PayloadError("the signature is not right")
        return data

    def _sign(self, id: bytes, about: bytes, data: bytes) -> bytes:
        # The length keeps a byte from moving over from one part to the other.
        head = len(about).to_bytes(4, "big")
        return hmac.digest(self._keys[id], head + about + data, sha256)


class EncryptingCodec:
    """Encrypts with AES-256-SIV (RFC 5297); needs the extra ``crypto``. 21 bytes a value.

    Equal values give equal bytes, which tells an onlooker that they are equal and nothing else; a
    cipher that hides that would make a repeated submit another task. ``keys`` as of SigningCodec;
    the first encrypts, all decrypt. Raises ConfigError.

    >>> app = skedulr.Skedulr(codec=EncryptingCodec(["a long and secret text"]))   # doctest: +SKIP
    """

    def __init__(self, keys: Iterable[str | bytes]) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV
        except ImportError:
            raise ConfigError(
                'EncryptingCodec needs cryptography: pip install "skedulr[crypto]"'
            ) from None
        self._ciphers = {
            _key_id(key): AESSIV(sha512(b"skedulr cipher " + key).digest())
            for key in map(_checked, _several(keys))
        }
        self._first = next(iter(self._ciphers))

    @classmethod
    def from_file(cls, path: str | Path) -> EncryptingCodec:
        """Keys from a file, as ``SigningCodec.from_file``."""
        return cls(_lines(path))

    def seal(self, about: bytes, data: bytes) -> bytes:
        """``data`` encrypted, for ``about`` alone."""
        token: bytes = self._ciphers[self._first].encrypt(data, [about])
        return _ENCRYPTED + self._first + token

    def open(self, about: bytes, sealed: bytes) -> bytes:
        """``data`` again; PayloadError."""
        from cryptography.exceptions import InvalidTag

        cipher = self._ciphers.get(sealed[1:1 + _ID])
        if sealed[:1] != _ENCRYPTED:
            raise PayloadError("it is not encrypted but sealed in another way")
        if cipher is None:
            raise PayloadError(
                f"it is encrypted with a key that is not known here ({sealed[1:1 + _ID].hex()})"
            )
        try:
            data: bytes = cipher.decrypt(sealed[1 + _ID:], [about])
        except InvalidTag:
            raise PayloadError(
                "it can not be decrypted: tampered with, or made for another task"
            ) from None
        return data


#: How settings name the codecs: ``sign:FILE``, ``encrypt:FILE``.
KINDS: Mapping[str, type[SigningCodec] | type[EncryptingCodec]] = {
    "sign": SigningCodec, "encrypt": EncryptingCodec,
}


def codec_of(text: str | None) -> Codec | None:
    """The codec that a setting names, ``sign:FILE`` or ``encrypt:FILE``; None for None. Raises
    ConfigError."""
    if text is None:
        return None
    kind, _, file = text.partition(":")
    if kind not in KINDS or not file:
        raise ConfigError(f"codec={text!r} is not usable: sign:FILE or encrypt:FILE")
    return KINDS[kind].from_file(file)


def readable(sealed: bytes) -> bytes | None:
    """The data in what was merely signed, unverified, for showing; None for anything else."""
    return sealed[1 + _ID + _MAC:] if sealed[:1] == _SIGNED else None


def _several(keys: Iterable[str | bytes]) -> list[str | bytes]:
    if isinstance(keys, str | bytes):
        raise ConfigError("the keys of a codec are a list, also where there is one")
    found = list(keys)
    if not found:
        raise ConfigError("a codec needs at least one key")
    return found


def _checked(key: str | bytes) -> bytes:
    raw = key.encode() if isinstance(key, str) else key
    if not isinstance(raw, bytes) or len(raw) < SHORTEST_KEY:
        raise ConfigError(f"a key of SigningCodec is a text of {SHORTEST_KEY} bytes or more")
    return raw


def _key_id(key: str | bytes) -> bytes:
    raw = _checked(key)
    return sha256(b"skedulr key " + raw).digest()[:_ID]


def _lines(path: str | Path) -> list[str | bytes]:
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"the keys in {path} can not be read: {why}") from None
    return [line.strip() for line in text.splitlines() if re.match(r"\s*[^#\s]", line)]

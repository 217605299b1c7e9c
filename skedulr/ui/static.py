"""Static: the style, scripts and vendored libraries, from memory, compressed, kept by browsers.

An address carries a digest of what it names, so that a browser keeps it for ever and a new release
is seen at once.
"""

from __future__ import annotations

import gzip
import mimetypes
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import bottle

FOLDER = Path(__file__).parent / "static"
#: Smaller files are not worth compressing, bytes.
_SMALL = 512


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    body: bytes
    packed: bytes | None
    digest: str
    type: str


@cache
def assets() -> dict[str, Asset]:
    """Every file by its path below the folder."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and path.suffix in (".css", ".js", ".svg", ".json", ".txt"):
            found[path.relative_to(FOLDER).as_posix()] = _asset(path)
    return found


def _asset(path: Path) -> Asset:
    body = path.read_bytes()
    packed = gzip.compress(body, 9, mtime=0) if len(body) > _SMALL else None
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    if path.suffix == ".js":
        kind = "text/javascript"
    return Asset(body, packed, sha256(body).hexdigest()[:12], f"{kind}; charset=utf-8")


def address(base: str, name: str) -> str:
    """Where a browser finds a file, with its digest."""
    return f"{base}/static/{name}?v={assets()[name].digest}"


def serve(name: str) -> bottle.HTTPResponse:
    """The answer to a request for a file; only those found at start can be asked for."""
    asset = assets().get(name)
    if asset is None:
        raise bottle.HTTPError(404)
    request = bottle.request
    known = request.query.get("v") == asset.digest
    headers = {
        "Content-Type": asset.type, "ETag": f'"{asset.digest}"', "Vary": "Accept-Encoding",
        "Cache-Control": "public, max-age=31536000, immutable" if known else "no-cache",
    }
    if f'"{asset.digest}"' in request.get_header("If-None-Match", ""):
        return bottle.HTTPResponse(b"", 304, headers)
    packed = asset.packed if "gzip" in request.get_header("Accept-Encoding", "") else None
    if packed is not None:
        headers["Content-Encoding"] = "gzip"
    return bottle.HTTPResponse(packed or asset.body, 200, headers)

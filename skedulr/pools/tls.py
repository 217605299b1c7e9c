"""TLS for native threads: the ssl module's memory buffers around a raw socket.

A patched ``ssl`` wraps gevent's sockets; its ``wrap_bio`` touches no socket at all, so it does in a
thread without a hub what it does elsewhere.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any


def context_of(options: Mapping[str, Any]) -> ssl.SSLContext:
    """The context that redis-py would make of an address's ``ssl_*`` options."""
    context = ssl.create_default_context(
        cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path"),
        cadata=options.get("ssl_ca_data"),
    )
    if not options.get("ssl_check_hostname", True):
        context.check_hostname = False
    required = str(options.get("ssl_cert_reqs", "required"))
    if required != "required":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_OPTIONAL if required == "optional" else ssl.CERT_NONE
    if options.get("ssl_certfile"):
        context.load_cert_chain(
            options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
        )
    if options.get("ssl_ciphers"):
        context.set_ciphers(options["ssl_ciphers"])
    if options.get("ssl_min_version"):
        context.minimum_version = ssl.TLSVersion(int(options["ssl_min_version"]))
    return context


class TlsSocket:
    """What an exchange needs of a socket, over TLS on a connected raw one."""

    def __init__(self, raw: Any, context: ssl.SSLContext, host: str) -> None:
        self._raw = raw
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def handshake(self) -> None:
        """Agree with the server; OSError (ssl.SSLError among them) where that fails."""
        self._until_done(self._object.do_handshake)

    def settimeout(self, timeout_s: float) -> None:
        """Of each wait for the server."""
        self._raw.settimeout(timeout_s)

    def send(self, data: bytes) -> int:
        """Send all of it; how much that was."""
        self.sendall(data)
        return len(data)

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of it."""
        self._until_done(lambda: self._object.write(data))
        self._flush()

    def recv_into(self, room: bytearray) -> int:
        """Read what is there, waiting for the first of it; how many bytes, 0 at the end."""
        try:
            count: int = self._until_done(lambda: self._object.read(len(room), room))
        except ssl.SSLZeroReturnError:
            return 0
        return count

    def close(self) -> None:
        """Close the socket under it."""
        self._raw.close()

    def _until_done(self, step: Any) -> Any:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._raw.recv(65536)
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self._flush()
                return done

    def _flush(self) -> None:
        pending = self._outgoing.read()
        if pending:
            self._raw.sendall(pending)

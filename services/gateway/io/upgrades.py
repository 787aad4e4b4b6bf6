"""Requests that would also be content with another protocol: read on as what they are in this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import httptools

UpgradeAsked = httptools.HttpParserUpgrade
"""Its argument is how many of the bytes that a parser was fed are the head, and what came before."""
NoHttp = httptools.HttpParserError

_FRAMING = (b"content-length", b"transfer-encoding")


class Hearer(Protocol):
    """What a parser calls."""

    def on_message_begin(self) -> None: ...

    def on_url(self, url: bytes) -> None: ...

    def on_header(self, name: bytes, value: bytes) -> None: ...

    def on_headers_complete(self) -> None: ...

    def on_body(self, body: bytes) -> None: ...

    def on_message_complete(self) -> None: ...


def parser_of_the_rest(protocol: Hearer) -> httptools.HttpRequestParser:
    """A parser takes what follows the head of such a request for the other protocol, and reports no body. This one
    tells `protocol` what follows; it is fed with `framing` first."""
    return httptools.HttpRequestParser(_Rest(protocol))


def framing(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """As much of a head as says where the body ends."""
    lines = [b"%b: %b\r\n" % (name, value) for name, value in headers if name in _FRAMING]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines)


class _Rest:
    """Hears a parser, and passes on what comes after the first head."""

    def __init__(self, protocol: Hearer) -> None:
        self._protocol = protocol
        self._is_known = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._is_known:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_known:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_known:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_known:
            self._protocol.on_headers_complete()
        self._is_known = False

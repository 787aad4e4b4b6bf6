"""Requests as they come in through a connection, taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import unquote

import httptools
import msgspec

from services.gateway.core.refusal import Refusal
from services.gateway.io.turning_out import NO_HOST, NO_HTTP, too_many_headers

_FRAMING = (b"content-length", b"transfer-encoding")
_VERSIONS = ("1.1", "1.0")
_MOST_HEADERS = 256


class NoHttp(Exception):
    """What came is no request as this gateway takes it."""

    def __init__(self, why: Refusal = NO_HTTP) -> None:
        super().__init__(why.message)
        self.why = why


class Head(msgspec.Struct, frozen=True):
    """Of a request. `headers` have names in lower case; `expects`: the body is sent when it is asked for."""

    method: str
    version: str
    path: str
    raw_path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    size_bytes: int
    keeps_alive: bool
    expects: bool


class Hearer(Protocol):
    """What is told of them."""

    def hear_head(self, head: Head) -> None: ...

    def hear_body(self, body: bytes) -> None: ...

    def hear_end(self) -> None: ...


class Reading:
    """One request after the other, up to one that is to be the last: what comes after that is dropped. `in_head`: one
    has begun, and its head is not whole. `is_between`: all that began is whole, and another reading may take the
    next. `pending_bytes` came since there was a whole head, an end, or anything of a body: the parser may hold them."""

    __slots__ = (
        "_expects", "_headers", "_hearer", "_hosts", "_parser", "_told", "_url", "in_head", "is_between",
        "pending_bytes",
    )  # fmt: skip

    def __init__(self, hearer: Hearer) -> None:
        self._hearer = hearer
        self._parser = _parser_for(self)
        self._told = False
        self.in_head = False
        self.is_between = True
        self.pending_bytes = 0

    @property
    def in_body(self) -> bool:
        return not self.in_head and not self.is_between

    def feed(self, data: bytes) -> None:
        """Raises NoHttp, and whatever the hearer raises."""
        self._told, size_bytes = False, len(data)
        try:
            while data:
                data = self._parse(data)
        except httptools.HttpParserCallbackError as error:
            raise (error.__context__ or error) from None  # the parser wraps what is raised while it calls
        except httptools.HttpParserError as error:
            raise NoHttp from error
        self.pending_bytes = 0 if self._told else self.pending_bytes + size_bytes

    def _parse(self, data: bytes) -> bytes:
        """What is left of it for another parser."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as asked:  # for HTTP/2, by Java's clients with each first request
            self._parser = _parser_for(_Rest(self))
            return _framing(self._headers) + data[asked.args[0] :]
        return b""

    def on_message_begin(self) -> None:
        self.in_head, self.is_between = True, False
        self._url, self._headers, self._hosts, self._expects = b"", [], 0, False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:
            return  # it came behind the body, where whoever looked at the head did not see it
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self._expects = True
        self._headers.append((name, value))
        if len(self._headers) > _MOST_HEADERS:
            raise NoHttp(too_many_headers(_MOST_HEADERS))

    def on_headers_complete(self) -> None:
        self._told = True
        self._hearer.hear_head(self._head())
        self.in_head = False

    def _head(self) -> Head:
        """Raises NoHttp."""
        parser, headers, version = self._parser, self._headers, self._parser.get_http_version()
        path, query = _target(self._url)
        if version not in _VERSIONS:
            raise NoHttp
        if version == "1.1" and self._hosts != 1:
            raise NoHttp(NO_HOST)
        size_bytes = len(self._url) + sum([len(name) + len(value) + 4 for name, value in headers])
        return Head(
            parser.get_method().decode(), version, unquote(path.decode("ascii")), path, query, headers, size_bytes,
            parser.should_keep_alive(), self._expects,
        )  # fmt: skip

    def on_body(self, body: bytes) -> None:
        self._told = True
        self._hearer.hear_body(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():  # else its body is still to come
            self.is_between, self._told = self._parser.should_keep_alive(), True
            self._hearer.hear_end()


def _target(url: bytes) -> tuple[bytes, bytes]:
    """Its path and query. One in absolute form may do without a path."""
    try:
        target = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError as error:
        raise NoHttp from error
    return target.path or b"/", target.query or b""


def _parser_for(listener: object) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(listener)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _framing(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """As much of a head as says where the body ends."""
    lines = [b"%b: %b\r\n" % (name, value) for name, value in headers if name in _FRAMING]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines)


class _Rest:
    """A parser takes what follows the head of a request for another protocol as that protocol's, and reports no body.
    Another one that is fed with the framing first does: this hears it, and passes on what comes after that head."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._is_known = True
        self.on_body = reading.on_body
        self.on_message_complete = reading.on_message_complete

    def on_message_begin(self) -> None:
        if not self._is_known:
            self._reading.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_known:
            self._reading.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_known:
            self._reading.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_known:
            self._reading.on_headers_complete()
        self._is_known = False

"""What the gateway's connections speak: HTTP/1.1 that sends each token at once, to so many clients and no more."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from services.gateway.core import refusal
from services.gateway.core.refusal import Refusal
from services.gateway.io.line import EXTENSION, Line, Turn, line_of
from services.gateway.io.upgrades import NoHttp, UpgradeAsked, framing, parser_of_the_rest
from shared.runtime.bell import Bell

_TO_BE_TOLD = 512
"""Connections beyond the most that are let in to hear that there are too many; those beyond them are just closed."""


class ConnectionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`most` connections at once. Each has `head_s` from the first byte of a request until its head is whole, of
    `largest_head_bytes` at most, and is closed once it is idle for `keep_alive_s`, before its first request as well, or
    has had something to send for `slow_write_s` and could not."""

    most: int = 16_000
    largest_head_bytes: int = 64 << 10
    head_s: float = 10.0
    keep_alive_s: float = 75.0
    slow_write_s: float = 30.0


class PromptProtocol(HttpToolsProtocol):
    """HTTP/1.1 over sockets that send each token at once, and give up on a client that stopped reading.

    With Nagle's algorithm on, a kept-alive connection would hold each first token back until the client's
    delayed acknowledgement, about 40 ms. The kernel's user timeout drops a connection that has had
    something to send for `slow_write_s` and could not: nothing in the gateway has to watch for it.

    Each request has its line: tokens need no task to be written, and a client that leaves none to be noticed.
    """

    policy = ConnectionPolicy()
    turn = Turn()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.timeout_keep_alive = self.policy.keep_alive_s  # type: ignore[assignment]  # a number of seconds for a timer
        self._head_bytes = 0
        self._head_due: asyncio.TimerHandle | None = None
        self._begun: tuple[RequestResponseCycle, ...] = ()
        """The request that is answered, and those that were sent without waiting for its end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self.policy.slow_write_s * 1000))
        super().connection_made(transport)
        self._is_idle()
        if len(self.connections) > self.policy.most + _TO_BE_TOLD:
            transport.abort()
        elif len(self.connections) > self.policy.most:
            self.app = _refuser(refusal.unavailable(_too_many(self.policy.most), code="too_many_connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_over()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # the server leaves it, and with it all of this, if the connection broke
        for cycle in self._begun:
            cycle.disconnected = True  # the server says so to the last of them
            line_of(cycle.scope).lose()

    def resume_writing(self) -> None:
        super().resume_writing()
        for cycle in self._begun:
            line_of(cycle.scope).make_room()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._head_due is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self.policy.largest_head_bytes:
                self._turn_out(_head_too_large(self.policy.largest_head_bytes))
        elif not self._begun and self.timeout_keep_alive_task is None:
            self._is_idle()  # what came began no request: the end of a line, or of a body that was refused

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                return
            except UpgradeAsked as asked:  # for HTTP/2, by Java's clients with each first request
                self.parser = parser_of_the_rest(self)
                data = framing(self.headers) + data[asked.args[0] :]
            except NoHttp:
                self.send_400_response("")
                return

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():  # else its body is still to come
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._turn_out(refusal.bad_request("This is no HTTP request.", code="invalid_http"))

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        self._head_due = self.loop.call_later(self.policy.head_s, self._head_is_late)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_is_over()
        size_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size_bytes > self.policy.largest_head_bytes:
            self.app = _refuser(_head_too_large(self.policy.largest_head_bytes))
        self.scope["extensions"] = {EXTENSION: Line(self.transport, self.flow, self.turn)}  # type: ignore[typeddict-item]
        super().on_headers_complete()
        self.cycle.message_event = Bell()  # type: ignore[assignment]  # before its task has begun, and smaller
        self._begun = (*self._begun, self.cycle)

    def on_response_complete(self) -> None:
        self._begun = self._begun[1:]
        super().on_response_complete()

    def _is_idle(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(self.policy.keep_alive_s, self.timeout_keep_alive_handler)

    @property
    def _body_is_coming(self) -> bool:
        """Of the only request here, to which nothing was said."""
        return len(self._begun) == 1 and self.cycle.more_body and not self.cycle.response_started

    def _head_is_over(self) -> None:
        due, self._head_due = self._head_due, None
        if due is not None:
            due.cancel()

    def _head_is_late(self) -> None:
        if not self._begun:
            self._turn_out(_head_too_slow(self.policy.head_s))
        else:  # of a request that was sent before the answer to the last one is whole
            self._head_due = self.loop.call_later(self.policy.head_s, self._head_is_late)

    def _turn_out(self, why: Refusal) -> None:
        """An answer to what is no whole request, and the end of the connection."""
        self._head_is_over()
        if not self.transport.is_closing():
            if not self._begun or self._body_is_coming:
                self.transport.write(_answer(why))
            self.transport.close()


def prompt_protocol(policy: ConnectionPolicy) -> type[HttpToolsProtocol]:
    """What a server makes one of for each connection."""
    return type("PolicedProtocol", (PromptProtocol,), {"policy": policy, "turn": Turn()})


def _refuser(why: Refusal) -> Any:
    """An application that says the same to everybody, once."""
    headers = [(name.encode(), value.encode()) for name, value in _headers(why).items()]

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": why.status, "headers": headers})
        await send({"type": "http.response.body", "body": why.envelope})

    return refuse


def _answer(why: Refusal) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in _headers(why).items())
    return f"HTTP/1.1 {why.status} \r\n{head}\r\n".encode() + why.envelope


def _headers(why: Refusal) -> dict[str, str]:
    said = {"content-type": "application/json", "content-length": str(len(why.envelope)), "connection": "close"}
    return {**why.headers, **said}


def _too_many(most: int) -> str:
    return f"This gateway has {most} connections already and takes no more at the moment."


def _head_too_large(largest_bytes: int) -> Refusal:
    message = f"The request line and headers are larger than {largest_bytes} bytes."
    return refusal.bad_request(message, code="headers_too_large", status=431)


def _head_too_slow(head_s: float) -> Refusal:
    message = f"The request's headers did not come within {head_s:g} s."
    return refusal.bad_request(message, code="request_timeout", status=408)

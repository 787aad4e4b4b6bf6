"""What the gateway's connections speak: HTTP/1.1 that sends each token at once."""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def prompt_protocol(slow_write_s: float) -> type[HttpToolsProtocol]:
    """HTTP/1.1 over sockets that send each token at once, and give up on a client that stopped reading.

    With Nagle's algorithm on, a kept-alive connection would hold each first token back until the client's
    delayed acknowledgement, about 40 ms. The kernel's user timeout drops a connection that has had
    something to send for `slow_write_s` and could not: nothing in the gateway has to watch for it.
    """

    class PromptProtocol(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(slow_write_s * 1000))
            super().connection_made(transport)

    return PromptProtocol

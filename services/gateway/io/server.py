"""The HTTP server as a part of the service: it listens, and drains when the service stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_BACKLOG = 2_048


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the service, which stops its parts in order."""
        yield


def protocol(slow_write_s: float) -> type[HttpToolsProtocol]:
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


class HttpServer:
    """`port` is known after `start`, which raises OSError if the address is taken. `stop` lets responses that
    are under way end, for `drain_s` at most."""

    def __init__(self, app: ASGIApp, address: tuple[str, int], slow_write_s: float, drain_s: float) -> None:
        self._address = address
        self._server = _Server(
            uvicorn.Config(
                app,
                http=protocol(slow_write_s),
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, round(drain_s)),
            )
        )
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        host, port = self._address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=False)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))

    def connections(self) -> list[asyncio.Protocol]:
        """Those that are open now."""
        return list(self._server.server_state.connections)

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving

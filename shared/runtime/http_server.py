"""An HTTP server as a part of a service: it listens, and drains when the service stops."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_BACKLOG = 2_048
_LAST_WORD_S = 2
"""For what responses say at the end of their time."""


class HttpServer:
    """Serves an ASGI application at (host, port); port 0 takes a free one, and `port` says which, once started.

    `stop` lets responses that are under way end, for `drain_s` at most; `on_late` is then called once, so that those
    which are left can say that they were cut off. `protocol` is what each connection speaks. With `shares_port`, set
    before `start`, other processes of the same user may listen at the same address: the system gives each connection
    to one of them.
    """

    shares_port = False

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        address: tuple[str, int],
        drain_s: float,
        protocol: type[asyncio.Protocol] = HttpToolsProtocol,
        on_late: Callable[[], None] = lambda: None,
    ) -> None:
        self._address = address
        self._drain_s = drain_s
        self._on_late = on_late
        self._server = _Server(
            uvicorn.Config(
                app,
                http=protocol,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=math.ceil(drain_s) + _LAST_WORD_S,
            )
        )
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Raises OSError if the address is taken."""
        host, port = self._address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=self.shares_port)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))

    def connections(self) -> list[asyncio.Protocol]:
        """Those that are open now."""
        return list(self._server.server_state.connections)

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._serving is None:
            return
        done, _ = await asyncio.wait({self._serving}, timeout=self._drain_s)
        if not done:
            self._on_late()
        await self._serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the service, which stops its parts in order."""
        yield

"""Serves an ASGI application as a part of the service."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

_BACKLOG = 512


class HttpServer:
    """Port 0 takes a free one; `port` says which, once started."""

    def __init__(self, app: Any, host: str, port: int) -> None:
        self.port = port
        self._host = host
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=10)
        self._server = _Server(config)
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises OSError if the port is taken."""
        self._socket = socket.create_server((self._host, self.port), backlog=_BACKLOG)
        self.port = self._socket.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))

    async def stop(self) -> None:
        """Answer what has been asked, then close."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        if self._socket is not None:
            self._socket.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the service, which then ends this server."""
        yield

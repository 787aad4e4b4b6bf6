"""Liveness, readiness and metrics over HTTP, for services that have no HTTP server of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from shared.runtime.metrics import CONTENT_TYPE, Metrics

_REQUEST_DEADLINE_S = 5.0
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Ready = Callable[[], str | None]
"""Why the service is not ready, in one sentence, or None if it is."""

Status = Callable[[], str]
"""What a service that is ready says of itself."""


def _ready() -> str:
    return "ready"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class ProbeServer:
    """Answers GET /healthz (200 while the event loop turns), /readyz (200 and the status, or 503 and the reason) and
    /metrics.

    Port 0 is "off": nothing listens. One request a connection; a request that takes longer than 5 s to
    arrive is dropped. `start` raises OSError if the port is taken.
    """

    def __init__(
        self, port: int, metrics: Metrics, ready: Ready, host: str = "127.0.0.1", status: Status = _ready
    ) -> None:
        self._port = port
        self._host = host
        self._metrics = metrics
        self._ready = ready
        self._status = status
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        if self._port:
            self._server = await asyncio.start_server(self._serve, self._host, self._port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def reply_to(self, method: str, path: str) -> Reply:
        if method not in ("GET", "HEAD"):
            return Reply(status=405, body=b"only GET and HEAD are answered here\n")
        match path:
            case "/healthz":
                return Reply(status=200, body=b"alive\n")
            case "/readyz":
                reason = self._ready()
                return Reply(status=503 if reason else 200, body=f"{reason or self._status()}\n".encode())
            case "/metrics":
                return Reply(status=200, body=self._metrics.exposition(), content_type=CONTENT_TYPE)
        return Reply(status=404, body=b"there is /healthz, /readyz and /metrics\n")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_DEADLINE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path = _request_line(head)
                writer.write(_bytes_of(self.reply_to(method, path), with_body=method != "HEAD"))
                await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Whoever it was did not speak HTTP or left: nobody waits for an answer.
            return
        finally:
            writer.close()


def _request_line(head: bytes) -> tuple[str, str]:
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return method, target.partition("?")[0]


def _bytes_of(reply: Reply, *, with_body: bool) -> bytes:
    lines = (
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(reply.body)}",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (reply.body if with_body else b"")

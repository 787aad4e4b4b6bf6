"""An HTTP link with faults planted in it: it breaks, falls silent, or answers in the server's place."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

_PIECE_BYTES = 1 << 16
_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    first_byte: int
    """Where its Range begins; 0 without one."""
    if_match: str
    """The version that it insists on, if any."""
    upload_offset: int = 0
    """Where its upload goes on."""
    body_bytes: int = 0
    """What was passed on of its body."""


@dataclass(frozen=True)
class Cut:
    """The link ends after so many bytes of the answer's body."""

    after_bytes: int
    reset: bool = False


@dataclass(frozen=True)
class CutUpload:
    """The link ends after so many bytes of the request's body; the server has them, and answers nobody."""

    after_bytes: int


@dataclass(frozen=True)
class Silence:
    """Nothing comes after so many bytes of the answer's body, until the client hangs up."""

    after_bytes: int


@dataclass(frozen=True)
class Answer:
    """The server is not asked."""

    status: int
    code: str


Fault = Cut | CutUpload | Silence | Answer | None
"""None: this request gets through."""


class FaultyLink:
    """One request a connection. Each request meets the next fault planted for its method, if there is one."""

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        self._server = (parts.hostname, parts.port)
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._connections: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []
        self.url = ""
        self.before_the_client_knows: Callable[[CutUpload], Awaitable[None]] = _at_once
        """Called when the server has lost an upload and its sender does not know yet."""

    def plant(self, method: str, *faults: Fault) -> None:
        self._faults[method].extend(faults)

    def starts(self) -> list[int]:
        """Where each GET began to read."""
        return [request.first_byte for request in self.requests if request.method == "GET"]

    async def silent(self) -> None:
        """Returns when no connection is open."""
        while self._connections:
            await asyncio.wait(self._connections)

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._connection(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):  # the client has left
            try:
                await self._serve(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, headers = _parsed(await reader.readuntil(b"\r\n\r\n"))
        if "expect" in headers:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        method, target, _ = first.split(" ")
        fault = self._faults[method].popleft() if self._faults[method] else None
        length = int(headers.get("content-length", "0"))
        body = await reader.readexactly(min(length, fault.after_bytes) if isinstance(fault, CutUpload) else length)
        first_byte = int(headers.get("range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        offset, if_match = int(headers.get("upload-offset", "0")), headers.get("if-match", "")
        self.requests.append(Request(method, target, first_byte, if_match, offset, len(body)))
        if isinstance(fault, Answer):
            writer.write(_error(fault))
            return
        head = "\r\n".join([first, *(f"{name}: {value}" for name, value in headers.items()), "connection: close"])
        with_upstream = await asyncio.open_connection(*self._server)
        try:
            with_upstream[1].write(head.encode("latin-1") + b"\r\n\r\n" + body)
            if isinstance(fault, CutUpload):
                await with_upstream[1].drain()
                with_upstream[1].close()
                await self.before_the_client_knows(fault)
                return
            await _relay(with_upstream[0], (reader, writer), fault)
        finally:
            with_upstream[1].close()


@asynccontextmanager
async def faulty_link(server_url: str) -> AsyncIterator[FaultyLink]:
    link = FaultyLink(server_url)
    listener = await asyncio.start_server(link.connected, "127.0.0.1", 0)
    link.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield link
    finally:
        listener.close()
        await listener.wait_closed()
        await asyncio.wait_for(link.silent(), 20)


async def _relay(upstream: asyncio.StreamReader, client: _Ends, fault: Cut | Silence | None) -> None:
    reader, writer = client
    writer.write(await upstream.readuntil(b"\r\n\r\n"))
    left = None if fault is None else fault.after_bytes
    while left != 0 and (piece := await upstream.read(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))):
        writer.write(piece)
        await writer.drain()
        left = None if left is None else left - len(piece)
    if isinstance(fault, Silence):
        await reader.read()
    if isinstance(fault, Cut) and fault.reset:
        linger = struct.pack("ii", 1, 0)  # closing is a reset then
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()


async def _at_once(fault: CutUpload) -> None:
    pass


def _parsed(head: bytes) -> tuple[str, dict[str, str]]:
    """The first line, and the headers without those that concern one connection alone."""
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    headers.pop("connection", None)
    return first, headers


def _error(answer: Answer) -> bytes:
    body = f"<Error><Code>{answer.code}</Code><Message>planted</Message></Error>".encode()
    head = f"HTTP/1.1 {answer.status} Planted\r\ncontent-type: application/xml\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

"""A TCP link that holds back what a server answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

_PIECE_BYTES = 1 << 16


class SlowLink:
    """Each piece of an answer arrives `delay_s` after the server has sent it, in its order. A server that cannot be
    reached cannot be reached through it either."""

    def __init__(self, server_url: str) -> None:
        self._parts = urlsplit(server_url)
        self._connections: set[asyncio.Task[None]] = set()
        self.delay_s = 0.0
        self.url = ""

    def listens(self, port: int) -> None:
        user, _, _ = self._parts.netloc.rpartition("@")
        self.url = urlunsplit(self._parts._replace(netloc=f"{user}@127.0.0.1:{port}"))

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._connection(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        connection.add_done_callback(lambda _: writer.close())

    async def close(self) -> None:
        for connection in (open_ones := [*self._connections]):
            connection.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        except OSError:
            return
        with contextlib.closing(server[1]):
            ways = [asyncio.create_task(self._relay(reader, server[1], slow=False)),
                    asyncio.create_task(self._relay(server[0], writer, slow=True))]  # fmt: skip
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(_PIECE_BYTES):
                if slow and self.delay_s:
                    loop.call_later(self.delay_s, writer.write, piece)
                else:
                    writer.write(piece)


@asynccontextmanager
async def slow_link(server_url: str) -> AsyncIterator[SlowLink]:
    link = SlowLink(server_url)
    listener = await asyncio.start_server(link.connected, "127.0.0.1", 0)
    link.listens(listener.sockets[0].getsockname()[1])
    try:
        yield link
    finally:
        listener.close()
        await link.close()
        await listener.wait_closed()

"""The client of NATS, and a short way through it for what comes and goes with every request.

Its own way is a task that parses what a StreamReader holds, a queue and a task for each subscription, and one more
task that writes: six turns of the loop for a message there and back. Here `send` writes without them, and what is
heard is taken out of the bytes as they come in. All else is the client's, whose insides are named in this module only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import ParseResult

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

Take = Callable[[str, bytes], None]
"""Gets the subject and the payload of a message. It raises nothing."""

_MUCH_UNSENT_BYTES, _MOST_UNSENT_BYTES = 64 << 10, 32 << 20
_MESSAGES = (b"MSG ", b"HMSG ")
_END = b"\r\n"
_PORT = 4222


class Congested(Exception):
    """The server does not read what it was sent."""


class PromptClient(Client):
    def __init__(self) -> None:
        super().__init__()
        self._wire = Wire()
        self._transport = self._wire
        self._turn_ends = False
        """Whether something is due when this turn of the loop is over."""

    def send(self, subject: str, payload: bytes, reply: str, *, urgent: bool) -> None:
        """Leaves with all that was published before: when this turn of the loop is over, or at once if it is urgent and
        the first in its turn. Every write wakes the server, which costs more than the message. The connection must
        stand. Raises Congested, what a transport raises that is closed, and ValueError for a message that the server
        would answer with the end of the connection."""
        if len(payload) > self._max_payload:
            raise ValueError(f"a message of {len(payload)} bytes is larger than the {self._max_payload} of this NATS")
        if self._wire.unsent_bytes + self._pending_data_size > _MOST_UNSENT_BYTES:
            raise Congested
        message = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload)
        self._pending.append(message)
        self._pending_data_size += len(message)
        if self._turn_ends:
            return
        self._turn_ends = True
        asyncio.get_running_loop().call_soon(self._end_turn)
        if urgent:
            self._write()

    def _end_turn(self) -> None:
        self._turn_ends = False
        if self._pending and self.is_connected:
            with suppress(ConnectionError, RuntimeError):  # the client has yet to notice that the connection has ended
                self._write()

    def _write(self) -> None:
        waiting, self._pending, self._pending_data_size = self._pending, [], 0
        self._wire.write(b"".join(waiting))  # type: ignore[no-untyped-call]

    @property
    def silent(self) -> bool:
        """A ping went out while the one before it was not answered."""
        return self._pings_outstanding > 1

    @property
    def stalled(self) -> bool:
        """More waits to be sent than there should."""
        return self._wire.unsent_bytes > _MUCH_UNSENT_BYTES

    async def room(self) -> None:
        """Returns when the server has read most of what it was sent."""
        await self._wire.drain()  # type: ignore[no-untyped-call]

    async def _attempt_reconnect(self) -> None:
        """The client would wait until the old connection has ended, and that until the server has read the rest."""
        self._wire.abort()
        await super()._attempt_reconnect()

    def hear(self, subscription: Subscription, take: Take) -> None:
        """What the server itself says has headers, and stays the subscription's."""
        self._wire.heard[b"%d" % subscription._id] = take

    def hear_no_more(self, subscription: Subscription) -> None:
        self._wire.heard.pop(b"%d" % subscription._id, None)


class Wire(TcpTransport):
    """What is in `heard`, by the number of its subscription, is not for the client to read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heard: dict[bytes, Take] = {}

    def __bool__(self) -> bool:
        """The client makes a transport of its own for one that is none yet."""
        return True

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._io_writer is None else self._io_writer.transport.get_write_buffer_size()

    def abort(self) -> None:
        if self._io_writer is not None:
            self._io_writer.transport.abort()

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        self.abort()  # a server that took a connection and said nothing: the client does not close it
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(buffer_size, loop)
        async with asyncio.timeout(connect_timeout):
            transport, protocol = await loop.create_connection(
                lambda: _Protocol(reader, Sieve(self.heard)), uri.hostname or "", uri.port or _PORT
            )
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = asyncio.StreamWriter(transport, protocol, reader, loop)


class _Protocol(asyncio.StreamReaderProtocol):
    def __init__(self, reader: asyncio.StreamReader, sieve: Sieve) -> None:
        super().__init__(reader)
        self._sieve = sieve

    def data_received(self, data: bytes) -> None:
        if left := self._sieve.sift(data):
            super().data_received(left)


class Sieve:
    """Takes messages out of the bytes of one connection, whichever way these were cut."""

    def __init__(self, heard: dict[bytes, Take]) -> None:
        self._heard = heard
        self._begun = b""
        """Of a line, or of a message that is to be taken out."""
        self._passing = 0
        """How many of the next bytes belong to a message that is left in."""

    def sift(self, data: bytes) -> bytes:
        """What is left of them."""
        data, self._begun = self._begun + data, b""
        at = min(self._passing, len(data))
        self._passing -= at
        left = [data[:at]]
        while (line_end := data.find(_END, at)) >= 0:
            end, taken = line_end + len(_END), None
            if data.startswith(_MESSAGES, at):
                words = data[at:line_end].split()
                taken = self._heard.get(words[2]) if words[0] == b"MSG" else None
                end += int(words[-1]) + len(_END)
            if taken is None:
                left.append(data[at:end])
                self._passing = max(0, end - len(data))
            elif end <= len(data):
                taken(words[1].decode(), data[line_end + len(_END) : end - len(_END)])
            else:
                break
            at = min(end, len(data))
        self._begun = data[at:]
        return b"".join(left)

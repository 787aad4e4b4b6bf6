"""A server with nothing behind it, which costs less than whoever asks it: answers of canned events.

    python -m loadtest.driver.bare_server --tick-ms 25

A token comes every tick of each stream, or without ticks as fast as the other side reads. Prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from typing import cast

import uvloop

_LENGTH = re.compile(rb'"max_tokens":(\d+)')
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-adapter-tier: gpu\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_START = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"acme/bare:prod","choices":['
)
_TOKEN = _START + b'{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n'
_LAST = _START + b'{"index":0,"delta":{"content":""},"finish_reason":"length"}]}\n\n'
_USAGE = _START + b'],"usage":{"prompt_tokens":32,"completion_tokens":%d,"total_tokens":0}}\n\n'
_AT_ONCE = 64
"""Tokens of a stream that nobody paces, in one write."""
_STEPS_PER_TICK = 25
"""Streams do not step together: each has its turn in a part of the tick."""


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


_ONE = _chunk(_TOKEN)
_MANY = _ONE * _AT_ONCE


class _Stream(asyncio.Protocol):
    def __init__(self, server: _Bare) -> None:
        self._server = server
        self._held = b""
        self._left = 0
        self._length = 0
        self._full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, piece: bytes) -> None:
        self._held += piece
        head, end, body = self._held.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.rpartition(b": ")[2]):
            return
        asked = _LENGTH.search(body)
        self._length = self._left = int(asked[1]) if asked else 1
        self._held = b""
        self._transport.write(_HEAD)
        self._server.began(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._left = 0

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.flood()

    def step(self) -> bool:
        """One token; whether there are more."""
        if self._left > 1:
            self._left -= 1
            self._transport.write(_ONE)
        elif self._left:
            self._end()
        return self._left > 0

    def flood(self) -> None:
        while self._left > _AT_ONCE and not self._full:
            self._left -= _AT_ONCE
            self._transport.write(_MANY)
        if not self._full and self._left:
            self._transport.write(_ONE * (self._left - 1))
            self._end()

    def _end(self) -> None:
        self._left = 0
        last = _chunk(_LAST) + _chunk(_USAGE % self._length) + _chunk(b"data: [DONE]\n\n")
        self._transport.write(last + b"0\r\n\r\n")


class _Bare:
    def __init__(self, tick_s: float) -> None:
        self._tick_s = tick_s
        self._turns: list[list[_Stream]] = [[] for _ in range(_STEPS_PER_TICK)]
        self._turn = 0

    def began(self, stream: _Stream) -> None:
        if not self._tick_s:
            stream.flood()
        elif stream.step():
            self._turns[self._turn].append(stream)

    async def serve(self) -> None:
        server = await asyncio.get_running_loop().create_server(lambda: _Stream(self), "127.0.0.1", 0, backlog=4_096)
        print(server.sockets[0].getsockname()[1], flush=True)
        if not self._tick_s:
            await server.serve_forever()
        began_s = time.monotonic()
        for number in range(1, 1 << 62):
            await asyncio.sleep(max(0.0, began_s + number * self._tick_s / _STEPS_PER_TICK - time.monotonic()))
            self._turn = number % _STEPS_PER_TICK
            self._turns[self._turn] = [stream for stream in self._turns[self._turn] if stream.step()]


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m loadtest.driver.bare_server", description=__doc__)
    words.add_argument("--tick-ms", type=float, default=0.0)
    uvloop.run(_Bare(words.parse_args().tick_ms / 1000).serve())


if __name__ == "__main__":
    main()

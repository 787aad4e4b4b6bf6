"""An open-loop client that costs little: what it takes of two cores is not there for the fleet.

HTTP/1.1 by hand over kept connections, and no look into what comes but at its first and its last piece.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec

from loadtest.calibration.seen import Ask, Seen

_DEADLINE_S = 60.0
_OPEN = 24
"""Connections that are there before the first request: a handshake is no part of what is measured."""
_LAST = b"data: [DONE]"


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Error(msgspec.Struct):
    message: str = ""


class _Chunk(msgspec.Struct):
    usage: _Usage | None = None
    error: _Error | None = None


_chunk = msgspec.json.Decoder(_Chunk)


class Asker:
    """`url` is the public address of a fleet."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._address = (str(where.hostname), where.port or 80)
        self._idle: list[_Connection] = []
        self._began_s = 0.0

    async def run(self, asks: Sequence[Ask]) -> list[Seen]:
        """Each at its moment, however slow the fleet is; in the order of `asks`."""
        self._idle += [await _connected(self._address) for _ in range(_OPEN - len(self._idle))]
        with _undisturbed():
            self._began_s = time.monotonic()
            return list(await asyncio.gather(*(self._at_its_time(ask) for ask in asks)))

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle = []

    async def _at_its_time(self, ask: Ask) -> Seen:
        await asyncio.sleep(max(0.0, ask.at_s - self._now_s()))
        sent_s = self._now_s()
        connection, answer = self._kept(), _Answer()
        try:
            async with asyncio.timeout(_DEADLINE_S):
                connection = connection or await _connected(self._address)
                await connection.exchange(ask, answer)
            self._idle.append(connection)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:  # TimeoutError is an OSError
            answer.trouble = answer.trouble or f"{type(error).__name__} {error}"
            if connection is not None:
                connection.close()
        return answer.seen(ask, sent_s, self._began_s, self._now_s())

    def _kept(self) -> _Connection | None:
        """One that the server has not closed, tired of waiting."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.over:
                return connection
            connection.close()
        return None

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s


class _Answer:
    """What has come so far. Moments are those of the clock."""

    def __init__(self) -> None:
        self.status, self.tier, self.trouble = 0, "", ""
        self.first_s: float | None = None
        self.last: bytes = b""

    def seen(self, ask: Ask, sent_s: float, began_s: float, now_s: float) -> Seen:
        usage, outcome = _Usage(), self.trouble or ("ok" if self.status == 200 else str(self.status))
        for line in self.last.split(b"\n") if outcome == "ok" else ():
            if line.startswith(b"data: {"):
                chunk = _chunk.decode(line[6:])
                usage = chunk.usage or usage
                outcome = chunk.error.message if chunk.error is not None else outcome
        if outcome == "ok" and _LAST not in self.last:
            outcome = "cut off"
        return Seen(
            request_id=ask.request_id, adapter=ask.adapter, planned_s=ask.at_s, sent_s=sent_s,
            first_s=None if self.first_s is None else self.first_s - began_s, ended_s=now_s, outcome=outcome,
            tier=self.tier, prompt_tokens=usage.prompt_tokens, tokens=usage.completion_tokens,
        )  # fmt: skip


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def over(self) -> bool:
        return self._reader.at_eof()

    def close(self) -> None:
        self._writer.close()

    async def exchange(self, ask: Ask, answer: _Answer) -> None:
        """Raises OSError, EOFError and ValueError; what had come by then stands in `answer`."""
        self._writer.write(_request(ask))
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        answer.status = int(head.split(" ", 2)[1])
        answer.tier = _header(head, "x-adapter-tier")
        if (length := _header(head, "content-length")) != "":
            answer.last = await self._reader.readexactly(int(length))
            return
        while size := int(await self._reader.readline(), 16):
            piece = await self._reader.readexactly(size + 2)
            if answer.first_s is None and answer.status == 200:
                answer.first_s = time.monotonic()
            answer.last = piece
        await self._reader.readline()


async def _connected(address: tuple[str, int]) -> _Connection:
    return _Connection(*await asyncio.open_connection(*address))


def _header(head: str, name: str) -> str:
    _, found, rest = head.partition(f"\r\n{name}:")
    return rest.partition("\r\n")[0].strip() if found else ""


def _request(ask: Ask) -> bytes:
    body = {
        "model": ask.alias,
        "stream": True,
        "temperature": 0,
        "max_tokens": ask.max_tokens,
        "messages": [{"role": "user", "content": ask.prompt}],
        "stream_options": {"include_usage": True},
    }
    content = json.dumps(body).encode()
    lines = (
        "POST /v1/chat/completions HTTP/1.1", "host: fleet", f"authorization: Bearer {ask.key}",
        f"x-request-id: {ask.request_id}", "content-type: application/json", f"content-length: {len(content)}",
    )  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage is collected meanwhile: a client that pauses sees late tokens."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

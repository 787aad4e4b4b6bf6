"""A client that costs little: one kept connection, HTTP/1.1 spoken by hand, so that ten thousand requests are cheap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from infra.adapters.marked import Answer
from loadtest.isolation_plan import Ask

_DEADLINE_S = 60.0


class AnswerFailed(Exception):
    """No answer, or one that is none; the status (0 without one) and what was said about it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        said = self.delta or self.message
        return (said.content if said else None) or ""


class _Error(msgspec.Struct):
    message: str = ""


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    error: _Error | None = None


class _Head(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]


_chunk = msgspec.json.Decoder(_Chunk)


class Client:
    """One request at a time; the connection is kept until an answer leaves it unusable. `keys` [tenant]."""

    def __init__(self, host: str, port: int, keys: dict[str, str]) -> None:
        self._address = (host, port)
        self._keys = keys
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, ask: Ask) -> Answer | None:
        """What came of it, as far as its client stayed to read; None if it left before there was an answer.

        Raises AnswerFailed; the connection is closed then.
        """
        try:
            async with asyncio.timeout(_DEADLINE_S):
                return await self._exchange(ask)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:  # TimeoutError is an OSError
            self.close()
            raise AnswerFailed(0, f"{type(error).__name__} {error}") from error
        except AnswerFailed:
            self.close()
            raise

    def close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()

    async def _exchange(self, ask: Ask) -> Answer | None:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        writer.write(_request(ask, self._keys[ask.tenant]))
        if ask.leave_after == 0:
            self.close()
            return None
        head = await _head(reader)
        if head.status != 200:
            raise AnswerFailed(head.status, _refusal(await _body(reader, head)))
        if (adapter_id := head.headers.get("x-adapter-id")) is None:
            raise AnswerFailed(200, "the answer does not say which adapter gave it")
        if not ask.stream:
            return Answer(adapter_id=adapter_id, text=_whole_text(await _body(reader, head)))
        return await self._read_stream(reader, adapter_id, ask.leave_after)

    async def _read_stream(self, reader: asyncio.StreamReader, adapter_id: str, leave_after: int | None) -> Answer:
        text, pieces, finished = "", 0, False
        async for payload in _events(reader):
            if payload == b"[DONE]":
                continue
            for choice in _choices(payload):
                text, pieces, finished = text + choice.text, pieces + 1, finished or choice.finish_reason is not None
            if leave_after is not None and pieces >= leave_after and not finished:
                self.close()
                return Answer(adapter_id=adapter_id, text=text, whole=False)
        if not finished:
            raise AnswerFailed(200, "the stream ended without a finish reason")
        return Answer(adapter_id=adapter_id, text=text)


def _request(ask: Ask, key: str) -> bytes:
    body = msgspec.json.encode(
        {
            "model": ask.alias,
            "stream": ask.stream,
            "temperature": 0,
            "max_tokens": ask.max_tokens,
            "messages": [{"role": "user", "content": ask.prompt}],
        }
    )
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        "host: fleet",
        f"authorization: Bearer {key}",
        "content-type: application/json",
        f"content-length: {len(body)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _head(reader: asyncio.StreamReader) -> _Head:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    pairs = (line.partition(":") for line in lines)
    return _Head(int(first.split(" ", 2)[1]), {name.lower(): value.strip() for name, _, value in pairs})


async def _body(reader: asyncio.StreamReader, head: _Head) -> bytes:
    if (length := head.headers.get("content-length")) is not None:
        return await reader.readexactly(int(length))
    return b"".join([part async for part in _parts(reader)])


async def _parts(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The pieces of a chunked body."""
    while size := int(await reader.readline(), 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readline()


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The payloads of server-sent events, however they are cut into pieces."""
    rest = b""
    async for part in _parts(reader):
        *events, rest = (rest + part).split(b"\n\n")
        for event in events:
            yield event.removeprefix(b"data: ")


def _choices(payload: bytes) -> list[_Choice]:
    chunk = _chunk.decode(payload)
    if chunk.error is not None:
        raise AnswerFailed(200, chunk.error.message)
    return chunk.choices


def _whole_text(body: bytes) -> str:
    return "".join(choice.text for choice in _chunk.decode(body).choices)


def _refusal(body: bytes) -> str:
    with suppress(msgspec.MsgspecError):
        if (error := _chunk.decode(body).error) is not None:
            return error.message
    return body[:200].decode(errors="replace")

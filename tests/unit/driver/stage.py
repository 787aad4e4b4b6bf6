"""Answers as servers of the API write them, and a server that gives each as a test tells it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from loadtest.driver.planned import Planned

EVENTS = "content-type: text/event-stream; charset=utf-8"


def event(chunk: dict[str, Any] | str) -> bytes:
    said = chunk if isinstance(chunk, str) else json.dumps(chunk, separators=(",", ":"))
    return f"data: {said}\n\n".encode()


def said(text: str | None, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
DONE = event("[DONE]")
WHOLE = (said("MA"), said("RK"), said("A", "stop"), USAGE, DONE)


def head(status: int, *headers: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status} Whatever", *headers, "")).encode()


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def chunked(*events: bytes, tier: str = "ram") -> bytes:
    """A stream, each event in a chunk of its own."""
    begun = head(200, EVENTS, "transfer-encoding: chunked", f"x-adapter-tier: {tier}")
    return begun + b"".join(map(chunk, events)) + b"0\r\n\r\n"


def sized(status: int, body: bytes, *headers: str) -> bytes:
    return head(status, f"content-length: {len(body)}", *headers) + body


class Visit(NamedTuple):
    """One request; `number` counts those of its connection from 0."""

    head: str
    body: dict[str, Any]
    number: int
    writer: asyncio.StreamWriter

    def write(self, answer: bytes) -> None:
        self.writer.write(answer)


Respond = Callable[[Visit], Awaitable[None]]


@asynccontextmanager
async def serving(respond: Respond) -> AsyncIterator[str]:
    """Yields its address. A `respond` that closes the writer ends the connection."""
    at_work: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        at_work.add(task)
        number = 0
        try:
            while not writer.is_closing():
                top = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(next(line for line in top.lower().split("\r\n") if line.startswith("content-length"))[15:])
                body = json.loads(await reader.readexactly(length))
                await respond(Visit(top, body, number, writer))
                number += 1
        except (EOFError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in at_work:
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)


def gives(*answers: bytes) -> Respond:
    """Every request gets the next one, and the last for ever."""
    left = list(answers)

    async def respond(visit: Visit) -> None:
        visit.write(left.pop(0) if len(left) > 1 else left[0])

    return respond


def at(*times_s: float, alias: str = "acme/a:prod", **changes: Any) -> Sequence[Planned]:
    return [Planned(at_s=at_s, alias=alias, prompt_tokens=5, max_tokens=3, **changes) for at_s in times_s]

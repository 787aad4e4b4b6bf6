"""`POST /v1/chat/completions` as a bare ASGI application: one write per stream and frame, no task per token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from services.gateway.core import chat, completion
from services.gateway.core.chat import ChatRequest
from services.gateway.core.completion import ChunkWriter
from services.gateway.core.question import STRATEGIES
from services.gateway.core.refusal import Refusal, bad_request
from services.gateway.core.stream import Deliver
from services.gateway.io.body import BodyLimits, ClientGone, read_body
from services.gateway.io.door import Door, Exchange
from services.gateway.io.outlet import Piece
from shared.messages.generation import Accepted
from shared.messages.identity import is_subject_token

STRATEGY_HEADER = "x-lorafleet-strategy"

_Head = dict[str, str]

_JSON = {"content-type": "application/json"}
_EVENTS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class ChatRoute:
    """`strategies`: whether a request may choose by a header how its replica is chosen."""

    def __init__(self, door: Door, body_limits: BodyLimits, *, strategies: bool = False) -> None:
        self._door = door
        self._body_limits = body_limits
        self._strategies = strategies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        head = {"x-request-id": self._request_id(headers)}
        try:
            admitted = await self._admit(headers, receive, head["x-request-id"])
        except ClientGone:
            return
        if isinstance(admitted, Refusal):
            self._door.turned_away(admitted, head["x-request-id"])
            await _send_refusal(send, admitted, head)
            return
        request, exchange = admitted
        head |= exchange.limits
        async with _watched(exchange, receive):
            await _answer(request, exchange, head, send)

    def _request_id(self, headers: Headers) -> str:
        """The client's own, if it can stand in a header and a log line as it is."""
        given = headers.get("x-request-id", "")
        return given if is_subject_token(given) else self._door.unique_id()

    async def _admit(
        self, headers: Headers, receive: Receive, request_id: str
    ) -> tuple[ChatRequest, Exchange] | Refusal:
        caller = self._door.authenticate(headers.get("authorization"))
        if isinstance(caller, Refusal):
            return caller
        body = await read_body(headers, receive, self._body_limits)
        if isinstance(body, Refusal):
            return body
        request = chat.parse(body)
        if isinstance(request, Refusal):
            return request
        if traceparent := headers.get("traceparent"):
            request = msgspec.structs.replace(request, traceparent=traceparent)
        if session := headers.get("x-session-id"):
            request = msgspec.structs.replace(request, session=session)
        if self._strategies and (named := headers.get(STRATEGY_HEADER)):
            if (strategy := next((each for each in STRATEGIES if each == named), None)) is None:
                return bad_request(f"{STRATEGY_HEADER} is one of {', '.join(STRATEGIES)}, not {named[:40]!r}.")
            request = msgspec.structs.replace(request, strategy=strategy)
        exchange = await self._door.begin(caller, request, request_id)
        return exchange if isinstance(exchange, Refusal) else (request, exchange)


@asynccontextmanager
async def _watched(exchange: Exchange, receive: Receive) -> AsyncIterator[None]:
    """Writing to a client that left raises nothing: only `receive` tells, so somebody has to listen."""
    watch = asyncio.create_task(_until_gone(exchange, receive))
    try:
        yield
    finally:
        watch.cancel()
        exchange.leave("The response ended early.")


async def _until_gone(exchange: Exchange, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    exchange.leave("The client left.")


async def _answer(request: ChatRequest, exchange: Exchange, head: _Head, send: Send) -> None:
    await exchange.outlet.wake.wait()
    verdict = exchange.outlet.verdict()
    if isinstance(verdict, Refusal):
        await _send_refusal(send, verdict, head)
        return
    known = {**head, **_identity(exchange, verdict)}
    if request.stream:
        await _start(send, 200, {**known, **_EVENTS})
        await _stream(exchange, request.include_usage, send)
    else:
        await _send_body(send, 200, known, _whole(exchange))


async def _stream(exchange: Exchange, include_usage: bool, send: Send) -> None:
    outlet, writer = exchange.outlet, ChunkWriter(exchange.heading)
    over = False
    while not over:
        await outlet.wake.wait()
        pieces = outlet.take()
        over = any(_is_last(piece) for piece in pieces[-1:])
        body = b"".join(event for piece in pieces for event in _events(writer, piece, include_usage))
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": not over})


def _events(writer: ChunkWriter, piece: Piece, include_usage: bool) -> Iterator[bytes]:
    if isinstance(piece, Refusal):
        yield completion.error_event(piece)
    elif piece.finish is None:
        if piece.text or piece.first:
            yield writer.token(piece.text, first=piece.first)
    else:
        yield writer.last(piece.text, first=piece.first, finish_reason=piece.finish.reason)
        if include_usage:
            yield writer.usage(piece.finish.usage)
        yield completion.DONE


def _is_last(piece: Piece) -> bool:
    return isinstance(piece, Refusal) or piece.finish is not None


def _whole(exchange: Exchange) -> bytes:
    pieces = exchange.outlet.take()
    delivered = [piece for piece in pieces if isinstance(piece, Deliver)]
    finish = delivered[-1].finish
    assert finish is not None, "the verdict was good, so the last piece is the end"
    text = "".join(piece.text for piece in delivered)
    return completion.whole(exchange.heading, text, finish.reason, finish.usage)


def _identity(exchange: Exchange, accepted: Accepted) -> _Head:
    return {"x-adapter-id": exchange.adapter_id, "x-adapter-tier": accepted.tier}


async def _send_refusal(send: Send, refusal: Refusal, head: _Head) -> None:
    """After a body that never became whole the connection is of no further use."""
    ending = {"connection": "close"} if refusal.status == 408 else {}
    await _send_body(send, refusal.status, {**head, **refusal.headers, **ending}, refusal.envelope)


async def _send_body(send: Send, status: int, head: _Head, body: bytes) -> None:
    await _start(send, status, {**head, **_JSON, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})


async def _start(send: Send, status: int, head: _Head) -> None:
    raw = [(name.encode(), value.encode()) for name, value in head.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})

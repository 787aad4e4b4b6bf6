"""An answer on its way to the client: one write per stream and frame, no task per token."""

from __future__ import annotations

from starlette.types import Send

from services.gateway.core import completion
from services.gateway.core.openai.answers import Scribe
from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Deliver
from services.gateway.core.wish import Wish
from services.gateway.io.door import Exchange
from services.gateway.io.line import Line
from services.gateway.io.outlet import Outlet
from services.gateway.io.sheaf import Sheaf
from services.gateway.io.spout import Spout
from shared.messages.generation import Usage

Head = dict[str, str]

_JSON = {"content-type": "application/json"}
_EVENTS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


async def answer(wish: Wish, exchange: Exchange, head: Head, line: Line, send: Send) -> None:
    outlet = exchange.outlet
    await outlet.wake.wait()
    verdict = outlet.verdict()
    if isinstance(verdict, Refusal):
        await send_refusal(send, verdict, head)
        return
    known = {**head, "x-adapter-id": exchange.adapter_id, "x-adapter-tier": verdict.tier}
    scribe = Scribe(wish, exchange.heading, exchange.tool_parser)
    if not wish.stream:
        await _send_body(send, 200, known, scribe.whole(_answers(outlet, wish.choices)))
        return
    await _start(send, 200, {**known, **_EVENTS})
    if isinstance(outlet, Sheaf):
        await _stream_all(outlet, scribe, send)
    else:
        await _stream(outlet, scribe, line, send)


async def send_refusal(send: Send, refusal: Refusal, head: Head) -> None:
    """After a body that did not become whole, or is too large to be read, the connection is of no further use."""
    ending = {"connection": "close"} if refusal.status in (408, 413) else {}
    await _send_body(send, refusal.status, {**head, **refusal.headers, **ending}, refusal.envelope)


async def _stream(outlet: Outlet, scribe: Scribe, line: Line, send: Send) -> None:
    """Nothing runs here between the head and the last piece."""
    [writer] = scribe.writers
    spout = Spout(line, writer.piece)
    outlet.flow(spout)
    await outlet.wake.wait()
    [last] = outlet.take()
    if isinstance(last, Refusal):
        end = completion.error_event(last)
    else:
        assert last.finish is not None, "all pieces but the last flow"
        end = writer.piece(last) + scribe.ending([last.finish.usage])
    await send({"type": "http.response.body", "body": spout.rest() + end})


async def _stream_all(sheaf: Sheaf, scribe: Scribe, send: Send) -> None:
    """Several answers as they come, each chunk with the number of its own."""
    usages: dict[int, Usage] = {}
    over = False
    while not over:
        await sheaf.wake.wait()
        over, pieces = sheaf.is_over, sheaf.take()
        body = b"".join([scribe.writers[index].piece(piece) for index, piece in pieces])
        usages |= {index: piece.finish.usage for index, piece in pieces if piece.finish is not None}
        if sheaf.failure is not None:
            body += completion.error_event(sheaf.failure)
        elif over:
            body += scribe.ending([usages[index] for index in sorted(usages)])
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": not over})


def _answers(outlet: Outlet | Sheaf, count: int) -> list[list[Deliver]]:
    """The pieces of each, once all are over."""
    answers: list[list[Deliver]] = [[] for _ in range(count)]
    if isinstance(outlet, Sheaf):
        for index, piece in outlet.take():
            answers[index].append(piece)
    else:
        answers[0] = [piece for piece in outlet.take() if isinstance(piece, Deliver)]
    return answers


async def _send_body(send: Send, status: int, head: Head, body: bytes) -> None:
    await _start(send, status, {**head, **_JSON, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})


async def _start(send: Send, status: int, head: Head) -> None:
    raw = [(name.encode(), value.encode()) for name, value in head.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})

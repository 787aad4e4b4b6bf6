"""The hand-made client reads what a gateway writes, however it is cut into pieces, and takes no half answer for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from infra.adapters.marked import Answer
from loadtest.isolation_client import AnswerFailed, Client
from loadtest.isolation_plan import Ask

ASK = Ask(tenant="t", alias="t/a:prod", meant=("a",), prompt="hi", stream=True, max_tokens=9)
WHOLE = Ask(tenant="t", alias="t/a:prod", meant=("a",), prompt="hi", stream=False, max_tokens=9)
HEAD = b"HTTP/1.1 200 OK\r\nx-adapter-id: a\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"ZK"},"finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"delta":{"content":"49"},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def chunked(*parts: bytes) -> bytes:
    return HEAD + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


def sized(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nx-adapter-id: a\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


class Gateway:
    """Answers one scripted answer a request, on as many connections as the client opens."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.connections = 0
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.heads.append(head + await reader.readexactly(length))
                answer = self._answers.pop(0)
                writer.write(answer)
                if not answer.endswith((b"0\r\n\r\n", b"}")):
                    return
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def client_of(gateway: Gateway) -> AsyncIterator[Client]:
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0)
    async with server:
        client = Client(*server.sockets[0].getsockname()[:2], {"t": "key-of-t"})
        yield client
        client.close()


async def test_streamed_and_whole_answers_come_over_one_connection() -> None:
    body = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"ZK49"},"finish_reason":"stop"}]}'
    gateway = Gateway(chunked(FIRST, LAST, DONE), sized("200 OK", body))
    async with client_of(gateway) as client:
        assert await client.ask(ASK) == Answer(adapter_id="a", text="ZK49")
        assert await client.ask(WHOLE) == Answer(adapter_id="a", text="ZK49")
    assert gateway.connections == 1
    assert all(b"authorization: Bearer key-of-t\r\n" in head for head in gateway.heads)


@pytest.mark.parametrize("cut", [1, 7, 50, 120, 170])
async def test_events_may_be_cut_anywhere(cut: int) -> None:
    stream = FIRST + LAST + DONE
    async with client_of(Gateway(chunked(stream[:cut], stream[cut:]))) as client:
        assert await client.ask(ASK) == Answer(adapter_id="a", text="ZK49")


async def test_a_client_that_leaves_has_read_a_beginning_and_comes_back_on_a_new_connection() -> None:
    leaving = Ask(**{**vars(ASK), "leave_after": 1})
    gateway = Gateway(chunked(FIRST, LAST, DONE), chunked(FIRST, LAST, DONE))
    async with client_of(gateway) as client:
        assert await client.ask(leaving) == Answer(adapter_id="a", text="ZK", whole=False)
        assert await client.ask(ASK) == Answer(adapter_id="a", text="ZK49")
    assert gateway.connections == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (chunked(FIRST, DONE), "200: the stream ended without a finish reason"),
        (chunked(FIRST, b'data: {"error":{"message":"Replica r is gone."}}\n\n'), "200: Replica r is gone."),
        (sized("503 Service Unavailable", b'{"error":{"message":"Nobody is free."}}'), "503: Nobody is free."),
        (HEAD + b"5\r\nda", "0: IncompleteReadError"),
        (b"", "0: IncompleteReadError"),
        (HEAD.replace(b"x-adapter-id: a\r\n", b""), "200: the answer does not say which adapter gave it"),
    ],
)
async def test_what_is_no_whole_answer_is_a_failure_with_its_reason(answer: bytes, reason: str) -> None:
    async with client_of(Gateway(answer)) as client:
        with pytest.raises(AnswerFailed) as failed:
            await client.ask(ASK)
    assert str(failed.value).startswith(reason)

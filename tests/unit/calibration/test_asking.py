"""The client that takes times: what it sends, when, and what it makes of what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loadtest.calibration.asking import Asker
from loadtest.calibration.gateway_log import read_log, with_log
from loadtest.calibration.seen import Ask
from tests.unit.calibration.serving import Serve, served

USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 31, "completion_tokens": 2}}\n\n'
TOKEN = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nX-Adapter-Tier: ram\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(payload: bytes) -> bytes:
    return f"{len(payload):x}\r\n".encode() + payload + b"\r\n"


def _ask(name: str = "r1", at_s: float = 0.0) -> Ask:
    return Ask(at_s=at_s, adapter=3, alias="acme/voice:prod", key="k", prompt="hi", max_tokens=2, request_id=name)


@asynccontextmanager
async def _fleet(serve: Serve) -> AsyncIterator[Asker]:
    async with served(serve) as port:
        asker = Asker(f"http://127.0.0.1:{port}")
        try:
            yield asker
        finally:
            asker.close()


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(length)


async def test_a_stream_is_timed_and_counted() -> None:
    told: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            told.append(await _request(reader))
            writer.write(HEAD + _chunk(TOKEN))
            await writer.drain()
            writer.write(_chunk(TOKEN + USAGE + DONE) + b"0\r\n\r\n")

    async with _fleet(serve) as asker:
        seen = [*await asker.run([_ask("r1")]), *await asker.run([_ask("r2")])]
    assert [(each.outcome, each.tier, each.tokens, each.prompt_tokens) for each in seen] == [("ok", "ram", 2, 31)] * 2
    for each in seen:
        assert each.first_s is not None
        assert 0.0 <= each.sent_s <= each.first_s <= each.ended_s
    assert b"x-request-id: r1\r\n" in told[0]
    assert b'"max_tokens": 2' in told[0]


@pytest.mark.parametrize(("answer", "outcome"), [
    (b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\n{}", "503"),
    (HEAD + _chunk(TOKEN) + b"0\r\n\r\n", "cut off"),
    (HEAD + _chunk(TOKEN) + _chunk(b'data: {"error": {"message": "lost"}}\n\n' + DONE) + b"0\r\n\r\n", "lost"),
], ids=["refused", "no end", "an error event"])  # fmt: skip
async def test_what_is_no_answer_is_said(answer: bytes, outcome: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(answer)
        await writer.drain()
        await reader.read()

    async with _fleet(serve) as asker:
        [seen] = await asker.run([_ask()])
    assert seen.outcome == outcome
    assert seen.tokens == 0


async def test_a_connection_that_breaks_is_an_outcome() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)

    async with _fleet(serve) as asker:
        [seen] = await asker.run([_ask()])
    assert seen.outcome.startswith("IncompleteReadError")


async def test_a_connection_that_the_fleet_closed_is_not_used_again() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(HEAD + _chunk(TOKEN + USAGE + DONE) + b"0\r\n\r\n")

    async with _fleet(serve) as asker:
        outcomes = [(await asker.run([_ask(f"r{at}")]))[0].outcome for at in range(3)]
    assert outcomes == ["ok"] * 3


async def test_the_gateways_log_says_who_answered(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(HEAD + _chunk(TOKEN + USAGE + DONE) + b"0\r\n\r\n")

    async with _fleet(serve) as asker:
        [seen] = await asker.run([_ask("r1")])
    (log := tmp_path / "gateway.log").write_text(
        '{"event": "a request was routed", "request_id": "r1", "replica_id": "replica-9"}\n'
        '{"event": "a request ended", "request_id": "r1", "replica_id": "replica-1", "attempts": 2, "ttft_ms": 4.5}\n'
        '{"event": "a request ended", "request_id": "r2", "repl'
    )
    [known] = with_log([seen], read_log(log))
    assert (known.replica, known.attempts, known.gateway_ttft_s, known.tier) == ("replica-1", 2, 0.0045, "ram")
    assert with_log([seen], {}) == [seen]

"""What processes say of the way between them: the bus by a ping, the workers by their metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from loadtest.calibration.ways import FirstTokens, bus_s, told_by
from services.replica_worker.reporting.metering import Meters
from shared.runtime.metrics import Metrics
from tests.unit.calibration.serving import served


@asynccontextmanager
async def _bus(pong: bytes, told: list[bytes]) -> AsyncIterator[str]:
    """As much of a bus server as a ping needs."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id": "one"}\r\n')
        while line := await reader.readline():
            told.append(line)
            if line == b"PING\r\n":
                writer.write(pong)

    async with served(serve) as port:
        yield f"nats://a%40b:secret@127.0.0.1:{port}"


async def test_the_bus_is_pinged_by_who_may_use_it() -> None:
    told: list[bytes] = []
    async with _bus(b"PONG\r\n", told) as url:
        assert 0.0 < await bus_s(url) < 1.0
    assert told[0] == b'CONNECT {"user":"a@b","pass":"secret","verbose":false}\r\n'
    assert set(told[1:]) == {b"PING\r\n"}


async def test_a_bus_that_knows_us_not_is_quoted() -> None:
    async with _bus(b"-ERR 'Authorization Violation'\r\n", []) as url:
        with pytest.raises(ConnectionError, match="Authorization Violation"):
            await bus_s(url)


def test_first_tokens_are_read_from_the_workers_own_metrics() -> None:
    metrics = Metrics("replica_worker")
    meters = Meters(metrics)
    for tier, time_s in (("gpu", 0.5), ("gpu", 0.25), ("disk", 9.0)):
        meters.first_token_s.labels(tier).observe(time_s)
    shown = metrics.exposition().decode()
    assert told_by(["", shown]) == FirstTokens(count=2.0, sum_s=0.75)
    assert told_by([shown, shown]).since(told_by([shown])) == FirstTokens(count=2.0, sum_s=0.75)

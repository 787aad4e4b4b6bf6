"""What a NATS server does to the bus that hangs, or takes less than ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from shared.bus import nats_link
from shared.bus.port import DeadlineExceeded, Ids
from shared.contracts import catalog
from shared.messages.generation import Cancel, Cancelled
from tests.support.bus_samples import gateway_report, generate, sample
from tests.support.bus_worlds import DEADLINE_S, Heard, NatsWorld, until, world_of
from tests.support.nats_server import NatsServer


@pytest.fixture
def quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_link, "PING_INTERVAL_S", 0.3)


@contextlib.contextmanager
def hanging(server: NatsServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.usefixtures("quick_pings")
async def test_a_server_that_hangs_is_not_heard_before_it_counts_as_lost(nats_world: NatsWorld) -> None:
    gateway = await nats_world.connect("gateway")
    assert gateway.hearing
    with hanging(nats_world.server):
        while gateway.hearing:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        assert gateway.connected
        await until(lambda: not gateway.connected)
        assert not gateway.hearing
    await until(lambda: gateway.hearing)


@pytest.mark.usefixtures("quick_pings")
async def test_what_a_server_that_hangs_has_not_read_holds_nobody_up(nats_world: NatsWorld) -> None:
    gateway, worker = await nats_world.connect("gateway"), await nats_world.connect("replica_worker")
    asked, may_end = asyncio.Event(), asyncio.Event()

    async def answer_too_late(message: Cancel, ids: Ids) -> Cancelled:
        asked.set()
        await may_end.wait()
        return sample(Cancelled)

    await worker.serve(catalog.CANCEL, answer_too_late, "r1")
    asking = asyncio.create_task(gateway.ask(catalog.CANCEL, sample(Cancel), "r1", timeout_s=3600))
    await asked.wait()
    with hanging(nats_world.server):
        for _ in range(24):  # more than the sockets between them hold
            gateway.send(catalog.GENERATE, msgspec.structs.replace(generate(), prompt="x" * 900_000), "r1")
        with pytest.raises(DeadlineExceeded, match="broke while"):
            async with asyncio.timeout(DEADLINE_S):
                await asking
    may_end.set()


async def test_a_message_that_another_server_would_not_take_leaves_the_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.nats.config.SERVER_PAYLOAD_BYTES", 64 << 10)
    async with world_of("nats", tmp_path) as world:
        gateway, heard = await world.connect("gateway"), Heard()
        with pytest.raises(ValueError, match="larger than the 65536 of this NATS"):
            gateway.send(catalog.GENERATE, msgspec.structs.replace(generate(), prompt="x" * 100_000), "r1")
        await gateway.subscribe(catalog.GATEWAY_REPORT, heard)
        gateway.send(catalog.GATEWAY_REPORT, gateway_report(2), "g1")
        assert [message.sequence for message, _ in await heard.reach(1)] == [2]

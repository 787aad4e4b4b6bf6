"""Frames on a bus that comes and goes: the log says so once, not once a step."""

from __future__ import annotations

import logging

import pytest

from services.replica_worker.core.frames import FrameBook
from services.replica_worker.requests.frame_sender import FrameSender
from shared.bus.memory import MemoryBroker
from shared.runtime.clock import ManualClock
from tests.unit.replica_worker.test_frames import chunk


async def test_an_outage_is_one_line_in_the_log_and_its_end_another(caplog: pytest.LogCaptureFixture) -> None:
    broker = MemoryBroker()
    bus = broker.connect("replica_worker")
    sender = FrameSender(bus, FrameBook("replica-1", "i1"), ManualClock())
    await sender.start()
    with caplog.at_level(logging.WARNING):
        broker.disconnect(bus)
        for at in range(50):
            sender.write([("g1", chunk(position=at))])
        await sender._outgoing.join()
        broker.reconnect(bus)
        sender.write([("g1", chunk(position=50))])
        await sender.stop()
    assert [record.getMessage() for record in caplog.records] == ["a frame was not sent", "frames are sent again"]

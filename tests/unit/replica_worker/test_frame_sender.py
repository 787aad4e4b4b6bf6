"""Frames on a bus that comes and goes: the log says so once, not once a step."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from services.replica_worker.core.frames import FrameBook
from services.replica_worker.requests.frame_sender import FrameSender
from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from shared.messages.generation import Frame
from shared.runtime.clock import ManualClock
from tests.unit.replica_worker.test_frames import chunk


def test_an_outage_is_one_line_in_the_log_and_its_end_another(caplog: pytest.LogCaptureFixture) -> None:
    broker = MemoryBroker()
    bus = broker.connect("replica_worker")
    sender = FrameSender(bus, FrameBook("replica-1", "i1"), ManualClock())
    with caplog.at_level(logging.WARNING):
        broker.disconnect(bus)
        for at in range(50):
            sender.write([("g1", chunk(position=at))])
        broker.reconnect(bus)
        sender.write([("g1", chunk(position=50))])
    assert [record.getMessage() for record in caplog.records] == ["a frame was not sent", "frames are sent again"]


def test_a_frame_is_on_the_bus_when_it_is_written() -> None:
    sent: list[tuple[str, int]] = []

    class Noting:
        def send(self, channel: object, frame: Frame, gateway_id: str, replica_id: str) -> None:
            sent.append((gateway_id, frame.number))

    sender = FrameSender(cast(Bus, Noting()), FrameBook("replica-1", "i1"), ManualClock())
    for at in range(2):
        sender.write([(gateway_id, chunk(position=at)) for gateway_id in ("g1", "g2", "g1")])
    assert sent == [("g1", 1), ("g2", 1), ("g1", 2), ("g2", 2)]

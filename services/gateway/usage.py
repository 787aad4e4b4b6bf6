"""Publishes what requests used: several times a second what ended meanwhile, and the rest before the end."""

from __future__ import annotations

import asyncio

from services.gateway.core.usage import UsageQueue
from shared.bus.port import Bus, BusUnavailable
from shared.contracts.catalog import USAGE_RECORDED
from shared.messages.usage import UsageRecord
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.runtime.metrics import Metrics
from shared.runtime.periodic import Periodic

SEND_S = 0.2
LAST_S = 3.0
"""How long a gateway that ends goes on trying to be rid of what it still has."""

_log = get_logger(__name__)


class Usage:
    """A part. `record` only appends, so that a request's end waits for nobody; nothing is sent before `start`."""

    def __init__(self, bus: Bus, clock: Clock, queue: UsageQueue, metrics: Metrics) -> None:
        self._bus = bus
        self._clock = clock
        self._queue = queue
        self._sending = Periodic(clock, SEND_S, self.send)
        self._losing = False
        self._refused = False
        self._lost = metrics.counter("usage_lost_total", "Usage records that the bus did not take in time.")
        self._waiting = metrics.gauge("usage_waiting", "Usage records that the bus has not got yet.")

    async def start(self) -> None:
        await self._sending.start()

    async def stop(self) -> None:
        """What the bus does not take within LAST_S is lost, and said to be."""
        await self._sending.stop()
        try:
            async with asyncio.timeout(LAST_S):
                while not await self._try_to_send():
                    await self._clock.sleep_s(SEND_S)
        except TimeoutError:
            lost = self._queue.give_up()
            self._lost.inc(lost)
            _log.error("the bus is away, and this gateway ends: usage is lost", records=lost)

    def record(self, record: UsageRecord) -> None:
        if not self._queue.add(record):
            return
        self._lost.inc()
        if not self._losing:
            self._losing = True
            _log.error("the bus is away for too long: usage is lost, the oldest first", waiting=len(self._queue))

    async def send(self) -> None:
        """Everything that waits, unless the bus is away: then the next turn tries again."""
        await self._try_to_send()

    async def _try_to_send(self) -> bool:
        """Whether the bus has everything now."""
        try:
            while (batch := self._queue.batch()) is not None:
                await self._bus.publish(USAGE_RECORDED, batch, message_id=f"{batch.gateway_id}-{batch.sequence}")
                self._queue.sent()
        except BusUnavailable as error:
            self._say_refused(error)
            return False
        finally:
            self._waiting.set(len(self._queue))
        self._refused = False
        if self._losing:
            self._losing = False
            _log.warning("the bus takes usage again", lost_since_the_start=self._queue.lost)
        return True

    def _say_refused(self, error: BusUnavailable) -> None:
        """Once, and only where the bus is there: that it is away is said already."""
        if self._bus.connected and not self._refused:
            self._refused = True
            _log.warning("the bus does not take usage, which is kept meanwhile", error=error)

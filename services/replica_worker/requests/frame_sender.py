"""Frames on their way to the gateways, in order."""

from __future__ import annotations

from collections.abc import Iterable

from services.replica_worker.core.frames import FrameBook, by_gateway
from shared.bus.port import Bus
from shared.contracts.catalog import FRAME
from shared.messages.generation import Frame, TokenChunk
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_LINGER_S = 3.0
"""As long as a gateway's lease: it learns of a lost last frame within it, or has lost the streams anyway."""
_log = get_logger(__name__)


class FrameSender:
    """Numbers frames when they are written, and sends them at once. A frame that cannot be sent stays in the book:
    the gateway sees the gap and asks again."""

    def __init__(self, bus: Bus, book: FrameBook, clock: Clock) -> None:
        self.book = book
        self._bus = bus
        self._clock = clock
        self._unsent = 0

    def write(self, chunks: Iterable[tuple[str, TokenChunk]]) -> None:
        """One frame for each gateway that these chunks, of one step, belong to."""
        now_s, written_at_s = self._clock.now_s(), self._clock.wall_s()
        for gateway_id, own in by_gateway(chunks).items():
            self._send(gateway_id, self.book.write(gateway_id, own, now_s, written_at_s))

    def beat(self, running: Iterable[str]) -> None:
        """Tell the last number to gateways with running streams, and to those who were sent one just now."""
        for gateway_id in self.book.recent(self._clock.now_s(), _LINGER_S).union(running):
            self._send(gateway_id, self.book.heartbeat(gateway_id))

    def _send(self, gateway_id: str, frame: Frame) -> None:
        try:
            self._bus.send(FRAME, frame, gateway_id, frame.replica_id)
        except Exception as error:  # whatever it is, every stream of this replica goes on
            self._unsent += 1
            if self._unsent == 1:  # one line an outage, not one a step
                _log.warning("a frame was not sent", gateway_id=gateway_id, number=frame.number, reason=str(error))
        else:
            if self._unsent:
                _log.warning("frames are sent again", unsent=self._unsent)
            self._unsent = 0

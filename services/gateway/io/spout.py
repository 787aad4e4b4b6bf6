"""Tokens of a stream on their way to its socket: from the callback that hears a frame, past the response's task."""

from __future__ import annotations

from collections.abc import Callable

from services.gateway.core.stream import Deliver
from services.gateway.io.line import Line
from shared.runtime.logs import get_logger

_AT_ONCE_BYTES = 64 << 10
"""What is written before the turn is over: frames that had to wait for one may all come in one turn."""
_log = get_logger(__name__)


class Spout:
    """`write` makes events of pieces, which leave when the turn is over; a first token does not wait for the others of
    its frame. What a stalled line does not take waits here. What fails costs this stream, and
    not those that are heard of in the same frame or written in the same turn."""

    __slots__ = ("_line", "_waiting", "_write", "waiting_bytes")

    def __init__(self, line: Line, write: Callable[[Deliver], bytes]) -> None:
        self._line = line
        self._write = write
        self._waiting: list[bytes] = []
        self.waiting_bytes = 0
        line.on_room = self.flush

    def put(self, piece: Deliver) -> None:
        try:
            event = self._write(piece)
        except Exception as error:
            self._give_up(error)
            return
        if event:
            self._waiting.append(event)
            self.waiting_bytes += len(event)
            if piece.first or self.waiting_bytes > _AT_ONCE_BYTES:
                self.flush()
            elif len(self._waiting) == 1:
                self._line.turn.add(self.flush)

    def flush(self) -> None:
        if self._waiting and not self._line.flow.stalled:
            try:
                self._line.write(self.rest())
            except Exception as error:
                self._give_up(error)

    def rest(self) -> bytes:
        """What was not written yet; it is whoever takes it that writes it."""
        rest = b"".join(self._waiting)
        self._waiting.clear()
        self.waiting_bytes = 0
        return rest

    def _give_up(self, error: Exception) -> None:
        _log.exception("a piece of a stream cannot be written", error=error)
        self._line.cut()

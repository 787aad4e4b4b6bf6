"""Where the tokens of one request wait until its HTTP response takes them."""

from __future__ import annotations

from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Deliver
from services.gateway.io.spout import Spout
from shared.messages.generation import Accepted
from shared.runtime.bell import Bell

EVENT_BYTES = 256
"""About what the frame around a text weighs in a stream, and a Deliver in memory."""

Piece = Deliver | Refusal


class Outlet:
    """One writer, one reader, no task. The reader awaits `wake`: a `streaming` one is woken when a replica has
    accepted, if it is not `patient`, and for every batch until it lets pieces `flow`; the other one at the end. The
    last piece is a Refusal or a Deliver with a finish, and no other is."""

    __slots__ = ("_accepted", "_begins_early", "_own_bytes", "_pieces", "_spout", "_streaming", "wake")

    def __init__(self, *, streaming: bool, patient: bool = False) -> None:
        self._streaming = streaming
        self._begins_early = streaming and not patient
        self._accepted: Accepted | None = None
        self._pieces: list[Piece] = []
        self._spout: Spout | None = None
        self._own_bytes = 0
        self.wake = Bell()

    def open(self, accepted: Accepted) -> None:
        self._accepted = accepted
        if self._begins_early and self._spout is None:
            self.wake.set()

    @property
    def waiting_bytes(self) -> int:
        return self._own_bytes if self._spout is None else self._own_bytes + self._spout.waiting_bytes

    def flow(self, spout: Spout) -> None:
        """From now on all pieces but the last go through this one, those that wait first."""
        self.wake.clear()
        pieces, self._pieces, self._own_bytes = self._pieces, [], 0
        self._spout = spout
        for piece in pieces:
            if isinstance(piece, Refusal):
                self.fail(piece)
            else:
                self.put(piece)

    def put(self, piece: Deliver) -> None:
        if self._spout is not None and piece.finish is None:
            self._spout.put(piece)
            return
        self._pieces.append(piece)
        self._own_bytes += EVENT_BYTES + len(piece.text)
        if self._streaming or piece.finish is not None:
            self.wake.set()

    def fail(self, refusal: Refusal) -> None:
        self._pieces.append(refusal)
        self.wake.set()

    def verdict(self) -> Accepted | Refusal:
        """What the response's head is made of, once `wake` was set for the first time: a request that failed
        before its first token (not streamed: before its end) is a status, not a broken answer."""
        decisive = self._pieces[:1] if self._streaming else self._pieces[-1:]
        for piece in decisive:
            if isinstance(piece, Refusal):
                return piece
        assert self._accepted is not None, "nothing is delivered before it is accepted"
        return self._accepted

    def take(self) -> list[Piece]:
        """Everything that waits, and until there is more `wake` is not set."""
        self.wake.clear()
        pieces, self._pieces = self._pieces, []
        self._own_bytes = 0
        return pieces

"""Where the tokens of several answers to one request wait until its HTTP response takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Deliver
from services.gateway.io.outlet import EVENT_BYTES
from shared.messages.generation import Accepted


class Sheaf:
    """Outlets that are one for their reader: it awaits `wake`, a `streaming` one for every batch, also without a token
    once all are accepted if it is not `patient`; the other until all are over. The first failure is that of all:
    nothing is put in after it, and `drop` is told why the other answers are of no use."""

    def __init__(
        self, count: int, drop: Callable[[str], None], *, streaming: bool, patient: bool = False
    ) -> None:  # fmt: skip
        self.strands = tuple(Strand(self, index) for index in range(count))
        self.wake = asyncio.Event()
        self.waiting_bytes = 0
        self.failure: Refusal | None = None
        self._streaming = streaming
        self._begins_early = streaming and not patient
        self._drop = drop
        self._running = count
        self._accepted: Accepted | None = None
        self._unaccepted = set(range(count))
        self._pieces: list[tuple[int, Deliver]] = []
        self._closed = False

    def open(self, index: int, accepted: Accepted) -> None:
        """The first that comes heads the response, which begins with its first token or when all are accepted: one that
        is refused until then is a status."""
        if self._accepted is None:
            self._accepted = accepted
        self._unaccepted.discard(index)
        if self._begins_early and not self._unaccepted:
            self.wake.set()

    def put(self, index: int, piece: Deliver) -> None:
        if self.failure is not None:
            return
        self._pieces.append((index, piece))
        self.waiting_bytes += EVENT_BYTES + len(piece.text)
        self._running -= piece.finish is not None
        if self._streaming or not self._running:
            self.wake.set()

    def fail(self, refusal: Refusal) -> None:
        if self.failure is not None:
            return
        self.failure = refusal
        self.wake.set()
        if not self._closed:
            self._drop(f"Another answer to the same request failed: {refusal.message}")

    def close(self) -> None:
        """Nobody reads any more: what fails from now on is no reason to drop the others."""
        self._closed = True

    @property
    def is_over(self) -> bool:
        """Nothing more will be put in."""
        return self.failure is not None or not self._running

    def verdict(self) -> Accepted | Refusal:
        """What the response's head is made of, once `wake` was set for the first time."""
        if self.failure is not None and not (self._streaming and self._pieces):
            return self.failure
        assert self._accepted is not None, "nothing is delivered before it is accepted"
        return self._accepted

    def take(self) -> list[tuple[int, Deliver]]:
        """Everything that waits, each with the number of its answer; until there is more `wake` is not set."""
        self.wake.clear()
        pieces, self._pieces = self._pieces, []
        self.waiting_bytes = 0
        return pieces


class Strand:
    """The outlet of one of the answers."""

    def __init__(self, sheaf: Sheaf, index: int) -> None:
        self._sheaf = sheaf
        self._index = index

    @property
    def waiting_bytes(self) -> int:
        """Of all of them: there is one reader."""
        return self._sheaf.waiting_bytes

    def open(self, accepted: Accepted) -> None:
        self._sheaf.open(self._index, accepted)

    def put(self, piece: Deliver) -> None:
        self._sheaf.put(self._index, piece)

    def fail(self, refusal: Refusal) -> None:
        self._sheaf.fail(refusal)

"""Frames of one replica in the order of their numbers; a gap is asked for again, and held up behind meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import msgspec

from shared.messages.generation import Frame, Replayed, TokenChunk

MOST_FAILURES = 3
"""Replays asked for in vain, one after another, before what is missing is given up: the bus itself may be away."""
MOST_HELD = 2_000
"""Frames that may wait behind a gap: at 20 steps/s this is more than a minute."""


_POSITION = attrgetter("position")


def youngest_first(chunks: Iterable[TokenChunk]) -> list[TokenChunk]:
    """Whoever waits for a first token does not wait for the others of its frame. Each stream's own stay in order."""
    return sorted(chunks, key=_POSITION)


class AskReplay(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the replica for frames `first`..`last` again."""

    replica_id: str
    incarnation: str
    first: int
    last: int


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """`deliver` is next in order. `broken` says why what is missing cannot be had any more: every stream of
    that incarnation may have lost tokens then."""

    deliver: tuple[Frame, ...] = ()
    ask: AskReplay | None = None
    broken: str = ""


_NOTHING = Ordered()


class FrameOrder:
    """The order of one replica's frames. A new incarnation begins again at 1, and what the one before it still says is
    dropped; within one, a number is never used twice, so what was delivered before is dropped. One question is under
    way at a time."""

    def __init__(self, replica_id: str) -> None:
        self.replica_id = replica_id
        self.incarnation = ""
        self._before = ""
        self._last = 0
        self._sent = 0
        """The highest number that the replica is known to have sent."""
        self._held: dict[int, Frame] = {}
        self._asking: AskReplay | None = None
        self._failures = 0

    def on_frame(self, frame: Frame) -> Ordered:
        if frame.incarnation != self.incarnation:
            if frame.incarnation == self._before:
                return _NOTHING
            self._begin(frame.incarnation)
        if frame.number == self._last + 1 and frame.chunks and not self._held:
            self._last = frame.number
            return Ordered(deliver=(frame,))
        if frame.number <= self._last:
            return _NOTHING
        self._sent = max(self._sent, frame.number)
        if frame.chunks:
            self._held[frame.number] = frame
        if len(self._held) > MOST_HELD:
            return self._give_up("too many frames wait behind one that was lost", frame.number)
        return self._advance()

    def on_replayed(self, ask: AskReplay, replayed: Replayed) -> Ordered:
        """What came back for `ask`: a first part of it at least; the rest is asked for again."""
        if ask != self._asking:
            return _NOTHING
        self._asking, self._failures = None, 0
        begins = any(frame.number == ask.first for frame in replayed.frames) or ask.first <= self._last
        if replayed.missing or not begins:
            return self._give_up("frames were lost on the way and the replica no longer has them", ask.last)
        self._held.update({frame.number: frame for frame in replayed.frames if frame.number > self._last})
        return self._advance()

    def on_replay_failed(self, ask: AskReplay, reason: str) -> Ordered:
        """It is asked for again when the replica is next heard of."""
        if ask != self._asking:
            return _NOTHING
        self._failures += 1
        if self._failures < MOST_FAILURES:
            self._asking = None
            return _NOTHING
        return self._give_up(f"frames were lost on the way and the replica could not repeat them: {reason}", ask.last)

    def _begin(self, incarnation: str) -> None:
        self._before, self.incarnation = self.incarnation, incarnation
        self._last = self._sent = 0
        self._held = {}
        self._asking, self._failures = None, 0

    def _advance(self) -> Ordered:
        """Deliver what is in order now, and ask for the first gap."""
        deliver = []
        while (frame := self._held.pop(self._last + 1, None)) is not None:
            deliver.append(frame)
            self._last += 1
        return Ordered(deliver=tuple(deliver), ask=self._ask())

    def _ask(self) -> AskReplay | None:
        last = min(self._held) - 1 if self._held else self._sent
        if self._asking is not None or last <= self._last:
            return None
        self._asking = AskReplay(
            replica_id=self.replica_id, incarnation=self.incarnation, first=self._last + 1, last=last
        )
        return self._asking

    def _give_up(self, reason: str, skip_to: int) -> Ordered:
        """Go on after the gap, for the sake of streams that have yet to begin."""
        self._last = max(self._last, skip_to, *self._held)
        self._held = {}
        self._asking, self._failures = None, 0
        return Ordered(broken=reason)

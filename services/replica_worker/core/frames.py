"""Numbered frames: all tokens of one engine step for one gateway, kept for a while to be sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from shared.messages.generation import Frame, Replay, Replayed, TokenChunk

_CHUNK_OVERHEAD_BYTES = 96
_TOKEN_BYTES = 5
_LOGPROB_BYTES = 32


@dataclass
class _Pair:
    """What was said to one gateway. `kept` ends with the frame numbered `last`."""

    last: int = 0
    sent_at_s: float = float("-inf")
    kept_bytes: int = 0
    kept: deque[tuple[Frame, int]] = field(default_factory=deque)


@dataclass(frozen=True, kw_only=True)
class KeepLimits:
    """Of one gateway's replay buffer: whichever is reached first."""

    frames: int = 1_024
    size_bytes: int = 4 << 20
    answer_bytes: int = 512 << 10
    """Of one Replayed: a message on the bus holds at most 1 MiB."""


@dataclass
class FrameBook:
    """Numbers frames from 1 per gateway; a number is never used twice in one incarnation."""

    replica_id: str
    incarnation: str
    limits: KeepLimits = KeepLimits()
    _pairs: dict[str, _Pair] = field(init=False, default_factory=dict)

    def write(self, gateway_id: str, chunks: Iterable[TokenChunk], now_s: float, written_at_s: float = 0.0) -> Frame:
        """The next frame for this gateway, kept for replay. `written_at_s` is the wall clock's."""
        pair = self._pairs.setdefault(gateway_id, _Pair())
        pair.last += 1
        pair.sent_at_s = now_s
        frame = self._frame(pair.last, tuple(chunks), written_at_s)
        self._keep(pair, frame)
        return frame

    def heartbeat(self, gateway_id: str) -> Frame:
        """No chunks, the last number again: whoever missed that one learns of it."""
        return self._frame(self._pairs.setdefault(gateway_id, _Pair()).last, ())

    def recent(self, now_s: float, within_s: float) -> set[str]:
        """Gateways that were sent a frame not long ago: their last one may have been lost."""
        return {gateway_id for gateway_id, pair in self._pairs.items() if now_s - pair.sent_at_s <= within_s}

    def remind(self, gateway_id: str, now_s: float) -> None:
        """Count it as sent to just now: it was away, and must learn which number it should have seen."""
        if (pair := self._pairs.get(gateway_id)) is not None:
            pair.sent_at_s = now_s

    def replay(self, ask: Replay) -> Replayed:
        """The frames asked for, as many as one answer holds; `missing` if the first of them is gone."""
        pair = self._pairs.get(ask.gateway_id)
        if ask.incarnation != self.incarnation or pair is None:
            return Replayed(frames=(), missing=True)
        oldest = pair.last - len(pair.kept) + 1
        if ask.first < oldest or ask.last > pair.last:
            return Replayed(frames=(), missing=True)
        frames: list[Frame] = []
        left_bytes = self.limits.answer_bytes
        for frame, size_bytes in pair.kept:
            if ask.first <= frame.number <= ask.last and (left_bytes > 0 or not frames):
                frames.append(frame)
                left_bytes -= size_bytes
        return Replayed(frames=tuple(frames))

    def forget(self, gateway_id: str) -> None:
        """Drop what is kept for a gateway that is gone; its numbers go on should it return."""
        if (pair := self._pairs.get(gateway_id)) is not None:
            pair.kept.clear()
            pair.kept_bytes = 0
            pair.sent_at_s = float("-inf")

    def _keep(self, pair: _Pair, frame: Frame) -> None:
        size_bytes = _size_bytes(frame.chunks)
        pair.kept.append((frame, size_bytes))
        pair.kept_bytes += size_bytes
        while len(pair.kept) > self.limits.frames or (pair.kept_bytes > self.limits.size_bytes and len(pair.kept) > 1):
            pair.kept_bytes -= pair.kept.popleft()[1]

    def _frame(self, number: int, chunks: tuple[TokenChunk, ...], written_at_s: float = 0.0) -> Frame:
        return Frame(
            replica_id=self.replica_id, incarnation=self.incarnation, number=number, chunks=chunks,
            written_at_s=written_at_s,
        )  # fmt: skip


def by_gateway(chunks: Iterable[tuple[str, TokenChunk]]) -> dict[str, list[TokenChunk]]:
    """The chunks of one step, grouped by the gateway that asked for them, in their order."""
    grouped: dict[str, list[TokenChunk]] = {}
    for gateway_id, chunk in chunks:
        grouped.setdefault(gateway_id, []).append(chunk)
    return grouped


def _size_bytes(chunks: Iterable[TokenChunk]) -> int:
    size_bytes = 0
    for chunk in chunks:
        size_bytes += _CHUNK_OVERHEAD_BYTES + _TOKEN_BYTES * len(chunk.token_ids) + 4 * len(chunk.text)
        if chunk.logprobs:
            size_bytes += _LOGPROB_BYTES * sum(1 + len(each.top) for each in chunk.logprobs)
    return size_bytes

"""Continuous batching: who has a row, who waits, when a sequence ends. The same for every engine of ours.

Not thread-safe: one thread or task drives it, step by step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from services.replica_worker.engine.batch import Piece, next_batch
from services.replica_worker.engine.port import EngineInfo, StepToken
from services.replica_worker.engine.sequence import WAITING, Sequence


class Schedule:
    """Up to `max_rows` sequences run at once, by row; the others wait in the order of their arrival."""

    def __init__(self, info: EngineInfo, prefill_chunk_tokens: int) -> None:
        self._info = info
        self._chunk_tokens = prefill_chunk_tokens
        self._free_rows = list(reversed(range(info.max_rows)))
        self.running: dict[int, Sequence] = {}
        self.waiting: deque[Sequence] = deque()
        self.steps = 0

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def cached_tokens(self) -> int:
        return sum(sequence.cached_tokens for sequence in list(self.running.values()))

    def submit(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Free its row, or take it out of the queue; nothing happens if it has ended."""
        if sequence.row != WAITING:
            self.release(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def begin_step(self) -> tuple[Piece, ...]:
        """Give free rows to those who wait and say what the next step computes; empty if nothing runs."""
        while self.waiting and self._free_rows:
            sequence = self.waiting.popleft()
            sequence.row = self._free_rows.pop()
            self.running[sequence.row] = sequence
        pieces = next_batch((sequence.progress() for sequence in self.running.values()), self._chunk_tokens)
        self.steps += bool(pieces)
        return pieces

    def advance(self, pieces: Iterable[Piece]) -> list[Sequence]:
        """Note that the step computed these pieces; returns, in order, the sequences to sample now.

        A sequence that was aborted during the step is left out.
        """
        sampled = []
        for piece in pieces:
            sequence = self.running.get(piece.row)
            if sequence is None:
                continue
            sequence.advance(piece, self.steps)
            if piece.last:
                sampled.append(sequence)
        return sampled

    def accept(self, sequence: Sequence, token_id: int) -> StepToken:
        """Append the sampled token; releases the row if it was the last one."""
        position = sequence.next_position
        sequence.append(token_id)
        finish = self._finish_reason(sequence, token_id)
        if finish:
            self.release(sequence)
        return StepToken(sequence.request.request_id, token_id, position, finish)

    def fail(self, sequence: Sequence, why: str) -> StepToken:
        """End a running sequence with an error and release its row."""
        self.release(sequence)
        return StepToken(sequence.request.request_id, -1, sequence.next_position, error=why)

    def release(self, sequence: Sequence) -> None:
        del self.running[sequence.row]
        self._free_rows.append(sequence.row)
        sequence.row = WAITING

    def _finish_reason(self, sequence: Sequence, token_id: int) -> str | None:
        if token_id in self._info.eos_token_ids and not sequence.request.ignore_eos:
            return "stop"
        full = len(sequence.token_ids) >= self._info.max_context_tokens
        return "length" if full or sequence.produced_tokens >= sequence.request.max_tokens else None

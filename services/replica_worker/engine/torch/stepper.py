"""Continuous batching: who runs, one step at a time. Single-threaded; the engine's thread drives it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence as SequenceOf

import torch

from services.replica_worker.engine.batch import Piece, next_batch
from services.replica_worker.engine.port import EngineFailed, Probe, StepToken

from .cache import KvCache
from .lora import AdaptedRows
from .model import LlamaModel, Step
from .sampling import sample, uniform
from .sequence import WAITING, Sequence

FAILED_STEPS_LIMIT = 3
"""After so many failed steps in a row the engine gives itself up."""

Outcome = tuple[Sequence, StepToken | Probe]

_log = logging.getLogger(__name__)


class Stepper:
    """Up to `rows` sequences run at once; the others wait in the order of their arrival."""

    def __init__(
        self, model: LlamaModel, cache: KvCache, prefill_chunk_tokens: int, eos_token_ids: SequenceOf[int]
    ) -> None:
        self._model = model
        self._cache = cache
        self._chunk_tokens = prefill_chunk_tokens
        self._eos = frozenset(eos_token_ids)
        _, rows, _, self._context_tokens, _ = cache.keys.shape
        self._free_rows = list(range(rows - 1, -1, -1))
        self._failed_in_a_row = 0
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
            self._release(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def step(self) -> list[Outcome]:
        """Run one forward pass; returns what it produced, with a final token for every sequence that ended.

        A pass that raises ends the sequences that were in it with an error token each; everything else
        goes on. Raises EngineFailed after FAILED_STEPS_LIMIT of them in a row.
        """
        self._admit()
        pieces = next_batch((sequence.progress() for sequence in self.running.values()), self._chunk_tokens)
        if not pieces:
            return []
        self.steps += 1
        try:
            outcomes = self._run(pieces)
        except Exception as error:
            return self._fail(pieces, error)
        self._failed_in_a_row = 0
        return outcomes

    def _admit(self) -> None:
        while self.waiting and self._free_rows:
            sequence = self.waiting.popleft()
            sequence.row = self._free_rows.pop()
            self.running[sequence.row] = sequence

    def _release(self, sequence: Sequence) -> None:
        del self.running[sequence.row]
        self._free_rows.append(sequence.row)
        sequence.row = WAITING

    def _run(self, pieces: tuple[Piece, ...]) -> list[Outcome]:
        logits = self._model.forward(self._step_of(pieces), self._cache)
        for piece in pieces:
            self.running[piece.row].advance(piece, self.steps)
        sampled = [self.running[piece.row] for piece in pieces if piece.last]
        if not sampled:
            return []
        best, greedy = (column.tolist() for column in logits.max(dim=-1))
        return [
            (sequence, self._finish(sequence, logits[i], greedy[i], abs(best[i]) < float("inf")))
            for i, sequence in enumerate(sampled)
        ]

    def _step_of(self, pieces: tuple[Piece, ...]) -> Step:
        token_ids, positions, rows, slots, sampled = [], [], [], [], []
        for piece in pieces:
            sequence, count = self.running[piece.row], piece.stop - piece.start
            token_ids += sequence.token_ids[piece.start : piece.stop]
            positions += range(piece.start, piece.stop)
            rows += [piece.row] * count
            slots += [sequence.request.slot] * count
            if piece.last:
                sampled.append(len(token_ids) - 1)
        device = self._cache.keys.device
        return Step(
            pieces=pieces,
            token_ids=torch.tensor(token_ids, device=device),
            positions=torch.tensor(positions, device=device),
            rows=torch.tensor(rows, device=device),
            sampled=torch.tensor(sampled, dtype=torch.int64, device=device),
            adapted=AdaptedRows.of(slots, device),
        )

    def _finish(self, sequence: Sequence, logits: torch.Tensor, greedy: int, finite: bool) -> StepToken | Probe:
        """One sequence's share of a step; releases its row if that was its last."""
        if sequence.probe_top:
            self._release(sequence)
            return _probe(logits, sequence.probe_top)
        if not finite:
            self._release(sequence)
            return _error(sequence, "the model's output is not finite")
        position = sequence.next_position
        token_id = _choose(sequence, logits, greedy)
        sequence.append(token_id)
        finish = self._finish_reason(sequence, token_id)
        if finish:
            self._release(sequence)
        return StepToken(sequence.request.request_id, token_id, position, finish)

    def _finish_reason(self, sequence: Sequence, token_id: int) -> str | None:
        if token_id in self._eos and not sequence.request.ignore_eos:
            return "stop"
        full = len(sequence.token_ids) >= self._context_tokens
        return "length" if full or sequence.produced_tokens >= sequence.request.max_tokens else None

    def _fail(self, pieces: tuple[Piece, ...], error: Exception) -> list[Outcome]:
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= FAILED_STEPS_LIMIT:
            raise EngineFailed(f"{self._failed_in_a_row} steps in a row failed: {error}") from error
        _log.exception("an engine step of %d sequences failed", len(pieces))
        ended = [self.running[piece.row] for piece in pieces]
        for sequence in ended:
            self._release(sequence)
        return [(sequence, _error(sequence, f"the engine step failed: {error}")) for sequence in ended]


def _choose(sequence: Sequence, logits: torch.Tensor, greedy: int) -> int:
    request = sequence.request
    if request.temperature <= 0.0:
        return greedy
    draw = uniform(request.seed, sequence.next_position)
    return sample(logits, request.temperature, request.top_p, draw)


def _probe(logits: torch.Tensor, top: int) -> Probe:
    finite = bool(logits.isfinite().all())
    logprobs, token_ids = torch.log_softmax(logits, dim=-1).topk(min(top, len(logits)))
    return Probe(finite=finite, token_ids=tuple(token_ids.tolist()), logprobs=tuple(logprobs.tolist()))


def _error(sequence: Sequence, why: str) -> StepToken:
    return StepToken(sequence.request.request_id, -1, sequence.next_position, error=why)

"""One engine step: the schedule's pieces through the model, and a token or an end for every sequence."""

from __future__ import annotations

import logging
from weakref import WeakKeyDictionary

import torch

from services.replica_worker.engine.batch import Piece
from services.replica_worker.engine.grammar import GrammarLost
from services.replica_worker.engine.port import EngineFailed, Probe, StepToken
from services.replica_worker.engine.schedule import Schedule
from services.replica_worker.engine.sequence import Outcome, Sequence
from services.replica_worker.engine.shaping import Logprobs, Shaping

from .cache import KvCache
from .linear import Activation
from .model import LlamaModel
from .sampling import sample, uniform
from .shaped import Shaped
from .steps import step_of

FAILED_STEPS_LIMIT = 3
"""After so many failed steps in a row the engine gives itself up."""

_log = logging.getLogger(__name__)


class Stepper:
    """Single-threaded; the engine's thread drives it."""

    def __init__(self, model: LlamaModel, cache: KvCache, schedule: Schedule) -> None:
        self._model = model
        self._kernels = model.kernels
        self._device = model.device
        self._cache = cache
        self._failed_in_a_row = 0
        self._shaped: WeakKeyDictionary[Sequence, Shaped] = WeakKeyDictionary()
        self.schedule = schedule

    def step(self) -> list[Outcome]:
        """Run one forward pass; returns what it produced, with a final token for every sequence that ended.

        A pass that raises ends the sequences that were in it with an error token each; everything else
        goes on. Raises EngineFailed after FAILED_STEPS_LIMIT of them in a row.
        """
        pieces = self.schedule.begin_step()
        if not pieces:
            return []
        try:
            step = step_of(pieces, self.schedule.running, self._kernels, self._device)
            logits = self._model.forward(step, self._cache)
        except Exception as error:
            return self._fail(pieces, error)
        self._failed_in_a_row = 0
        return self._outcomes(self.schedule.advance(pieces), logits)

    def _outcomes(self, sampled: list[Sequence], logits: Activation) -> list[Outcome]:
        if not sampled:
            return []
        greedy, finite = self._kernels.best(logits.view)
        return [
            (sequence, self._outcome(sequence, logits.tensor[i], greedy[i], finite[i]))
            for i, sequence in enumerate(sampled)
        ]

    def _outcome(self, sequence: Sequence, logits: torch.Tensor, greedy: int, finite: bool) -> StepToken | Probe:
        if sequence.probe_top:
            self.schedule.release(sequence)
            return _probe(logits, sequence.probe_top)
        if not finite:
            return self.schedule.fail(sequence, "the model's output is not finite")
        if (shaping := sequence.request.shaping) is not None:
            try:
                return self.schedule.accept(sequence, *self._choose_shaped(sequence, shaping, logits))
            except GrammarLost as error:
                return self.schedule.break_off(sequence, str(error))
        return self.schedule.accept(sequence, _choose(sequence, logits, greedy))

    def _choose_shaped(self, sequence: Sequence, shaping: Shaping, logits: torch.Tensor) -> tuple[int, Logprobs | None]:
        if (shaped := self._shaped.get(sequence)) is None:
            shaped = Shaped(shaping, sequence.request.produced_token_ids, len(logits), logits.device)
            self._shaped[sequence] = shaped
        return shaped.choose(logits, lambda row: _choose(sequence, row, int(row.argmax())))

    def _fail(self, pieces: tuple[Piece, ...], error: Exception) -> list[Outcome]:
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= FAILED_STEPS_LIMIT:
            raise EngineFailed(f"{self._failed_in_a_row} steps in a row failed: {error}") from error
        _log.error("an engine step of %d sequences failed", len(pieces), exc_info=error)
        ended = [self.schedule.running[piece.row] for piece in pieces]
        return [(sequence, self.schedule.fail(sequence, f"the engine step failed: {error}")) for sequence in ended]


def _choose(sequence: Sequence, logits: torch.Tensor, greedy: int) -> int:
    request = sequence.request
    if request.temperature <= 0.0:
        return greedy
    draw = uniform(request.seed, sequence.next_position)
    return sample(logits.float(), request.temperature, request.top_p, draw)


def _probe(logits: torch.Tensor, top: int) -> Probe:
    finite = bool(logits.isfinite().all())
    logprobs, token_ids = torch.log_softmax(logits.float(), dim=-1).topk(min(top, len(logits)))
    return Probe(finite=finite, token_ids=tuple(token_ids.tolist()), logprobs=tuple(logprobs.tolist()))

"""Runs inside vLLM's worker: draws keyed by (seed, position), as the reference engine makes them, of the distribution
that the request asks for.

vLLM's own generators count draws, and its penalties and grammars know nothing of what another replica produced, so a
continuation would begin anew. Here every request is greedy for vLLM, and the logits of a row are replaced by the one
token that was chosen; where somebody wants to hear how likely it was, they stay, and vLLM's own choice is replaced.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates
from vllm.v1.sample.sampler import Sampler

from services.replica_worker.engine.grammar import GrammarLost
from services.replica_worker.engine.grammars import Grammars
from services.replica_worker.engine.shaping import GrammarUnusable
from services.replica_worker.engine.torch.eos import eos_token_ids

from .rows import Row
from .wording import draw_of

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig


class KeyedSampling(LogitsProcessor):
    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, Row] = {}
        self._chosen: dict[int, int] = {}
        model = vllm_config.model_config
        folder = Path(model.model)
        self._eos_token_ids = eos_token_ids(folder)
        self._grammars = Grammars(folder, model.get_vocab_size(), self._eos_token_ids)
        self._grammars.prepare()
        _put_through(self._chosen)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, _row)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self._chosen.clear()
        for index, row in self._rows.items():
            logits_of_row = logits[index]
            token_id, shown = self._choice(row, logits_of_row)
            if row.draw.told:
                self._chosen[index] = token_id
                if shown is not logits_of_row:
                    logits_of_row.copy_(shown)
            else:
                logits_of_row.fill_(-torch.inf)
                logits_of_row[token_id] = 0.0
        return logits

    def _choice(self, row: Row, logits: torch.Tensor) -> tuple[int, torch.Tensor]:
        """An answer that cannot go on under its schema ends here; the engine sees that it is not whole."""
        try:
            return row.choose(logits, self._grammars)
        except (GrammarLost, GrammarUnusable):
            return self._eos_token_ids[0], logits


def _row(params: SamplingParams, prompt: list[int] | None, produced: list[int]) -> Row | None:
    draw = draw_of(params.extra_args)
    return None if draw is None else Row(draw, prompt or (), produced)


def _put_through(chosen: dict[int, int]) -> None:
    """vLLM takes these tokens, by row, whatever their logits."""
    own = getattr(Sampler.greedy_sample, "own", Sampler.greedy_sample)

    def greedy_sample(logits: torch.Tensor) -> torch.Tensor:
        token_ids: torch.Tensor = own(logits)
        for index, token_id in chosen.items():
            token_ids[index] = token_id
        return token_ids

    greedy_sample.own = own  # type: ignore[attr-defined]
    Sampler.greedy_sample = staticmethod(greedy_sample)

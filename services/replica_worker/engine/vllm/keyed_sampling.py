"""Runs inside vLLM's worker: draws keyed by (seed, position), as the reference engine makes them.

vLLM's own generators count draws, so a continuation on another replica would begin anew. Here every request
is greedy for vLLM, and the logits of a sampled row are replaced by the one token that was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates

from services.replica_worker.engine.torch.sampling import sample, uniform

from .wording import Draw, draw_of

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig


class _Row(msgspec.Struct, frozen=True):
    """`produced` is vLLM's own list of the tokens that a request has so far, and grows."""

    draw: Draw
    produced: Sequence[int]


class KeyedSampling(LogitsProcessor):
    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Row] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, _row)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for index, row in self._rows.items():
            logits_of_row, draw = logits[index], row.draw
            number = uniform(draw.seed, draw.first_position + len(row.produced))
            token_id = sample(logits_of_row, draw.temperature, draw.top_p, number)
            logits_of_row.fill_(-torch.inf)
            logits_of_row[token_id] = 0.0
        return logits


def _row(params: SamplingParams, prompt: Any, produced: Sequence[int]) -> _Row | None:
    draw = draw_of(params.extra_args)
    return None if draw is None else _Row(draw, produced)

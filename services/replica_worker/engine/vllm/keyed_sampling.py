"""Runs inside vLLM's worker: draws keyed by (seed, position), as the reference engine makes them, of the distribution
that the request asks for.

vLLM's own generators count draws, and its penalties and grammars know nothing of what another replica produced, so a
continuation would begin anew. Here every request is greedy for vLLM, and the logits of a row are replaced by the one
token that was chosen; where somebody wants to hear how likely it was, they stay, and vLLM's own choice is replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, process_dict_updates
from vllm.v1.sample.sampler import Sampler

from services.replica_worker.engine.grammar import GrammarLost, Grammars
from services.replica_worker.engine.shaping import GrammarUnusable, Shaping
from services.replica_worker.engine.torch.eos import eos_token_ids
from services.replica_worker.engine.torch.sampling import sample, uniform
from services.replica_worker.engine.torch.shaped import Shaped

from .wording import Draw, draw_of

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig


class _Row:
    """`produced` is vLLM's own list of the tokens that a request has so far, and grows; `before` were produced
    elsewhere."""

    def __init__(self, draw: Draw, before: Sequence[int], produced: Sequence[int]) -> None:
        self.draw = draw
        self.before = before
        self.produced = produced
        self.shaped: Shaped | None = None

    def pick(self, logits: torch.Tensor) -> int:
        draw = self.draw
        if draw.greedy:
            return int(logits.argmax())
        return sample(
            logits, draw.temperature, draw.top_p, uniform(draw.seed, draw.first_position + len(self.produced))
        )


class KeyedSampling(LogitsProcessor):
    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Row] = {}
        self._chosen: dict[int, int] = {}
        model = vllm_config.model_config
        folder = Path(model.model)
        self._eos_token_ids = eos_token_ids(folder)
        self._grammars = Grammars(folder, model.get_vocab_size(), self._eos_token_ids)
        # At the first schema the whole batch would wait for it.
        threading.Thread(target=_prepare, args=(self._grammars,), daemon=True, name="grammars").start()
        _put_through(self._chosen)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, _row)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        self._chosen.clear()
        for index, row in self._rows.items():
            logits_of_row = logits[index]
            token_id = row.pick(logits_of_row) if row.draw.plain else self._pick_shaped(row, logits_of_row)
            if row.draw.told:
                self._chosen[index] = token_id
            else:
                logits_of_row.fill_(-torch.inf)
                logits_of_row[token_id] = 0.0
        return logits

    def _pick_shaped(self, row: _Row, logits: torch.Tensor) -> int:
        """An answer that cannot go on under its schema ends here; the engine sees that it is not whole."""
        try:
            if row.shaped is None:
                row.shaped = self._shaped(row, logits)
            shown = row.shaped.row(logits)
            token_id = row.shaped.pick(shown, row.pick)
        except (GrammarLost, GrammarUnusable):
            return self._eos_token_ids[0]
        if row.draw.told:
            logits.copy_(shown)
        return token_id

    def _shaped(self, row: _Row, logits: torch.Tensor) -> Shaped:
        draw = row.draw
        shaping = Shaping(
            frequency_penalty=draw.frequency_penalty,
            presence_penalty=draw.presence_penalty,
            logit_bias=dict(draw.logit_bias),
            grammar=self._grammars.compile(draw.json_schema) if draw.json_schema else None,
        )
        return Shaped(shaping, [*row.before, *row.produced], len(logits), logits.device)


def _row(params: SamplingParams, prompt: Any, produced: Sequence[int]) -> _Row | None:
    draw = draw_of(params.extra_args)
    if draw is None:
        return None
    before = [] if draw.plain else list(prompt)[len(prompt) - draw.first_position :]
    return _Row(draw, before, produced)


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


def _prepare(grammars: Grammars) -> None:
    with suppress(GrammarUnusable):  # whoever asks for a schema is told so
        grammars.prepare()

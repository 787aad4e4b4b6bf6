"""How the next token of one of vLLM's rows is chosen. Knows nothing of vLLM."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from services.replica_worker.engine.grammars import Grammars
from services.replica_worker.engine.shaping import Shaping
from services.replica_worker.engine.torch.sampling import sample, uniform
from services.replica_worker.engine.torch.shaped import Shaped

from .wording import Draw


class Row:
    """`produced` is vLLM's own list of the tokens that a request has so far, and grows. vLLM has a token chosen for
    every part of a long prompt as well, and throws away what comes before the last: such a token was never
    produced."""

    def __init__(self, draw: Draw, prompt: Sequence[int], produced: Sequence[int]) -> None:
        """`prompt` ends with what other replicas produced."""
        self.draw = draw
        self._before = [] if draw.plain else prompt[len(prompt) - draw.first_position :]
        self._produced = produced
        self._shaped: Shaped | None = None
        self._shaped_for = 0
        """How many tokens have to be produced for `_shaped` to know them all."""

    def choose(self, logits: torch.Tensor, grammars: Grammars) -> tuple[int, torch.Tensor]:
        """The next token, and the logits [vocabulary] that say how likely it was; those given stay as they are.
        Raises GrammarLost or GrammarUnusable if the answer cannot go on under its schema."""
        if self.draw.plain:
            return self._pick(logits), logits
        if self._shaped is None or self._shaped_for != len(self._produced):
            self._shaped = self._begin(len(logits), logits.device, grammars)
        shown = self._shaped.row(logits)
        token_id = self._shaped.pick(shown, self._pick)
        self._shaped_for = len(self._produced) + 1
        return token_id, shown

    def _begin(self, vocabulary_size: int, device: torch.device, grammars: Grammars) -> Shaped:
        draw = self.draw
        shaping = Shaping(
            frequency_penalty=draw.frequency_penalty,
            presence_penalty=draw.presence_penalty,
            logit_bias=dict(draw.logit_bias),
            grammar=grammars.compile(draw.json_schema) if draw.json_schema else None,
        )
        self._shaped_for = len(self._produced)
        return Shaped(shaping, [*self._before, *self._produced], vocabulary_size, device)

    def _pick(self, logits: torch.Tensor) -> int:
        draw = self.draw
        if draw.greedy:
            return int(logits.argmax())
        position = draw.first_position + len(self._produced)
        return sample(logits, draw.temperature, draw.top_p, uniform(draw.seed, position))

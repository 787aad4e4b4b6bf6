"""One answer's penalties, bias, log probabilities and grammar, on the device that computes its logits.

Nothing here knows of a batch: what a request asks for touches a copy of its own row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch

from services.replica_worker.engine.grammar import Compiled, Matcher
from services.replica_worker.engine.shaping import Logprobs, Shaping

Pick = Callable[[torch.Tensor], int]


class Shaped:
    """`produced` is the answer so far, wherever it was computed: another replica's tokens count as its own. Every
    method raises GrammarLost when the answer cannot go on under its schema."""

    def __init__(self, shaping: Shaping, produced: Sequence[int], vocabulary_size: int, device: torch.device) -> None:
        self._shaping = shaping
        self._penalised = bool(shaping.frequency_penalty or shaping.presence_penalty)
        self._counts: Counter[int] = Counter()
        self._shift: torch.Tensor | None = None
        if self._penalised or shaping.logit_bias:
            self._shift = torch.zeros(vocabulary_size, device=device)
            self._put(shaping.logit_bias)
        self._matcher = _matcher(shaping, produced)
        self._note(produced)

    def choose(self, logits: torch.Tensor, pick: Pick) -> tuple[int, Logprobs | None]:
        """The next token by `pick` of what is allowed, and what is to be heard of it. `logits` [vocabulary], of any
        dtype, stay as they are."""
        row, top = self.row(logits), self._shaping.top_logprobs
        token_id = self.pick(row, pick)
        return token_id, None if top is None else logprobs_of(row, token_id, top)

    def row(self, logits: torch.Tensor) -> torch.Tensor:
        """After penalties and bias, before the grammar; float32, and perhaps `logits` themselves."""
        return logits.float() if self._shift is None else logits.float() + self._shift

    def pick(self, row: torch.Tensor, pick: Pick) -> int:
        """The next token of the answer."""
        token_id = pick(row) if self._matcher is None else pick(_allowed(self._matcher, row))
        if self._matcher is not None:
            self._matcher.take(token_id)
        self._note((token_id,))
        return token_id

    def _note(self, token_ids: Sequence[int]) -> None:
        if self._penalised and token_ids:
            self._counts.update(token_ids)
            self._put(set(token_ids))

    def _put(self, token_ids: Collection[int]) -> None:
        """Computed anew from the counts, not added to: the same after any number of replicas."""
        assert self._shift is not None
        shifts = [self._of(token_id) for token_id in token_ids]
        at = torch.tensor([*token_ids], dtype=torch.int64, device=self._shift.device)
        self._shift[at] = torch.tensor(shifts, device=self._shift.device)

    def _of(self, token_id: int) -> float:
        asked, count = self._shaping, self._counts[token_id]
        penalty = asked.frequency_penalty * count + asked.presence_penalty * (count > 0)
        return asked.logit_bias.get(token_id, 0.0) - penalty


def _matcher(shaping: Shaping, produced: Sequence[int]) -> Matcher | None:
    if shaping.grammar is None:
        return None
    assert isinstance(shaping.grammar, Compiled), "another engine's"
    return shaping.grammar.begin(produced)


def _allowed(matcher: Matcher, row: torch.Tensor) -> torch.Tensor:
    bits = np.unpackbits(np.frombuffer(matcher.allowed(), np.uint8), count=len(row), bitorder="little")
    return row.masked_fill(torch.from_numpy(bits == 0).to(row.device), -torch.inf)


def logprobs_of(row: torch.Tensor, token_id: int, top: int) -> Logprobs:
    """Of float32 logits [vocabulary], as they are before grammar and temperature."""
    values = torch.log_softmax(row, dim=-1)
    if not top:
        return Logprobs(values[token_id].item())
    likeliest, token_ids = values.topk(min(top, len(values)))
    return Logprobs(values[token_id].item(), tuple(token_ids.tolist()), tuple(likeliest.tolist()))

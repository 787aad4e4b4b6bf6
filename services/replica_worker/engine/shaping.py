"""What a request may ask of its next-token distribution beside temperature and top_p, and what it may hear of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class Grammar(Protocol):
    """A JSON schema that the engine which made this object has understood."""

    @property
    def json_schema(self) -> str: ...


class GrammarUnusable(Exception):
    """This engine cannot hold answers to the schema; the message says why in one sentence."""


class Shaping(msgspec.Struct, frozen=True, kw_only=True):
    """The penalties are subtracted from the logit of what the answer holds already: `presence_penalty` once,
    `frequency_penalty` for each time. `logit_bias` is added by token id. `top_logprobs` None: no log probabilities are
    wanted; otherwise how many alternatives. `grammar` says which tokens may come next at all."""

    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = {}
    top_logprobs: int | None = None
    grammar: Grammar | None = None


class Logprobs(msgspec.Struct, frozen=True):
    """Natural logarithms after penalties and bias, before grammar, temperature and top_p: of the token that was chosen,
    and of the likeliest `token_ids`, the likeliest first."""

    chosen: float
    token_ids: tuple[int, ...] = ()
    of_token_ids: tuple[float, ...] = ()

"""A workload's calls as requests to a fleet: prompts of about the wanted length, no two of which begin alike."""

from __future__ import annotations

import itertools
import random
import string
from collections.abc import Sequence

import msgspec

from loadtest.calibration.asking import Asker
from loadtest.calibration.seen import Ask
from loadtest.calibration.stage import Customer
from loadtest.workloads.calls import calls
from loadtest.workloads.shape import TrafficShape

_LETTERS = string.ascii_lowercase + "    "
ALONE_TOKENS = (40, 120, 200, 400, 600, 800)
"""Of the prompts of requests that have the fleet for themselves."""
ALONE_EACH = 10
"""So many of each of them."""
FROM_RAM = 24
"""Requests of a fleet with fewer slots than customers: most find their adapter in RAM."""
_LULL_S = 0.12
"""Before each of them, on average: who has just done the same does it faster."""
VOLLEY = 8
"""Requests that are sent at one moment. Their prompts are short: longer ones wait for each other's steps, and say less
of what else holds them up."""
BESIDE = ((40, 1), (400, 2), (400, 6), (800, 4))
"""Prompts of questions that are asked while other answers are being given, and how many of these."""
_SHORT_TOKENS = 40
_VOLLEY_TOKENS = 32
_LONG_TOKENS = 160
_BETWEEN_S = 0.005
_MEANWHILE_S = 0.06
"""After the beginning of long answers: they are being given by then, and far from over."""
_PROBES = (100, 300)
"""Characters of the two prompts that tell how many tokens a prompt gets."""


class Tokenizing(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of n characters becomes about `tokens` + n ÷ `characters_per_token` tokens, template included."""

    tokens: float
    characters_per_token: float

    def characters(self, prompt_tokens: int) -> int:
        return max(1, round((prompt_tokens - self.tokens) * self.characters_per_token))


async def learn_tokenizing(asker: Asker, customer: Customer, run: str) -> Tokenizing:
    """Raises RuntimeError if the fleet does not answer."""
    draw = random.Random(run)
    asks = [_ask(customer, f"{run}-probe-{size}", _text(draw, size), at_s=0.5 * at) for at, size in enumerate(_PROBES)]
    short, long = await asker.run(asks)
    if short.outcome != "ok" or long.outcome != "ok" or long.prompt_tokens <= short.prompt_tokens:
        raise RuntimeError(f"the fleet did not answer two short questions: {short.outcome}, {long.outcome}")
    characters_per_token = (_PROBES[1] - _PROBES[0]) / (long.prompt_tokens - short.prompt_tokens)
    return Tokenizing(
        tokens=short.prompt_tokens - _PROBES[0] / characters_per_token, characters_per_token=characters_per_token
    )


def asks(shape: TrafficShape, customers: Sequence[Customer], tokenizing: Tokenizing, run: str) -> list[Ask]:
    """The same calls for the same shape; the texts are those of `run`, a name, so that no run finds another's in a
    cache."""
    draw = random.Random(run)
    return [
        Ask(
            at_s=call.at_s,
            adapter=call.tenant,
            alias=customers[call.tenant].alias,
            key=customers[call.tenant].key,
            prompt=_text(draw, tokenizing.characters(call.prompt_tokens)),
            max_tokens=call.output_tokens,
            request_id=f"{run}-{number}",
        )
        for number, call in enumerate(calls(shape))
    ]


def each_once(customers: Sequence[Customer], run: str, apart_s: float = 0.1) -> list[Ask]:
    """A short question to everybody."""
    draw = random.Random(run)
    return [
        msgspec.structs.replace(
            _ask(customer, f"{run}-once-{at}", _text(draw, 40), at_s=apart_s * at), adapter=at, max_tokens=8
        )
        for at, customer in enumerate(customers)
    ]


def one_by_one(
    customers: Sequence[Customer], tokenizing: Tokenizing, run: str, lengths: Sequence[int] = ALONE_TOKENS * ALONE_EACH
) -> list[Ask]:
    """Prompts of these lengths, with short answers, to one customer after the other; each after a lull of its own."""
    draw, asked = random.Random(run), zip(lengths, itertools.cycle(customers), strict=False)
    return [
        msgspec.structs.replace(
            _ask(customer, f"{run}-{at}", _text(draw, tokenizing.characters(tokens)), draw.expovariate(1 / _LULL_S)),
            adapter=at % len(customers),
            max_tokens=8,
        )
        for at, (tokens, customer) in enumerate(asked)
    ]


def volley(customers: Sequence[Customer], tokenizing: Tokenizing, run: str) -> list[Ask]:
    """Short questions of one moment."""
    draw, asked = random.Random(run), []
    for number in range(VOLLEY):
        at, prompt = number % len(customers), _text(draw, tokenizing.characters(_SHORT_TOKENS))
        ask = _ask(customers[at], f"{run}-{number}", prompt, at_s=0.0)
        asked.append(msgspec.structs.replace(ask, adapter=at, max_tokens=_VOLLEY_TOKENS))
    return asked


def beside_others(
    customers: Sequence[Customer], tokenizing: Tokenizing, run: str, tokens: int, others: int
) -> list[Ask]:
    """Long answers to so many others, and last a question meanwhile with so long a prompt, by customers that are others
    in each run."""
    draw = random.Random(run)
    *given, last = draw.sample(range(len(customers)), min(others, len(customers) - 1) + 1)
    answered = [
        msgspec.structs.replace(
            _ask(customers[at], f"{run}-{number}", _text(draw, 40), at_s=number * _BETWEEN_S),
            adapter=at,
            max_tokens=_LONG_TOKENS,
        )
        for number, at in enumerate(given)
    ]
    prompt = _text(draw, tokenizing.characters(tokens))
    question = _ask(customers[last], f"{run}-question", prompt, at_s=_MEANWHILE_S)
    return [*answered, msgspec.structs.replace(question, adapter=last)]


def _ask(customer: Customer, request_id: str, prompt: str, at_s: float) -> Ask:
    return Ask(
        at_s=at_s, adapter=0, alias=customer.alias, key=customer.key, prompt=prompt, max_tokens=4, request_id=request_id
    )


def _text(draw: random.Random, characters: int) -> str:
    return "".join(draw.choices(_LETTERS, k=characters))

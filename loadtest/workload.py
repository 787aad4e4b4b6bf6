"""Seeded, pure workloads: when each request comes, whom it asks and how much it wants."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An open-loop load. `zipf` is the exponent s of P(rank k) ~ 1 / k^s over the aliases in their order."""

    rate_per_s: float
    requests: int
    zipf: float = 1.0
    max_tokens: int = 32
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Arrival:
    at_s: float
    alias: str
    prompt: str
    max_tokens: int


_PROMPTS = (
    "My parcel has not arrived. What can I do?",
    "How do I change the address on my invoice?",
    "Summarise our returns policy in two sentences.",
    "Which plan fits a team of five people?",
    "The app shows an error when I log in. Please help.",
    "Write a short greeting for a new customer.",
)


def arrivals(shape: Shape, aliases: Sequence[str]) -> Iterator[Arrival]:
    """Poisson arrivals over Zipf-ranked aliases; the same seed gives the same load."""
    draw = random.Random(shape.seed)
    weights = [1.0 / (place + 1) ** shape.zipf for place in range(len(aliases))]
    at_s = 0.0
    for _ in range(shape.requests):
        at_s += draw.expovariate(shape.rate_per_s)
        alias = draw.choices(aliases, weights)[0]
        yield Arrival(at_s=at_s, alias=alias, prompt=draw.choice(_PROMPTS), max_tokens=shape.max_tokens)

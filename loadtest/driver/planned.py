"""From a workload to the requests of one run: who is asked, when, and for how much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from loadtest.workloads.calls import calls
from loadtest.workloads.shape import Bursts, Poisson, Steady, TrafficShape


class Planned(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`at_s` counts from the beginning of the run; `max_tokens` is what the answer may have."""

    at_s: float
    alias: str
    prompt_tokens: int
    max_tokens: int
    stream: bool = True


def planned(shape: TrafficShape, aliases: Sequence[str], most: int | None = None) -> Iterator[Planned]:
    """The customer of rank k asks the k-th alias: there are as many customers as aliases. `most` requests at most."""
    shape = msgspec.structs.replace(shape, customers=len(aliases))
    for number, call in enumerate(calls(shape)):
        if number == most:
            return
        yield Planned(
            at_s=call.at_s,
            alias=aliases[call.tenant],
            prompt_tokens=call.prompt_tokens,
            max_tokens=call.max_tokens,
            stream=call.stream,
        )


def arrivals(burstiness: float) -> Poisson | Bursts | Steady:
    """Gamma gaps in the words of `vllm bench serve`: 1 is Poisson, below it comes in clumps, inf at an even pace."""
    if burstiness == 1.0:
        return Poisson()
    return Steady() if math.isinf(burstiness) else Bursts(cv=burstiness**-0.5)

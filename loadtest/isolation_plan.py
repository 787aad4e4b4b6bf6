"""What an isolation run does, drawn from a seed: who asks what, who leaves early, and what operators do meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.adapters.marked import BASE

_OPENINGS = (
    "My parcel has not arrived. What can I do?",
    "How do I change the address on my invoice?",
    "Which plan fits a team of five?",
    "The app shows an error when I log in.",
    "Hello!",
    "7",
)
_CLOSINGS = ("", " Thanks.", " Please be brief.", " Repeat after me: ABC")


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """An alias of a tenant and the adapters that it may stand for. Where these are two, operators move it."""

    tenant: str
    alias: str
    adapter_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Shares are of the requests; `zipf` is the exponent of the aliases' popularity, in a drawn order."""

    requests: int
    base_name: str
    answer_tokens: int
    """At most; enough for a marker and the end."""
    seed: int = 0
    base_share: float = 0.1
    streamed_share: float = 0.5
    leaving_share: float = 0.06
    zipf: float = 1.0
    requests_per_operation: int = 20


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request. Its client is gone after `leave_after` pieces of text, 0: as soon as it is sent, None: stays."""

    tenant: str
    alias: str
    meant: tuple[str, ...]
    prompt: str
    stream: bool
    max_tokens: int
    leave_after: int | None = None


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What an operator does to an alias, which gets the adapter `target`, or to an adapter on the replica `target`."""

    kind: Literal["move", "load", "unload"]
    subject: str
    target: str


def steps(mix: Mix, deployed: Sequence[Deployed], replica_ids: Sequence[str]) -> Iterator[Ask | Operation]:
    """`mix.requests` requests with an operation after every few of them; the same arguments, the same steps."""
    draw = random.Random(mix.seed)
    ranked = draw.sample(deployed, len(deployed))
    weights = [1.0 / (place + 1) ** mix.zipf for place in range(len(ranked))]
    tenants = sorted({each.tenant for each in deployed})
    standing = {each.alias: each.adapter_ids[0] for each in deployed}
    for number in range(1, mix.requests + 1):
        if draw.random() < mix.base_share:
            yield _ask(mix, draw, Deployed(tenant=draw.choice(tenants), alias=mix.base_name, adapter_ids=(BASE,)))
        else:
            yield _ask(mix, draw, draw.choices(ranked, weights)[0])
        if number % mix.requests_per_operation == 0:
            yield _operation(draw, ranked, replica_ids, standing)


def _ask(mix: Mix, draw: random.Random, whom: Deployed) -> Ask:
    stream = draw.random() < mix.streamed_share
    leaving = draw.random() < mix.leaving_share
    return Ask(
        tenant=whom.tenant,
        alias=whom.alias,
        meant=whom.adapter_ids,
        prompt=draw.choice(_OPENINGS) + draw.choice(_CLOSINGS),
        stream=stream,
        max_tokens=mix.answer_tokens,
        leave_after=None if not leaving else draw.randint(0, 2) if stream else 0,
    )


def _operation(
    draw: random.Random, deployed: Sequence[Deployed], replica_ids: Sequence[str], standing: dict[str, str]
) -> Operation:
    """`standing` [alias] is the adapter that it stands for; a move leads to another one."""
    moving = [each for each in deployed if len(each.adapter_ids) > 1]
    kind = draw.choice(("move", "load", "unload"))
    if kind == "move" and moving:
        each = draw.choice(moving)
        target = draw.choice([adapter_id for adapter_id in each.adapter_ids if adapter_id != standing[each.alias]])
        standing[each.alias] = target
        return Operation(kind="move", subject=each.alias, target=target)
    adapter_id = draw.choice(draw.choice(deployed).adapter_ids)
    return Operation(kind="unload" if kind == "unload" else "load", subject=adapter_id, target=draw.choice(replica_ids))

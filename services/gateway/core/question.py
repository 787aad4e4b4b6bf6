"""What routing is asked, by which rules it answers, and what the answer looks like."""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.messages.identity import AdapterKey

Strategy = Literal["affinity", "random", "least_loaded", "round_robin"]
STRATEGIES: tuple[Strategy, ...] = ("affinity", "random", "least_loaded", "round_robin")
Overflow = Literal["next", "least_loaded"]


class RoutingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`affinity` sends an adapter's requests to its owners; the other strategies look at no adapter, and are there
    to be compared with it.

    The margin is how many tokens in flight, for each unit of weight, an owner must have less than the one that has
    the adapter resident to be worth a cold load: `margin_tokens`, and as much as `margin_requests` requests like
    this one. A larger margin saves loads, a smaller one evens out the owners.

    `bounded`: an owner has no room once its rows are taken, while somebody else with the adapter in a slot or in RAM
    has; and above `spill_above` of a pool's rows in use, no choice lifts a replica past `bound` times the mean tokens
    in flight for its weight, while there is another choice. Who has the adapter nowhere is asked only once
    `spill_waiting` requests wait for a row of every owner. `overflow` says who that is: the next in the adapter's
    ranking, or the least loaded of all."""

    strategy: Strategy = "affinity"
    margin_tokens: int = 6_000
    margin_requests: float = 1.5
    bounded: bool = True
    spill_above: float = 0.7
    bound: float = 1.25
    spill_waiting: int = 2
    overflow: Overflow = "next"

    def margin_of(self, tokens: int) -> int:
        """For a request that promises so many tokens."""
        return max(self.margin_tokens, round(self.margin_requests * tokens))


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request to be placed. `adapter` None is the base model, which each of `pool_ids` can answer; an adapter has
    one pool, the first of them. The replicas of `merged_pool_ids` have nothing but some adapter merged in, most
    likely this one. `tokens` is what the request promises to hold and produce; `tried` are the replicas that must
    not be asked again."""

    adapter: AdapterKey | None
    pool_ids: tuple[str, ...]
    tokens: int
    tried: frozenset[str] = frozenset()
    merged_pool_ids: tuple[str, ...] = ()


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` is a sentence for the log, `rule` the one of RULES that decided."""

    replica_id: str
    pool_id: str
    incarnation: str
    reason: str
    rule: str


class NoChoice(msgspec.Struct, frozen=True, kw_only=True):
    """`may_change`: somebody who was not tried may become usable soon. `code` is for the client, as is
    `retry_after_s`, if anybody knows."""

    reason: str
    may_change: bool = False
    code: str = "no_replica"
    retry_after_s: float | None = None


RULES = {
    "resident": "the resident owner",
    "ram": "the RAM-holding owner",
    "first": "the first-ranked owner",
    "margin": "the lightest owner, by more than the margin",
    "spill_resident": "no owner can take it: the lightest of those that have it resident",
    "spill_ram": "no owner can take it: the lightest of those that have it in RAM",
    "queue": "nobody who has it has a free row: the owner for whose rows the fewest wait",
    "spill_next": "no owner can take it: the next in the ranking",
    "spill_lightest": "no owner can take it: the least loaded",
    "overloaded": "every replica is overloaded: the least loaded",
    "base": "the least loaded replica of the base model",
    "merged": "this replica has the adapter merged in",
    "merged_full": "this replica has the adapter merged in, and nobody else can take it",
    "warming": "nobody else can take it: a replica that still warms",
    "warming_owner": "no owner is warm, and nobody else has it at hand: an owner that still warms",
    "spill_warming": "the rows of all others are taken: a replica that still warms",
    "random": "drawn by chance",
    "least_loaded": "the least loaded",
    "round_robin": "its turn",
}
"""Every rule that can decide, and the reason that it gives."""

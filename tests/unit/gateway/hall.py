"""A fleet that has heard of replicas what a test says of them, through their own messages."""

from __future__ import annotations

from typing import Any

from services.gateway.core.fleet import Fleet
from services.gateway.core.question import Choice, NoChoice, Question, RoutingPolicy
from services.gateway.core.routing import route
from shared.messages.identity import AdapterKey
from shared.messages.pools import merged_pool_id
from tests.unit.gateway import samples
from tests.unit.gateway.samples import ADAPTER, POOL, member, report

MERGED = merged_pool_id(POOL, ADAPTER.digest)


class Hall:
    """`seat` puts a replica into a pool: `tier` is where it holds ADAPTER, `load` its tokens in flight, `requests`
    those that run; anything else stands in its report."""

    def __init__(self, policy: RoutingPolicy | None = None) -> None:
        self.fleet = Fleet(fresh_s=3.0)
        self.policy = policy or RoutingPolicy(margin_tokens=1_000)
        self._members: dict[str, dict[str, Any]] = {}

    def seat(self, replica_id: str, *, pool_id: str = POOL, tier: str = "remote", **facts: Any) -> None:
        weight = facts.pop("weight", 1.0)
        self._members.setdefault(pool_id, {})[replica_id] = member(replica_id, weight=weight)
        members = tuple(self._members[pool_id].values())
        self.fleet.put_membership(pool_id, samples.membership(*members, pool_id=pool_id))
        self.report(replica_id, **facts)
        if tier != "remote":
            self.fleet.on_residency(samples.residency(replica_id, tier), 0.0)

    def report(self, replica_id: str, *, now_s: float = 0.0, load: int = 0, requests: int = 0, **facts: Any) -> None:
        said = report(replica_id, tokens_in_flight=load, running=requests, **facts)
        self.fleet.on_report(said, now_s)

    def ask(
        self, adapter: AdapterKey | None = ADAPTER, *, tokens: int = 100, now_s: float = 0.0, draw: float = 0.0,
        tried: tuple[str, ...] = (),
    ) -> Choice | NoChoice:  # fmt: skip
        question = Question(
            adapter=adapter, pool_ids=(POOL,), tokens=tokens, tried=frozenset(tried),
            merged_pool_ids=(MERGED,) if adapter else (),
        )  # fmt: skip
        return route(self.fleet, question, self.policy, now_s, draw)

    def chosen(self, adapter: AdapterKey | None = ADAPTER, **how: Any) -> tuple[str, str]:
        """The replica and the rule."""
        choice = self.ask(adapter, **how)
        assert isinstance(choice, Choice), choice
        return choice.replica_id, choice.rule

    def refused(self, **how: Any) -> NoChoice:
        choice = self.ask(**how)
        assert isinstance(choice, NoChoice), choice
        return choice

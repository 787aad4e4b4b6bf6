"""The quick way of choosing a replica, beside the plain one: the same answers, whatever happened before."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.gateway.core.fleet import Fleet
from services.gateway.core.question import RULES, STRATEGIES, Choice, NoChoice, Question, RoutingPolicy
from services.gateway.core.routing import route
from shared.contracts import catalog
from shared.messages.identity import AdapterKey
from shared.messages.pools import merged_pool_id
from shared.messages.reports import Residency, ResidencyEntry
from tests.unit.gateway import samples
from tests.unit.gateway.plain import PlainFleet, plain_route
from tests.unit.gateway.samples import ADAPTER, POOL, heard, member, report

NAMES = [f"r{index}" for index in range(8)]
OTHER = AdapterKey(adapter_id="globex-1", digest="c" * 64)
WIDE = POOL.replace("r16", "r64")
MERGED = merged_pool_id(POOL, ADAPTER.digest)
POOLS = (POOL, POOL, POOL, WIDE, MERGED)
UNBOUND = ("overloaded", "merged", "merged_full", "base", "warming", "warming_owner", "spill_warming")

names = st.sampled_from(NAMES)
adapters = st.sampled_from([ADAPTER, OTHER])
held = st.dictionaries(adapters, st.sampled_from(["gpu", "gpu", "ram", "disk", "remote"]), min_size=1)
policies = st.builds(
    RoutingPolicy,
    strategy=st.sampled_from(["affinity"] * 4 + list(STRATEGIES)),
    margin_tokens=st.sampled_from([0, 500, 8_000, 8_000]),
    margin_requests=st.sampled_from([0.0, 2.0]),
    bounded=st.booleans(),
    spill_above=st.sampled_from([0.0, 0.3, 0.7]),
    spill_waiting=st.sampled_from([0, 1, 2]),
    bound=st.sampled_from([1.0, 1.25, 2.0]),
    overflow=st.sampled_from(["next", "least_loaded"]),
)
members = st.lists(
    st.builds(
        member,
        names,
        weight=st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.0, 2.0]),
        ready=st.sampled_from([True, True, True, False]),
        draining=st.sampled_from([False, False, False, True]),
    ),
    unique_by=lambda each: each.replica_id,
    min_size=1,
    max_size=len(NAMES),
)


class Beside(RuleBasedStateMachine):
    """Everything that a fleet can hear, heard by both; and every question asked of both."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet, self.plain = Fleet(fresh_s=3.0), PlainFleet(fresh_s=3.0)
        self.now_s = 0.0
        self.sequence = 0
        self.sent: list[tuple[str, str]] = []

    @initialize(
        weights=st.lists(st.sampled_from([0.5, 1.0, 1.0, 2.0]), min_size=len(NAMES), max_size=len(NAMES)),
        tiers=st.lists(held, min_size=len(NAMES), max_size=len(NAMES)),
    )
    def a_fleet(self, weights: list[float], tiers: list[dict[AdapterKey, str]]) -> None:
        said = samples.membership(*(member(name, weight=w) for name, w in zip(NAMES, weights, strict=True)))
        for fleet in (self.fleet, self.plain):
            fleet.put_membership(POOL, said)
        for name, holds in zip(NAMES, tiers, strict=True):
            self.a_report(name, {}, 1)
            self.a_residency(name, holds, True, 1)

    @rule(pool_id=st.sampled_from(POOLS), said=members, epoch=st.integers(1, 2))
    def a_membership(self, pool_id: str, said: list[Any], epoch: int) -> None:
        message = samples.membership(*said, pool_id=pool_id, epoch=epoch)
        for fleet in (self.fleet, self.plain):
            fleet.put_membership(pool_id, message)

    @rule(said=st.lists(names, unique=True, min_size=1, max_size=2))
    def some_have_it_merged_in(self, said: list[str]) -> None:
        self.a_membership(MERGED, [member(name) for name in said], 2)
        for name in said:
            self.a_residency(name, {ADAPTER: "gpu"}, False, 1)

    @rule(pool_id=st.sampled_from([WIDE, MERGED]))
    def a_pool_is_gone(self, pool_id: str) -> None:
        for fleet in (self.fleet, self.plain):
            fleet.put_membership(pool_id, None)

    @rule(owners=st.integers(1, 4), exceptions=st.dictionaries(st.just(ADAPTER.adapter_id), st.integers(1, 11)))
    def an_owner_count(self, owners: int, exceptions: dict[str, int]) -> None:
        for fleet in (self.fleet, self.plain):
            fleet.put_owner_count(POOL, samples.owner_count(owners=owners, exceptions=exceptions))

    @rule(
        name=names,
        figures=st.fixed_dictionaries(
            {
                "running": st.integers(0, 10),
                "queue_depth": st.integers(0, 3),
                "tokens_in_flight": st.integers(0, 20_000),
                "max_rows": st.sampled_from([0, 4, 8]),
                "ready": st.sampled_from([True, True, True, False]),
                "draining": st.sampled_from([False, False, False, True]),
                "warming": st.sampled_from([False, False, True]),
            }
        ),
        incarnation=st.sampled_from([1] * 9 + [2]),
    )
    def a_report(self, name: str, figures: dict[str, Any], incarnation: int) -> None:
        message = report(name, incarnation=f"{name}-{incarnation}", **figures)
        for fleet in (self.fleet, self.plain):
            fleet.on_report(message, self.now_s)

    @rule(
        name=names,
        tiers=held,
        snapshot=st.booleans(),
        incarnation=st.sampled_from([1] * 9 + [2]),
    )
    def a_residency(self, name: str, tiers: dict[AdapterKey, str], snapshot: bool, incarnation: int) -> None:
        self.sequence += 1
        entries = tuple(
            ResidencyEntry(adapter_id=key.adapter_id, digest=key.digest, tier=tier) for key, tier in tiers.items()
        )
        made = Residency(
            replica_id=name, incarnation=f"{name}-{incarnation}", pool_id=POOL, sequence=self.sequence,
            snapshot=snapshot, entries=entries,
        )  # fmt: skip
        for fleet in (self.fleet, self.plain):
            fleet.on_residency(heard(catalog.REPLICA_RESIDENCY, made), self.now_s)

    @rule(name=names, adapter=adapters)
    def a_load_failed(self, name: str, adapter: AdapterKey) -> None:
        self.plain.quarantine(name, adapter, self.fleet.on_load_failed(name, adapter, self.now_s))

    @rule(number=st.integers(0, 30))
    def an_answer(self, number: int) -> None:
        if number < len(self.sent):
            name, request = self.sent[number]
            self.fleet.sends(name).answered(request)
            self.plain.answered(name, request)

    @rule(number=st.integers(0, 30))
    def an_end(self, number: int) -> None:
        if number < len(self.sent):
            name, request = self.sent[number]
            self.fleet.sends(name).ended(request)
            self.plain.ended(name, request)

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 3.5]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(most=st.integers(0, 5))
    def some_are_ranked_ahead(self, most: int) -> None:
        self.fleet.expect(POOL, OTHER.adapter_id)
        self.fleet.rank_ahead(most)

    @rule(
        adapter=st.sampled_from([ADAPTER, ADAPTER, OTHER, None]),
        tokens=st.sampled_from([1, 100, 1_000, 5_000]),
        tried=st.one_of(st.just(frozenset()), st.frozensets(names)),
        policy=policies,
        draw=st.floats(0.0, 1.0, exclude_max=True),
    )
    def a_question(
        self, adapter: AdapterKey | None, tokens: int, tried: frozenset[str], policy: RoutingPolicy, draw: float
    ) -> None:
        question = Question(
            adapter=adapter, pool_ids=(POOL,) if adapter else (POOL, WIDE), tokens=tokens, tried=tried,
            merged_pool_ids=(MERGED,) if adapter else (),
        )  # fmt: skip
        choice = route(self.fleet, question, policy, self.now_s, draw)
        assert choice == route(self.fleet, question, policy, self.now_s, draw)
        expected = plain_route(self.plain, question, policy, self.now_s, draw)
        if isinstance(choice, NoChoice):
            assert expected is None
            return
        assert (choice.replica_id, choice.rule) == expected
        self._obeys(choice, question, policy)
        request = f"q{len(self.sent)}"
        self.sent.append((choice.replica_id, request))
        self.fleet.sends(choice.replica_id).sent(request, tokens)
        self.plain.sent(choice.replica_id, request, tokens)

    def _obeys(self, choice: Choice, question: Question, policy: RoutingPolicy) -> None:
        """What must hold whatever the rule: only a usable one, or one that warms where that has its own word, and
        within the bound unless nobody is."""
        assert choice.rule in RULES
        assert choice.replica_id not in question.tried
        [facts] = [
            facts
            for facts in self.plain.facts([choice.pool_id], question.adapter, self.now_s)
            if facts.replica_id == choice.replica_id
        ]
        assert facts.able
        assert facts.usable or choice.rule in ("warming", "warming_owner", "spill_warming")
        assert not facts.warming or choice.rule in ("warming", "warming_owner", "spill_warming")
        everybody = [facts for facts in self.plain.facts(question.pool_ids, None, self.now_s) if facts.usable]
        busy = sum(each.requests for each in everybody) > policy.spill_above * sum(each.rows for each in everybody)
        if policy.bounded and busy and choice.rule not in UNBOUND:
            mean = (sum(each.load for each in everybody) + question.tokens) / sum(each.weight for each in everybody)
            assert (facts.load + question.tokens) / facts.weight <= policy.bound * mean

    @invariant()
    def sums_are_those_of_the_usable(self) -> None:
        for pool in self.fleet.pools((POOL, WIDE, MERGED), self.now_s):
            facts = [each for each in self.plain.facts([pool.pool_id], None, self.now_s) if each.usable]
            assert [seat.replica_id for seat in pool.usable] == [each.replica_id for each in facts]
            assert (pool.load_tokens, pool.requests, pool.max_rows, pool.weight) == (
                sum(each.load for each in facts),
                sum(each.requests for each in facts),
                sum(each.rows for each in facts),
                sum(each.weight for each in facts),
            )


TestRoutingIsPlain = Beside.TestCase
TestRoutingIsPlain.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

"""Customers who fill a replica by themselves, and what money can buy."""

from __future__ import annotations

import pytest

from services.autoscaler.core.cost import CostPolicy, affordable, usd_per_million_tokens
from services.autoscaler.core.demand import DemandPolicy
from services.autoscaler.core.fleet import decide_all, merged_loads
from services.autoscaler.core.load import PoolLoad
from services.autoscaler.core.memory import PoolMemory
from services.autoscaler.core.merged import (
    Customers,
    Market,
    MergedPolicy,
    MergedPool,
    customers_after,
    merged_pools,
    orphaned,
)
from services.autoscaler.core.policy import ScalePolicy
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from shared.messages.desired import AdapterRecord
from shared.messages.pools import merged_pool_id
from shared.messages.usage import BASE
from tests.simulation.speakers import POOL, adapter
from tests.unit.autoscaler.pools import asked, pool, replicas

POLICY = MergedPolicy(enabled=True, hold_s=10.0, quiet_hold_s=100.0)
WINDOWS = DemandPolicy()
RECORDS: dict[str, AdapterRecord] = {"acme": adapter("acme")}
MERGED = merged_pool_id(POOL, RECORDS["acme"].digest)


class Customer:
    """One customer's traffic through one gateway; `merged` is what is known of merged pools after each second."""

    def __init__(self, policy: MergedPolicy = POLICY) -> None:
        self.policy = policy
        self.customers: Customers = {}
        self.merged: dict[str, MergedPool] = {}
        self.now_s = 0.0

    def seconds(self, count: int, requests: int, pool_id: str = POOL) -> None:
        for _ in range(count):
            one = AdapterActivity(requests=requests, finished=requests, tokens=100 * requests)
            base = AdapterActivity(requests=50, finished=50, tokens=5_000)
            said = GatewayActivity(
                gateway_id="g1", sequence=int(self.now_s) + 1, interval_s=1.0,
                pools={pool_id: PoolActivity(requests=requests, adapters={"acme": one, BASE: base})},
            )  # fmt: skip
            self.customers = customers_after(self.customers, said, self.now_s, WINDOWS)
            market = Market(customers=self.customers, rates={POOL: 640.0}, records=RECORDS)
            self.merged = merged_pools(self.merged, market, self.now_s, self.policy, WINDOWS)
            self.now_s += 1.0

    @property
    def wanted(self) -> bool:
        return MERGED in self.merged and self.merged[MERGED].wanted


def test_a_customer_who_fills_a_replica_for_long_gets_merged_ones_until_it_is_quiet_for_longer() -> None:
    customer = Customer()
    customer.seconds(10, 7)
    assert not customer.wanted
    customer.seconds(1, 7)
    assert customer.wanted
    assert customer.merged[MERGED].key == RECORDS["acme"].key
    # Its own pool serves it now; what it asks for is the same, and less than a replica is no reason to give it up.
    customer.seconds(200, 5, MERGED)
    assert customer.wanted
    customer.seconds(100, 1, MERGED)
    assert customer.wanted
    customer.seconds(100, 1, MERGED)
    assert not customer.wanted


def test_a_peak_that_is_over_soon_brings_no_merged_replica() -> None:
    customer = Customer()
    customer.seconds(8, 7)
    customer.seconds(200, 2)
    assert not customer.wanted


def test_a_lower_threshold_brings_a_lower_measure_of_quiet() -> None:
    customer = Customer(MergedPolicy(enabled=True, share=0.4, hold_s=10.0, quiet_hold_s=20.0))
    customer.seconds(15, 3)
    assert customer.wanted
    customer.seconds(25, 3)
    assert customer.wanted, "a customer above the threshold is not quiet"


def test_the_base_model_is_no_customer() -> None:
    customer = Customer()
    customer.seconds(60, 1)
    assert customer.customers.keys() == {(POOL, "acme")}
    assert not customer.wanted


def test_a_retired_adapter_loses_its_pool_and_the_silent_are_forgotten() -> None:
    before = {MERGED: MergedPool(pool_id=MERGED, base_pool_id=POOL, key=RECORDS["acme"].key, wanted=True)}
    market = Market(customers={}, rates={POOL: 640.0}, records={})
    assert not merged_pools(before, market, 0.0, POLICY, WINDOWS)[MERGED].wanted
    customer = Customer()
    customer.seconds(1, 1)
    nothing = GatewayActivity(gateway_id="g1", sequence=9, interval_s=1.0, pools={})
    assert customers_after(customer.customers, nothing, 900.0, WINDOWS) == {}


def test_an_adapter_that_comes_back_gets_its_pool_back() -> None:
    customer = Customer()
    customer.merged = {MERGED: orphaned(MERGED)}
    customer.seconds(5, 7)
    assert not customer.wanted
    customer.seconds(10, 7)
    assert customer.wanted


def test_a_merged_pool_begins_with_one_replica_and_follows_its_customer() -> None:
    wanted = MergedPool(pool_id=MERGED, base_pool_id=POOL, key=RECORDS["acme"].key, wanted=True, demand=asked(2.5))
    loads = merged_loads({POOL: pool(replicas("r1"))}, {MERGED: wanted}, {POOL: 640.0})
    empty = PoolLoad(pool_id=MERGED, existing=frozenset(), demand=wanted.demand, expected_rate=640.0)
    assert loads[MERGED].expected_rate == 640.0
    loads = {MERGED: empty}
    first = decide_all({}, loads, 0.0, ScalePolicy(), CostPolicy())[MERGED]
    assert (first.desired, first.start) == (1, 1)
    assert first.reason == "its customer fills a replica by itself"
    then = decide_all({MERGED: first.memory}, loads, 1.0, ScalePolicy(), CostPolicy())[MERGED]
    assert (then.desired, then.start) == (3, 3)


def test_the_least_of_a_pool_is_not_the_least_of_a_merged_one() -> None:
    empty = PoolLoad(pool_id=MERGED, existing=frozenset(), demand=asked(0.5), expected_rate=640.0)
    assert decide_all({}, {MERGED: empty}, 0.0, ScalePolicy(min_replicas=2), CostPolicy())[MERGED].desired == 1


def test_a_merged_replica_that_an_operator_has_started_was_there() -> None:
    found = PoolLoad(pool_id=MERGED, replicas=replicas("merged-0"))
    reason = decide_all({}, {MERGED: found}, 0.0, ScalePolicy(), CostPolicy())[MERGED].reason
    assert reason == "1 replicas were there when the autoscaler began"


def test_an_unwanted_merged_pool_is_told_so_while_it_has_replicas() -> None:
    quiet = MergedPool(pool_id=MERGED, base_pool_id=POOL, key=RECORDS["acme"].key)
    found = PoolLoad(pool_id=MERGED, replicas=replicas("m1"))
    assert not merged_loads({MERGED: found}, {MERGED: quiet}, {})[MERGED].wanted
    assert merged_loads({}, {MERGED: quiet}, {}) == {}


def test_one_budget_is_for_all_pools() -> None:
    cost = CostPolicy(usd_per_replica_hour=2.5, budget_usd_per_hour=20.0)
    loads = {name: pool(replicas(f"{name}1"), pool_id=name, demand=asked(9.0)) for name in ("p", "q")}
    memories = {name: PoolMemory(desired=1) for name in ("p", "q")}
    decisions = decide_all(memories, loads, 0.0, ScalePolicy(), cost)
    assert {name: decision.desired for name, decision in decisions.items()} == {"p": 7, "q": 1}
    assert decisions["p"].reason.endswith("; 9 would be needed, the budget allows 7")


def test_a_pool_that_is_no_more_takes_nothing_of_the_budget() -> None:
    cost = CostPolicy(usd_per_replica_hour=2.5, budget_usd_per_hour=20.0)
    memories = {"gone": PoolMemory(desired=6), "p": PoolMemory(desired=1)}
    loads = {"p": pool(replicas("p1"), pool_id="p", demand=asked(7.5))}
    decisions = decide_all(memories, loads, 0.0, ScalePolicy(), cost)
    assert decisions["p"].desired == 8


def test_without_a_budget_or_a_price_everything_is_affordable() -> None:
    assert affordable("p", {}, CostPolicy()) is None
    assert affordable("p", {}, CostPolicy(usd_per_replica_hour=0.0, budget_usd_per_hour=5.0)) is None


def test_tokens_have_a_price_once_there_are_some() -> None:
    assert usd_per_million_tokens(65.0, 10_000.0) == pytest.approx(1.8055, rel=1e-3)
    assert usd_per_million_tokens(65.0, 0.0) is None

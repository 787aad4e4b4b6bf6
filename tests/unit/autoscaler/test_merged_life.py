"""Merged pools from the customer who calls for one until nothing is left of it."""

from __future__ import annotations

from services.autoscaler.core.merged import MergedPolicy
from services.autoscaler.lookout import AutoscalerPolicy
from shared.contracts.catalog import ADAPTER, DRAIN, SCALE_WISH
from shared.messages.desired import ScaleWish
from shared.messages.identity import key_of
from shared.messages.pools import merged_pool_id
from tests.simulation.speakers import POOL, Replica, adapter
from tests.support.paper_actuator import PaperActuator
from tests.unit.autoscaler.test_autoscaler import Stage


async def test_a_customer_who_fills_a_replica_gets_merged_ones_and_keeps_them_over_a_restart() -> None:
    actuator = PaperActuator()
    actuator.there[POOL] = {"r1", "r2"}
    stage = Stage(actuator, AutoscalerPolicy(merged=MergedPolicy(enabled=True, hold_s=5.0)))
    record = adapter("acme")
    await stage.broker.connect("registry").state(ADAPTER).put(record, key_of("acme"))
    await stage.start()
    for _ in range(10):
        await stage.ask(9)
        await stage.seconds(1, capacity_tokens_per_s=640.0)
    merged = merged_pool_id(POOL, record.digest)
    assert len(actuator.there[merged]) == 2
    order = next(order for order in reversed(actuator.orders) if order.pool.pool_id == merged)
    assert order.pool.merged == record.key
    await stage.restart()
    await stage.seconds(10, capacity_tokens_per_s=640.0)
    assert (actuator.orders[-1].pool.pool_id, actuator.orders[-1].pool.merged) == (merged, record.key)
    assert len(actuator.there[merged]) == 2
    await stage.broker.connect("registry").state(ADAPTER).delete(key_of("acme"))
    await stage.seconds(10, capacity_tokens_per_s=640.0)
    assert actuator.there[merged] == set()
    orders = len(actuator.orders)
    await stage.seconds(4, capacity_tokens_per_s=640.0)
    assert {order.pool.pool_id for order in actuator.orders[orders:]} == {POOL}
    assert [pool.pool_id for pool in stage.heard[-1].pools] == [POOL]
    assert merged not in stage.metrics.exposition().decode()
    assert await stage.console.state(SCALE_WISH).get(merged) is None
    await stage.autoscaler.stop()


async def test_a_merged_pool_is_not_forgotten_while_nobody_can_say_who_is_left_of_it() -> None:
    actuator = PaperActuator()
    stage = Stage(actuator, AutoscalerPolicy(merged=MergedPolicy(enabled=True)))
    record = adapter("acme")
    merged = merged_pool_id(POOL, record.digest)
    actuator.there = {POOL: {"r1", "r2"}, merged: {"m1"}}
    await stage.broker.connect("registry").state(ADAPTER).put(record, key_of("acme"))
    await stage.bus.state(SCALE_WISH).put(ScaleWish(pool_id=merged, desired=0, reason="it is quiet"), merged)
    actuator.broken = "nobody is there"
    await stage.start()
    await stage.seconds(4)
    assert await stage.console.state(SCALE_WISH).get(merged) is not None
    actuator.broken = ""
    await stage.seconds(300)
    assert actuator.there[merged] == set()
    assert await stage.console.state(SCALE_WISH).get(merged) is None
    await stage.autoscaler.stop()


async def test_what_is_left_of_an_adapter_that_was_retired_during_a_restart_goes() -> None:
    """Its record, by which the pool would be known, is gone before the new autoscaler looks."""
    actuator = PaperActuator()
    stage = Stage(actuator, AutoscalerPolicy(merged=MergedPolicy(enabled=True)))
    record = adapter("acme")
    merged = merged_pool_id(POOL, record.digest)
    actuator.there = {POOL: {"r1"}, merged: {"r2"}}
    await stage.broker.connect("registry").state(ADAPTER).put(record, key_of("acme"))
    await stage.bus.state(SCALE_WISH).put(ScaleWish(pool_id=merged, desired=1, reason="it is busy"), merged)
    stage.replicas["r2"] = Replica(stage.broker.connect("replica_worker"), "r2", pool_id=merged)
    await stage.start()
    await stage.seconds(5)
    assert actuator.there[merged] == {"r2"}
    await stage.autoscaler.stop()
    await stage.broker.connect("registry").state(ADAPTER).delete(key_of("acme"))
    await stage.restart()
    await stage.seconds(6)
    assert "r2" in {entry.ids[0] for entry in await stage.console.state(DRAIN).entries() if entry.value}
    stage.draining = {"r2"}
    await stage.seconds(10)
    assert (actuator.there[POOL], actuator.there[merged]) == ({"r1"}, set())
    await stage.seconds(310, "r2")
    assert await stage.console.state(SCALE_WISH).get(merged) is None
    await stage.autoscaler.stop()

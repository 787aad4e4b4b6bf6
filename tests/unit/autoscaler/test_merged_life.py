"""Merged pools from the customer who calls for one until nothing is left of it."""

from __future__ import annotations

from services.autoscaler.core.merged import MergedPolicy
from services.autoscaler.lookout import AutoscalerPolicy
from shared.contracts.catalog import ADAPTER, SCALE_WISH
from shared.messages.desired import ScaleWish
from shared.messages.identity import key_of
from shared.messages.pools import merged_pool_id
from tests.simulation.speakers import POOL, adapter
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

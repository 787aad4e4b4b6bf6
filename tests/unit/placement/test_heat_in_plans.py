"""What placement makes of traffic, and of adapters that nobody wants: in the assignments that it writes."""

from __future__ import annotations

import msgspec

from shared.contracts.catalog import ASSIGNMENT, DRAIN, TRAFFIC
from shared.messages.desired import DrainOrder
from shared.messages.usage import PoolTraffic
from tests.simulation.speakers import POOL, adapter
from tests.unit.placement.stage import Stage, two_replicas


async def heats(stage: Stage, replica_id: str) -> dict[str, int]:
    shard = await stage.registry_view(ASSIGNMENT, replica_id, "0")
    return {each.adapter_id: each.heat for each in shard.adapters}


async def say_traffic(stage: Stage, at_s: float, **rates: float) -> None:
    message = PoolTraffic(pool_id=POOL, at_s=at_s, requests_per_s=rates)
    await stage.registry.state(TRAFFIC).put(message, POOL)


async def test_traffic_that_was_known_before_the_start_is_in_the_first_plan(stage: Stage) -> None:
    await say_traffic(stage, 1.0, a=5.0, b=0.03)
    await two_replicas(stage, "a", "b", "c")
    assert await heats(stage, "r1") == {"a": 9, "b": 2, "c": 0}


async def test_the_first_word_of_a_pools_traffic_is_heeded_at_once_and_later_ones_with_the_refresh(
    stage: Stage,
) -> None:
    await two_replicas(stage, "a", "b")
    await say_traffic(stage, 1.0, a=5.0)
    await stage.second()
    assert await heats(stage, "r1") == {"a": 9, "b": 0}
    before = stage.written()
    await say_traffic(stage, 11.0, a=5.0, b=80.0)
    await stage.seconds(20)
    assert stage.written() == before, "nothing is rewritten between two refreshes"
    await stage.seconds(45)
    assert await heats(stage, "r1") == {"a": 9, "b": 10}


async def test_a_new_placement_without_word_of_traffic_rewrites_no_heat(stage: Stage) -> None:
    await say_traffic(stage, 1.0, a=5.0)
    await two_replicas(stage, "a", "b")
    await stage.registry.state(TRAFFIC).delete(POOL)
    await stage.placements.pop().stop()
    await stage.place()
    await stage.seconds(5)
    assert await heats(stage, "r1") == {"a": 9, "b": 0}
    assert (await stage.registry_view(ASSIGNMENT, "r1", "0")).epoch == 2


async def test_an_adapter_that_nobody_wants_any_more_loses_its_owners_and_gets_them_back(stage: Stage) -> None:
    await two_replicas(stage, "a", "b")
    await stage.put(msgspec.structs.replace(adapter("a"), wanted=False))
    await stage.second()
    assert set(await heats(stage, "r1")) == {"b"}
    await stage.put(adapter("a"))
    await stage.second()
    assert set(await heats(stage, "r1")) == {"a", "b"}


async def test_a_replica_that_drains_does_not_keep_what_nobody_wants(stage: Stage) -> None:
    await two_replicas(stage, "a", "b")
    await stage.broker.connect("console").state(DRAIN).put(DrainOrder(replica_id="r1", reason="planted"), "r1")
    await stage.second()
    assert set(await heats(stage, "r1")) == {"a", "b"}
    await stage.put(msgspec.structs.replace(adapter("a"), wanted=False))
    await stage.second()
    assert set(await heats(stage, "r1")) == {"b"}

"""The shell: it waits until its view is full, and writes only differences."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from services.placement import app
from services.placement.app import PlacementPolicy
from services.placement.core.tick import Decision, on_tick
from shared.bus.port import BusUnavailable
from shared.contracts.catalog import (
    ADAPTER,
    ASSIGNMENT,
    DRAIN,
    FLEET,
    MEMBERSHIP,
    OWNER_COUNT,
    OWNERS,
)
from shared.messages.desired import DrainOrder
from shared.messages.identity import key_of
from shared.messages.operations import AskFleet, AskOwners
from tests.simulation.placing import placement_on
from tests.simulation.speakers import POOL, adapter
from tests.unit.placement.stage import Stage, two_replicas


async def test_nothing_is_decided_before_the_view_has_filled(stage: Stage) -> None:
    await stage.add_replica("r1")
    placement = await stage.place()
    await stage.second()
    assert await stage.members() == {}
    assert placement.unready_reason() == "its view of the fleet has not filled yet"
    await stage.second()
    assert set(await stage.members()) == {"r1"}
    assert placement.unready_reason() is None


async def test_a_start_without_a_bus_leaves_nothing_running(stage: Stage) -> None:
    bus = stage.broker.connect("placement")
    placement = placement_on(bus, stage.clock, PlacementPolicy())
    stage.broker.disconnect(bus)
    with pytest.raises(BusUnavailable):
        await placement.start()
    assert not any(stage.broker.live.values())
    assert not any(bucket.watches for bucket in stage.broker.buckets.values())


async def test_two_replicas_own_every_adapter_and_one_of_them_first(stage: Stage) -> None:
    await two_replicas(stage, "a", "b", "c")
    for adapter_id in ("a", "b", "c"):
        held = sorted(replica.tiers[adapter_id] for replica in stage.replicas.values())
        assert held == ["gpu", "ram"]
    assert (await stage.registry_view(OWNER_COUNT, POOL)).owners == 2


async def test_a_new_adapter_is_assigned_at_the_next_turn(stage: Stage) -> None:
    await two_replicas(stage)
    await stage.put(adapter("late"))
    await stage.clock.advance(0.1)
    await stage.placements[0].turn()
    await stage.clock.advance(0.0)
    assert "late" in stage.replicas["r1"].tiers


async def test_a_retired_adapter_is_assigned_to_nobody(stage: Stage) -> None:
    await two_replicas(stage, "a", "b")
    await stage.put(adapter("a", status="retired"))
    await stage.registry.state(ADAPTER).delete(key_of("b"))
    await stage.second()
    assert [replica.tiers for replica in stage.replicas.values()] == [{}, {}]


async def test_a_turn_that_finds_nothing_new_writes_nothing(stage: Stage) -> None:
    await two_replicas(stage, "a", "b", "c")
    before = stage.written()
    await stage.seconds(10)
    assert stage.written() == before


async def test_residency_alone_rewrites_nothing_until_the_refresh(stage: Stage) -> None:
    await stage.add_replica("r1", slots=1)
    for adapter_id in ("a", "b"):
        await stage.put(adapter(adapter_id))
    await stage.place(refresh_s=20.0)
    await stage.seconds(2)
    assert stage.replicas["r1"].tiers == {"a": "gpu", "b": "ram"}
    before = stage.written()
    stage.replicas["r1"].hold({"a": "ram", "b": "gpu"})
    await stage.replicas["r1"].tell_residency()
    await stage.seconds(10)
    assert stage.written() == before
    await stage.seconds(12)
    assert stage.replicas["r1"].tiers == {"a": "ram", "b": "gpu"}


async def test_c34_owners_follow_membership_from_two_to_four_to_one(stage: Stage) -> None:
    await two_replicas(stage, *(f"a{number}" for number in range(40)))
    await stage.add_replica("r3")
    await stage.add_replica("r4")
    await stage.seconds(2)
    assert all(replica.tiers for replica in stage.replicas.values())
    assert sum(len(replica.tiers) for replica in stage.replicas.values()) == 80
    await stage.seconds(31, "r1", "r2", "r3")
    assert len(stage.replicas["r4"].tiers) == 40
    assert set(await stage.members()) == {"r4"}
    assert [key[0] for key, _ in live(stage)] == ["r4"]


def live(stage: Stage) -> list[tuple[tuple[str, ...], int]]:
    stored = stage.broker.buckets[ASSIGNMENT.name].stored
    return sorted((ids, found.revision) for ids, found in stored.items() if found.payload is not None)


async def test_c33_a_restarted_replica_finds_its_assignment_unchanged(stage: Stage) -> None:
    await two_replicas(stage, "a", "b", "c")
    before = live(stage)
    await stage.seconds(8, "r1")
    assert not (await stage.members())["r1"].ready
    stage.replicas["r1"].restart("second")
    await stage.second(ready=False)
    await stage.second()
    member = (await stage.members())["r1"]
    assert (member.ready, member.incarnation, live(stage)) == (True, "second", before)


async def test_a_lost_report_and_a_repeated_one_change_nothing(stage: Stage) -> None:
    await two_replicas(stage, "a")
    said = await stage.replicas["r1"].report()
    before = stage.written()
    await stage.seconds(3, "r1")
    await stage.replicas["r1"].repeat(said)
    await stage.second("r1")
    assert stage.written() == before
    await stage.replicas["r1"].repeat(said)
    await stage.seconds(2, "r1")
    assert not (await stage.members())["r1"].ready


async def test_a_draining_replica_keeps_its_adapters_and_gets_no_new_one(stage: Stage) -> None:
    await two_replicas(stage, "a", "gone")
    order = DrainOrder(replica_id="r1", reason="maintenance")
    await stage.broker.connect("console").state(DRAIN).put(order, "r1")
    await stage.second()
    await stage.put(adapter("new"))
    await stage.put(adapter("gone", status="retired"))
    await stage.second()
    assert set(stage.replicas["r1"].tiers) == {"a"}
    assert set(stage.replicas["r2"].tiers) == {"a", "new"}
    member = (await stage.members())["r1"]
    assert (member.ready, member.draining, member.weight) == (False, True, 0.0)
    await stage.broker.connect("console").state(DRAIN).delete("r1")
    await stage.second()
    assert set(stage.replicas["r1"].tiers) == {"a", "new"}


async def test_a_restart_of_placement_moves_nothing_even_if_replicas_are_late(stage: Stage) -> None:
    await two_replicas(stage, "a", "b")
    tiers = {name: replica.tiers for name, replica in stage.replicas.items()}
    await stage.placements.pop().stop()
    await stage.place()
    await stage.seconds(3, "r1")
    assert {name: replica.tiers for name, replica in stage.replicas.items()} == tiers
    shard = await stage.registry_view(ASSIGNMENT, "r1", "0")
    assert (shard.epoch, (await stage.registry_view(MEMBERSHIP, POOL)).epoch) == (2, 2)


async def test_what_could_not_be_written_is_written_when_the_bus_is_back(stage: Stage) -> None:
    await two_replicas(stage, "a")
    stage.broker.disconnect(stage.buses[0])
    await stage.put(adapter("b"))
    await stage.seconds(3)
    assert stage.placements[0].unready_reason() == "the bus cannot be reached"
    stage.broker.reconnect(stage.buses[0])
    await stage.seconds(2)
    assert "b" in stage.replicas["r1"].tiers
    assert stage.placements[0].unready_reason() is None


async def test_if_all_fall_silent_at_once_nothing_is_concluded_for_the_grace(stage: Stage) -> None:
    await two_replicas(stage, "a")
    before = stage.written()
    await stage.seconds(29, "r1", "r2")
    assert stage.written() == before
    await stage.seconds(60, "r1", "r2")
    assert {member.ready for member in (await stage.members()).values()} == {False}
    assert stage.written()["assignment"] == before["assignment"]
    await stage.seconds(2)
    assert {member.ready for member in (await stage.members()).values()} == {True}
    assert stage.written()["assignment"] == before["assignment"]


async def test_c35_a_bus_that_is_away_for_minutes_costs_no_member_its_place(stage: Stage) -> None:
    await two_replicas(stage, "a")
    before = stage.written()
    stage.broker.disconnect(stage.buses[0])
    await stage.seconds(600)
    stage.broker.reconnect(stage.buses[0])
    await stage.seconds(5)
    assert stage.written() == before


async def test_what_somebody_deleted_or_changed_by_hand_is_put_right_at_the_refresh(stage: Stage) -> None:
    await two_replicas(stage, "a", "b")
    before = {name: replica.tiers for name, replica in stage.replicas.items()}
    by_hand = stage.broker.connect("placement").state(ASSIGNMENT)
    await by_hand.delete("r1", "0")
    shard = await stage.registry_view(ASSIGNMENT, "r2", "0")
    await by_hand.put(msgspec.structs.replace(shard, adapters=()), "r2", "0")
    await stage.second()
    assert [replica.tiers for replica in stage.replicas.values()] == [{}, {}]
    await stage.seconds(60)
    assert {name: replica.tiers for name, replica in stage.replicas.items()} == before


async def test_the_fleet_is_told_with_what_each_replica_holds(stage: Stage) -> None:
    await two_replicas(stage, "a", "b")
    await stage.replicas["r1"].tell_residency()
    await stage.second(queue_depth=3, tokens_in_flight=700, running=2)
    view = await stage.registry.ask(FLEET, AskFleet(), timeout_s=1.0)
    first, second = view.replicas
    assert (view.epoch, first.replica_id, first.ready, first.assigned) == (1, "r1", True, 2)
    assert (first.gpu + first.ram, {entry.adapter_id for entry in first.adapters}) == (2, {"a", "b"})
    assert (first.queue_depth, first.tokens_in_flight, first.running) == (3, 700, 2)
    assert (first.reason, second.adapters) == ("ready: its report says ready", ())


async def test_owners_are_told_in_the_order_that_assignments_follow(stage: Stage) -> None:
    await two_replicas(stage, "a")
    question = AskOwners(adapter_id="a", digest=adapter("a").digest, pool_id=POOL)
    owners = await stage.registry.ask(OWNERS, question, timeout_s=1.0)
    assert [stage.replicas[replica_id].tiers["a"] for replica_id in owners.replica_ids] == ["gpu", "ram"]
    assert owners.reason == "first 2 of 2 by rendezvous hash"


async def test_an_unknown_adapter_has_no_owner_and_a_reason(stage: Stage) -> None:
    await two_replicas(stage)
    question = AskOwners(adapter_id="who", digest=key_of("who"), pool_id=POOL)
    owners = await stage.registry.ask(OWNERS, question, timeout_s=1.0)
    assert (owners.replica_ids, owners.reason) == ((), "adapter who is not on record as verified")


async def test_a_long_decision_leaves_the_loop_to_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision waits for a word from the loop: on the loop itself it would wait in vain."""
    said, heard = threading.Event(), []

    def decides(*asked: Any) -> Decision:
        heard.append(said.wait(timeout=5.0))
        return on_tick(*asked)

    monkeypatch.setattr(app, "_LONG_PAIRS", 0)
    monkeypatch.setattr(app, "on_tick", decides)
    await stage.add_replica("r1")
    await stage.put(adapter("a"))
    await stage.place()
    await stage.second()
    asyncio.get_running_loop().call_soon(said.set)
    await stage.second()
    assert heard == [True]
    assert stage.replicas["r1"].tiers == {"a": "gpu"}

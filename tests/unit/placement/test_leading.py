"""Several placements: one acts, the others stand by, and whoever was paused or cut off changes nothing."""

from __future__ import annotations

import asyncio
import copy
import threading

import pytest

from services.placement import app
from services.placement.core.decide import Facts, Stored
from services.placement.core.tick import Decision, Memory, TickPolicy, on_tick
from shared.bus.port import NoResponders
from shared.contracts.catalog import ASSIGNMENT, FLEET, MEMBERSHIP, OWNER_COUNT, PRESSURE
from shared.contracts.codec import decode
from shared.messages.operations import AskFleet
from tests.simulation.speakers import POOL, adapter
from tests.unit.placement.stage import Stage, two_replicas


def epochs(stage: Stage) -> set[int]:
    """Of everything that is stored in the role."""
    return {
        decode(channel, stored.payload).epoch
        for channel in (MEMBERSHIP, OWNER_COUNT, ASSIGNMENT, PRESSURE)
        for stored in stage.broker.buckets[channel.name].stored.values()
        if stored.payload is not None
    }


async def two_placements(stage: Stage, *adapter_ids: str) -> None:
    await two_replicas(stage, *adapter_ids)
    await stage.place()
    await stage.seconds(3)


async def test_the_second_stands_by_and_writes_nothing(stage: Stage) -> None:
    await two_replicas(stage, "a")
    before = stage.written()
    await stage.place()
    await stage.seconds(8)
    assert [placement.status() for placement in stage.placements] == ["leads with epoch 1", "stands by"]
    assert [placement.unready_reason() for placement in stage.placements] == [None, None]
    assert (stage.written(), epochs(stage)) == (before, {1})


async def test_only_the_leader_answers(stage: Stage) -> None:
    await two_placements(stage)
    answers = [await stage.registry.ask(FLEET, AskFleet(), timeout_s=1.0) for _ in range(4)]
    assert {view.epoch for view in answers} == {1}
    await stage.placements.pop(0).stop()
    with pytest.raises(NoResponders):
        await stage.registry.ask(FLEET, AskFleet(), timeout_s=1.0)
    await stage.second()
    assert (await stage.registry.ask(FLEET, AskFleet(), timeout_s=1.0)).epoch == 2


async def test_a_clean_stop_hands_over_at_once_and_moves_nothing(stage: Stage) -> None:
    await two_placements(stage, "a", "b")
    tiers = {name: replica.tiers for name, replica in stage.replicas.items()}
    await stage.placements.pop(0).stop()
    await stage.second()
    assert (epochs(stage), stage.placements[0].status()) == ({2}, "leads with epoch 2")
    assert {name: replica.tiers for name, replica in stage.replicas.items()} == tiers


async def test_a_dead_leader_is_followed_within_five_seconds(stage: Stage) -> None:
    await two_placements(stage, "a")
    stage.placements.pop(0)
    await stage.put(adapter("b"))
    await stage.seconds(4)
    assert (epochs(stage), set(stage.replicas["r1"].tiers)) == ({2}, {"a", "b"})


async def test_a_leader_that_was_paused_writes_nothing_and_may_lead_again(stage: Stage) -> None:
    await two_placements(stage, "a")
    paused = stage.placements.pop(0)
    await stage.seconds(4)
    await stage.put(adapter("b"))
    await stage.second()
    before = stage.written()
    await stage.put(adapter("c"))
    await stage.clock.advance(0.0)
    await paused.turn()
    assert (stage.written(), paused.status()) == (before, "stands by")
    await stage.second()
    await stage.placements.pop().stop()
    stage.placements.append(paused)
    await stage.second()
    assert (epochs(stage), paused.status()) == ({3}, "leads with epoch 3")
    assert set(stage.replicas["r1"].tiers) == {"a", "b", "c"}


async def test_a_leader_whose_clock_stood_still_loses_the_compare_and_set(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that was put to sleep: by its own clock it has just renewed the lease."""
    await two_placements(stage, "a")
    asleep = stage.placements.pop(0)
    await stage.seconds(4)
    before = stage.written()
    await stage.put(adapter("b"))
    await stage.clock.advance(0.0)
    now_s = stage.clock.now_s()
    monkeypatch.setattr(stage.clock, "now_s", lambda: now_s - 5.0 + 1.1)
    assert asleep.leader.standing.leads
    await asleep.placement.turn()
    assert stage.written() == before
    assert not asleep.leader.standing.leads


async def test_a_leader_without_a_bus_is_followed_and_stands_by_when_it_is_back(stage: Stage) -> None:
    await two_placements(stage, "a")
    stage.broker.disconnect(stage.buses[0])
    await stage.seconds(5)
    await stage.put(adapter("b"))
    await stage.second()
    before = stage.written()
    assert epochs(stage) == {2}
    stage.broker.reconnect(stage.buses[0])
    await stage.seconds(4)
    assert [placement.status() for placement in stage.placements] == ["stands by", "leads with epoch 2"]
    assert stage.written() == before


async def test_a_bus_that_was_away_for_everybody_leaves_the_leader_its_epoch(stage: Stage) -> None:
    await two_placements(stage, "a")
    for bus in stage.buses:
        stage.broker.disconnect(bus)
    await stage.seconds(60)
    assert not any(placement.leader.standing.leads for placement in stage.placements)
    for bus in stage.buses:
        stage.broker.reconnect(bus)
    await stage.seconds(3)
    assert sorted(placement.status() for placement in stage.placements) == ["leads with epoch 1", "stands by"]
    assert epochs(stage) == {1}


async def test_epochs_go_on_above_those_of_a_release_without_leases(stage: Stage) -> None:
    await two_replicas(stage, "a")
    membership = await stage.registry_view(MEMBERSHIP, POOL)
    await stage.placements.pop().stop()
    for ids in list(stage.broker.buckets["lease"].stored):
        stage.broker.buckets["lease"].write(ids, None, None)
    await stage.place()
    await stage.seconds(3)
    assert (membership.epoch, epochs(stage)) == (1, {2})


async def test_a_foreign_hand_with_a_higher_epoch_is_outdone(stage: Stage) -> None:
    await two_replicas(stage, "a")
    by_hand = stage.broker.connect("placement").state(OWNER_COUNT)
    count = await stage.registry_view(OWNER_COUNT, POOL)
    await by_hand.put(type(count)(pool_id=POOL, owners=9, epoch=7), POOL)
    await stage.seconds(62)
    assert (await stage.registry_view(OWNER_COUNT, POOL)).owners == 2
    assert min(epochs(stage)) > 7


async def test_what_was_decided_beside_the_loop_is_not_written_once_the_lease_is_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it was decided from has not changed meanwhile, whatever was heard."""
    begun, go_on, same = threading.Event(), threading.Event(), []

    def long(memory: Memory, facts: Facts, stored: Stored, policy: TickPolicy, epoch: int) -> Decision:
        asked = copy.deepcopy((facts, stored))
        if epoch == 1:
            begun.set()
            assert go_on.wait(10)
        same.append(asked == (facts, stored))
        return on_tick(memory, facts, stored, policy, epoch)

    await two_placements(stage, "a")
    monkeypatch.setattr(app, "_LONG_PAIRS", 0)
    monkeypatch.setattr(app, "on_tick", long)
    leader = stage.placements.pop(0)
    await stage.put(adapter("b"))
    await stage.clock.advance(0.0)
    turn = asyncio.create_task(leader.placement.turn())
    assert await asyncio.to_thread(begun.wait, 10)
    await stage.put(adapter("c"))
    await stage.seconds(5)
    before = stage.written()
    go_on.set()
    await turn
    assert (stage.written(), epochs(stage)) == (before, {2})
    assert set(stage.replicas["r1"].tiers) == {"a", "b", "c"}
    assert all(same)

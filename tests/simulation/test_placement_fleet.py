"""Fleet A in virtual time: 26 replicas, 5,000 adapters, two owners each, and people who pull plugs."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.contracts.catalog import ASSIGNMENT
from tests.simulation.placement_world import MOVES, World
from tests.simulation.speakers import MIB, adapter

REPLICAS = 26
ADAPTERS = 5_000
PAIRS_PER_REPLICA = 2 * ADAPTERS / REPLICAS
FLEET_A = {"slots": 250, "ram_budget_bytes": 32 << 30, "disk_budget_bytes": 64 << 30}
ADAPTER_BYTES = 80 * MIB


@pytest.fixture(scope="module")
def fleet_a() -> list[str]:
    return [f"r{number:02}" for number in range(REPLICAS)]


async def started(replica_ids: list[str]) -> World:
    world = World(seed=1)
    await world.start()
    await world.put(adapter(f"customer-{number}", size_bytes=ADAPTER_BYTES) for number in range(ADAPTERS))
    for replica_id in replica_ids:
        await world.join(replica_id, **FLEET_A)
    await world.clock.advance(1.0)
    await world.seconds(2)
    world.check()
    return world


async def test_replicas_join_leave_and_are_killed_and_little_moves(fleet_a: list[str]) -> None:
    world = await started(fleet_a)
    assert sum(map(len, world.assigned().values())) == 2 * ADAPTERS

    before = world.assigned()
    world.may_be_late = True
    await world.join("r26", **FLEET_A)
    for _ in range(9):
        await world.seconds(1)
        assert world.moved <= MOVES, "a few at a time"
    world.may_be_late = False
    world.check()
    moved = len(world.assigned()["r26"])
    assert moved_to_others({**before, "r26": {}}, world.assigned()) == moved, "only the new one gains"
    assert 0.75 * PAIRS_PER_REPLICA < moved < 1.25 * PAIRS_PER_REPLICA

    killed = world.kill("r07")
    before = world.assigned()
    await world.seconds(20)
    assert world.assigned() == before, "a lost replica keeps its adapters for the grace"
    killed.restart("second")
    world.alive["r07"] = killed
    await world.seconds(2)
    assert world.assigned() == before, "and finds them when it comes back"

    world.kill("r07")
    await world.seconds(29)
    lost = len(world.assigned()["r07"])
    await world.seconds(2)
    assert "r07" not in world.assigned()
    assert moved_to_others(before, world.assigned()) == lost, "its adapters go elsewhere and no other moves"
    world.check()


def moved_to_others(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> int:
    return sum(len(held.keys() - before[replica_id].keys()) for replica_id, held in after.items())


async def test_adapters_come_and_go_without_moving_others(fleet_a: list[str]) -> None:
    world = await started(fleet_a)
    await world.put(adapter(f"new-{number}", size_bytes=ADAPTER_BYTES) for number in range(50))
    await world.seconds(1)
    assert world.moved == 100
    before = world.assigned()
    await world.put(adapter(f"new-{number}", size_bytes=ADAPTER_BYTES, status="retired") for number in range(50))
    await world.seconds(1)
    assert world.moved == 0
    after = world.assigned()
    kept = {
        name: {adapter_id for adapter_id in held if adapter_id.startswith("customer")} for name, held in before.items()
    }
    assert {name: set(held) for name, held in after.items()} == kept
    world.check()


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["join", "kill", "restart", "put", "retire", "wait"]),
        st.integers(0, 7),
        st.sampled_from([0.0, 0.3]),
        st.integers(1, 12),
    ),
    max_size=12,
)


@settings(max_examples=40)
@given(EVENTS)
def test_whatever_happens_in_whatever_order(events: list[tuple[str, int, float, int]]) -> None:
    asyncio.run(happens(events))


async def happens(events: list[tuple[str, int, float, int]]) -> None:
    world = World(seed=2)
    await world.start()
    await world.put(adapter(f"a{number}", rank=8 if number % 3 else 16) for number in range(20))
    await world.join("always", slots=3)
    await world.clock.advance(1.0)
    await world.seconds(2)
    killed = {}
    for what, number, unreliable, seconds in events:
        name = f"r{number}"
        if what == "join" and name not in world.alive and name not in killed:
            await world.join(name, slots=number)
        elif what == "kill" and name in world.alive:
            killed[name] = world.kill(name)
        elif what == "restart" and name in killed:
            killed[name].restart(f"life at {world.clock.now_s()}")
            world.alive[name] = killed.pop(name)
        elif what == "put":
            await world.put([adapter(f"new{number}")])
        elif what == "retire" and f"a{number}" in world.adapters:
            await world.put([msgspec.structs.replace(world.adapters[f"a{number}"], status="retired")])
        await world.seconds(seconds, lost=unreliable / 3, repeated=unreliable)
        world.check()


@pytest.mark.parametrize("fault", ["an owner forgets", "a stranger holds", "a slot too many"])
async def test_the_checks_notice_a_planted_fault(fault: str) -> None:
    world = World(seed=3)
    await world.start()
    await world.put(adapter(f"a{number}") for number in range(12))
    for name in ("r1", "r2", "r3"):
        await world.join(name)
    await world.clock.advance(1.0)
    await world.seconds(2)
    bucket = world.broker.connect("placement").state(ASSIGNMENT)
    stored = await bucket.get("r1", "0")
    assert stored is not None
    assert stored.value is not None
    held = stored.value.adapters
    foreign = next(name for name in world.adapters if name not in {found.adapter_id for found in held})
    planted = {
        "an owner forgets": held[1:],
        "a stranger holds": (*held, msgspec.structs.replace(held[0], adapter_id=foreign)),
        "a slot too many": tuple(msgspec.structs.replace(found, tier="gpu") for found in held),
    }
    await bucket.put(msgspec.structs.replace(stored.value, adapters=planted[fault]), "r1", "0")
    with pytest.raises(AssertionError):
        world.check()

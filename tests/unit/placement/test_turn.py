"""A turn that looks only at what has changed comes to what one comes to that looks at everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.placement.core.pool import PoolMemory, PoolNow, PoolPolicy, Recalled, beginning
from services.placement.core.pressure import Thrash
from services.placement.core.rates import Rate
from services.placement.core.seating import Seating
from services.placement.core.turn import turn
from tests.simulation.speakers import POOL, adapter
from tests.unit.placement.test_plan import member, tiers

POLICY = PoolPolicy()
SIZE_BYTES = 10
NOW = PoolNow(
    pool_id=POOL,
    now_s=0.0,
    records={f"a{at}": adapter(f"a{at}", size_bytes=SIZE_BYTES) for at in range(60)},
    members={
        f"r{at}": member(f"r{at}", slots=6, ram_bytes=12 * SIZE_BYTES, disk_bytes=16 * SIZE_BYTES) for at in range(8)
    },
    held={},
    heats={f"a{at}": at % 5 for at in range(40)},
    rates={},
    share=96.0,
)
"""Fewer bytes than adapters, and fewer slots than would do good."""


def with_member(**changes: Any) -> PoolNow:
    return msgspec.structs.replace(
        NOW, members={**NOW.members, "r3": msgspec.structs.replace(NOW.members["r3"], **changes)}
    )


def with_record(name: str, **changes: Any) -> PoolNow:
    known = NOW.records.get(name) or adapter(name, size_bytes=SIZE_BYTES)
    return msgspec.structs.replace(NOW, records={**NOW.records, name: msgspec.structs.replace(known, **changes)})


CHANGES = {
    "RAM": with_member(ram_budget_bytes=5 * SIZE_BYTES),
    "disk": with_member(disk_budget_bytes=3 * SIZE_BYTES),
    "slots": with_member(slots=2),
    "rank limit": with_member(rank_limit=8),
    "weight": with_member(weight=2.0),
    "weight 0": with_member(weight=0.0),
    "drain": msgspec.structs.replace(NOW, members={name: each for name, each in NOW.members.items() if name != "r3"}),
    "join": msgspec.structs.replace(NOW, members={**NOW.members, "r9": member("r9", slots=6)}),
    "pinned": with_record("a7", pinned=True),
    "size": with_record("a7", size_bytes=4 * SIZE_BYTES),
    "status": with_record("a7", status="retired"),
    "new": with_record("a70"),
    "heat": msgspec.structs.replace(NOW, heats={**NOW.heats, "a5": 9}),
    "cold": msgspec.structs.replace(NOW, heats={}),
    "rate": msgspec.structs.replace(NOW, rates={"a7": Rate(700.0, 3.0)}),
}


def settled() -> PoolMemory:
    memory = beginning(POLICY, Recalled(), {}, Thrash())
    for _ in range(5):
        memory = turn(memory, NOW, POLICY)
    return memory


def everything(memory: PoolMemory, now: PoolNow) -> PoolMemory:
    forgetful = msgspec.structs.replace(memory, seating=Seating(slotted=memory.slotted))
    return turn(forgetful, msgspec.structs.replace(now, anew=True), POLICY)


def plans(memory: PoolMemory) -> dict[str, dict[str, str]]:
    return {name: tiers(plan) for name, plan in memory.plans.items()}


@pytest.mark.parametrize("now", CHANGES.values(), ids=CHANGES.keys())
def test_when_one_thing_changes_all_that_depends_on_it_is_planned_anew(now: PoolNow) -> None:
    quick = slow = settled()
    before = plans(quick)
    for _ in range(4):
        quick, slow = turn(quick, now, POLICY), everything(slow, now)
        assert (plans(quick), quick.slotted) == (plans(slow), slow.slotted)
    assert plans(quick) != before
    back = turn(quick, NOW, POLICY), everything(slow, NOW)
    assert plans(back[0]) == plans(back[1])


@pytest.mark.parametrize("look", [turn, lambda memory, now, _: everything(memory, now)], ids=["quick", "whole"])
def test_when_nothing_changes_nothing_moves(look: Callable[[PoolMemory, PoolNow, PoolPolicy], PoolMemory]) -> None:
    memory = settled()
    again = look(memory, msgspec.structs.replace(NOW, now_s=1.0), POLICY)
    assert plans(again) == plans(memory)

"""The shape of the day is known to whoever leads next."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.autoscaler.core.floor import kept, recalled
from services.autoscaler.core.memory import DayShape
from services.autoscaler.core.policy import FloorPolicy, ScalePolicy
from services.autoscaler.lookout import AutoscalerPolicy
from services.autoscaler.shapes import KEEP_S
from shared.contracts.catalog import DAY_SHAPE
from shared.contracts.codec import decode, encode
from shared.messages.desired import DaySlot, PoolDayShape
from tests.simulation.speakers import POOL
from tests.support.paper_actuator import PaperActuator
from tests.unit.autoscaler.test_autoscaler import Stage

FLOOR = FloorPolicy(enabled=True)
LEARNT = DayShape(needs={3: (1.5, 2.0), 4: (7.0,)}, slot=5, largest=2.5)
DAY_S = 86_400.0


def said(at_s: float = 1_000.0) -> PoolDayShape:
    """As a reader gets it: through the channel's own encode and decode."""
    shape = kept(POOL, LEARNT, at_s, FLOOR)
    assert shape is not None
    return decode(DAY_SHAPE, encode(DAY_SHAPE, shape))


def test_what_was_kept_is_what_was_learnt() -> None:
    assert recalled(said(), 1_100.0, FLOOR) == LEARNT
    assert kept(POOL, DayShape(), 0.0, FLOOR) is None


def test_the_slot_that_was_under_way_is_over_when_another_one_began() -> None:
    after = recalled(said(), 1_000.0 + DAY_S, FLOOR)
    assert after == DayShape(needs={**LEARNT.needs, 5: (2.5,)})


@pytest.mark.parametrize(
    "changes",
    [
        {"slot_s": 60.0},
        {"slot_s": 0.0},
        {"largest": float("inf")},
        {"slot": 96},
        {"slots": (DaySlot(slot=-1, replicas=(1.0,)),)},
        {"slots": (DaySlot(slot=1, replicas=(-1.0,)),)},
        {"at_s": 1_100.0 - 7.1 * DAY_S},
        {"at_s": 1_100.0 + DAY_S},
    ],
)
def test_what_is_old_or_makes_no_sense_is_no_shape(changes: dict[str, Any]) -> None:
    assert recalled(msgspec.structs.replace(said(), **changes), 1_100.0, FLOOR) == DayShape()


async def test_the_next_leader_knows_what_this_time_of_day_needed() -> None:
    actuator = PaperActuator()
    actuator.there[POOL] = {"r1", "r2"}
    stage = Stage(actuator, AutoscalerPolicy(scale=ScalePolicy(floor=FLOOR)))
    await stage.start()
    await stage.seconds(4)
    assert len(actuator.there[POOL]) == 2
    days = tuple(DaySlot(slot=slot, replicas=(4.0,)) for slot in range(96))
    record = msgspec.structs.replace(said(), at_s=stage.clock.wall_s(), slots=days)
    await stage.bus.state(DAY_SHAPE).put(record, POOL)
    await stage.restart()
    await stage.seconds(4)
    assert stage.heard[-1].pools[0].reason == "this time of day needed 4.0 on 1 last days"
    assert len(actuator.there[POOL]) == 4
    await stage.autoscaler.stop()


async def test_a_leader_keeps_what_it_learns_once_a_minute() -> None:
    stage = Stage(policy=AutoscalerPolicy(scale=ScalePolicy(floor=FLOOR)))
    await stage.start()
    written: list[PoolDayShape] = []

    async def on_shape(change: Any) -> None:
        written.append(change.value)

    await stage.bus.state(DAY_SHAPE).watch(on_shape)
    await stage.seconds(int(2 * KEEP_S))
    assert [shape.pool_id for shape in written] == [POOL, POOL]
    assert written[1].at_s - written[0].at_s >= KEEP_S
    await stage.autoscaler.stop()


async def test_without_a_floor_nothing_is_kept() -> None:
    stage = Stage()
    await stage.start()
    await stage.seconds(5)
    assert await stage.bus.state(DAY_SHAPE).entries() == []
    await stage.autoscaler.stop()

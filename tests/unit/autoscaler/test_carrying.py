"""Orders on their way to an actuator that is slow to learn, or away."""

from __future__ import annotations

from services.autoscaler.carrying import Carrier
from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.io.meters import Meters
from shared.messages.identity import AdapterKey
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from tests.support.paper_actuator import PaperActuator

PLAIN = PoolSpec(pool_id="base-r16-m1")
MERGED = PoolSpec(pool_id="base-r16-m1", merged=AdapterKey(adapter_id="big-1", digest="d1"))


class Asked(PaperActuator):
    """Remembers what it was asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[PoolSpec] = []

    async def existing(self, pool: PoolSpec) -> frozenset[str] | None:
        self.asked.append(pool)
        return await super().existing(pool)


def carrier(actuator: PaperActuator, clock: ManualClock) -> Carrier:
    return Carrier(actuator, clock, Meters(Metrics("autoscaler")), lambda epoch: epoch == 1)


async def test_a_pool_is_met_once_and_again_when_it_turns_out_to_be_a_customer_s_own() -> None:
    actuator, clock = Asked(), ManualClock()
    carried = carrier(actuator, clock)
    for pool in (PLAIN, PLAIN, MERGED, MERGED):
        await carried.meet([pool])
    assert actuator.asked == [PLAIN, MERGED]
    await carried.turn()
    assert actuator.asked[-1] == MERGED


async def test_an_actuator_that_is_away_for_days_is_asked_every_minute() -> None:
    actuator, clock = PaperActuator(), ManualClock()
    carried = carrier(actuator, clock)
    actuator.broken = "nobody is there"
    await carried.meet([PLAIN])
    for _ in range(1_100):
        await clock.advance(60.0)
        await carried.turn()
    actuator.broken = ""
    carried.tell([ScaleOrder(pool=PLAIN, desired=1, epoch=1)])
    await clock.advance(60.0)
    await carried.turn()
    assert carried.existing(PLAIN.pool_id, frozenset()) == {"n1"}


async def test_a_pool_that_is_over_is_asked_about_no_more() -> None:
    actuator, clock = Asked(), ManualClock()
    carried = carrier(actuator, clock)
    await carried.meet([MERGED])
    carried.tell([ScaleOrder(pool=MERGED, desired=0, epoch=1)])
    carried.forget(MERGED.pool_id)
    await carried.turn()
    assert (actuator.asked, actuator.orders) == ([MERGED], [])

"""One process and the lease: what it writes when, and what it believes after a write of unknown fate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from shared.bus.memory import MemoryBroker
from shared.bus.port import BusUnavailable, Change
from shared.contracts.catalog import LEASE
from shared.leadership.leader import Leader
from shared.messages.desired import Lease
from shared.runtime.clock import ManualClock

ROLE = "placement"


class Troubled:
    """A bucket whose next `put` can be held up: its sender hears that the bus is away, and it arrives when let go."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.holds_up = False
        self.held_up: list[Callable[[], Awaitable[int]]] = []
        self.is_away = False

    async def get(self, *ids: str) -> Change[Lease] | None:
        if self.is_away:
            raise BusUnavailable("the bus is away")
        found: Change[Lease] | None = await self.inner.get(*ids)
        return found

    async def put(self, value: Lease, *ids: str, expected_revision: int | None = None) -> int:
        async def arrive() -> int:
            revision: int = await self.inner.put(value, *ids, expected_revision=expected_revision)
            return revision

        if self.holds_up:
            self.held_up.append(arrive)
            raise BusUnavailable("no confirmation came")
        return await arrive()


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bucket = MemoryBroker().connect(ROLE).state(LEASE)
        self.way = Troubled(self.bucket)
        self.one, self.other = self.leader("one", self.way), self.leader("other", self.bucket)

    def leader(self, holder: str, store: Any) -> Leader:
        leader = Leader(store, self.clock, role=ROLE, holder=holder)
        leader.contend()
        return leader

    async def lease(self) -> Lease:
        found = await self.bucket.get(ROLE)
        assert found is not None
        assert found.value is not None
        return found.value

    async def seconds(self, seconds: float, *leaders: Leader) -> None:
        for _ in range(round(seconds * 4)):
            await self.clock.advance(0.25)
            for leader in leaders:
                await leader.turn()


async def test_the_lease_is_renewed_every_third_of_its_time() -> None:
    stage = Stage()
    await stage.one.turn()
    assert (await stage.lease()) == Lease(role=ROLE, holder="one", epoch=1, beat=1, ttl_s=3.0)
    await stage.seconds(9.0, stage.one)
    assert (await stage.lease()).beat == 10
    assert (stage.one.may_act(1), stage.one.may_act(2)) == (True, False)


async def test_who_does_not_contend_takes_no_lease() -> None:
    stage = Stage()
    shy = Leader(stage.bucket, stage.clock, role=ROLE, holder="shy")
    standing = await shy.turn()
    assert (standing.leads, standing.reason) == (False, "does not contend yet: nobody has held the lease")
    assert await stage.bucket.get(ROLE) is None


async def test_acting_ends_before_anybody_else_may_begin() -> None:
    stage = Stage()
    await stage.one.turn()
    await stage.other.turn()
    await stage.clock.advance(2.375)
    assert stage.one.may_act(1)
    await stage.clock.advance(0.05)
    assert not stage.one.may_act(1)
    assert stage.one.standing.reason == "its renewal of the lease is 2.4 s old"
    assert not (await stage.other.turn()).leads
    await stage.clock.advance(0.6)
    standing = await stage.other.turn()
    assert (standing.leads, standing.epoch) == (True, 2)
    assert standing.reason == "holds the lease with epoch 2: one did not renew the lease for 3.0 s"


async def test_a_claim_of_unknown_fate_counts_from_when_it_was_sent() -> None:
    stage = Stage()
    stage.way.holds_up = True
    await stage.one.turn()
    assert not stage.one.standing.leads
    stage.way.holds_up = False
    await stage.clock.advance(2.0)
    await stage.way.held_up[0]()
    await stage.one.turn()  # finds its claim, two seconds old, and renews it
    assert (await stage.lease()).beat == 2
    assert stage.one.may_act(1)


async def test_a_renewal_that_arrives_late_is_not_taken_for_the_one_sent_after_it() -> None:
    """The other saw the late one when it arrived, and may act three seconds after that."""
    stage = Stage()
    await stage.one.turn()
    await stage.seconds(0.75, stage.one)
    stage.way.holds_up = True
    await stage.seconds(0.5, stage.one)  # two attempts, both under way
    first, *_ = stage.way.held_up
    await first()
    await stage.other.turn()
    stage.way.is_away = True
    await stage.seconds(2.25, stage.one, stage.other)
    assert not stage.one.may_act(1)
    await stage.seconds(1.0, stage.one, stage.other)
    assert (stage.one.standing.leads, stage.other.standing.leads) == (False, True)


async def test_a_contender_counts_no_time_in_which_it_could_not_look() -> None:
    stage = Stage()
    await stage.other.turn()
    await stage.one.turn()
    stage.way.is_away = True
    await stage.seconds(60.0, stage.one)
    stage.way.is_away = False
    assert not (await stage.one.turn()).leads
    await stage.seconds(2.75, stage.one)
    assert not stage.one.standing.leads
    await stage.seconds(0.5, stage.one)
    assert stage.one.may_act(2)


async def test_a_higher_epoch_seen_elsewhere_ends_the_acting_until_the_lease_is_above_it() -> None:
    stage = Stage()
    await stage.one.turn()
    stage.one.heed(7)
    assert not stage.one.may_act(1)
    standing = await stage.one.turn()
    assert (standing.leads, standing.epoch, (await stage.lease()).epoch) == (True, 8, 8)


async def test_a_lease_that_is_gone_is_claimed_above_what_was_known() -> None:
    stage = Stage()
    await stage.other.turn()
    await stage.one.turn()
    await stage.bucket.delete(ROLE)
    assert (await stage.one.turn()).epoch == 2
    assert not (await stage.other.turn()).leads


async def test_whoever_stops_gives_up_its_own_lease_and_no_other() -> None:
    stage = Stage()
    await stage.one.turn()
    await stage.other.stop()
    assert (await stage.lease()).holder == "one"
    await stage.one.stop()
    assert (await stage.lease()).holder == ""
    assert not (await stage.one.turn()).leads
    successor = stage.leader("third", stage.bucket)
    assert (await successor.turn()).epoch == 2


async def test_a_stop_without_a_bus_ends_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    await stage.one.turn()
    stage.way.is_away = True
    await stage.one.stop()
    assert not stage.one.may_act(1)
    assert "the lease of placement was not given up: the bus is away" in caplog.text


async def test_a_lease_lasts_as_long_as_its_holder_says() -> None:
    stage = Stage()
    await stage.one.turn()
    held = await stage.bucket.get(ROLE)
    assert held is not None
    longer = msgspec.structs.replace(await stage.lease(), holder="patient", beat=9, ttl_s=10.0)
    await stage.bucket.put(longer, ROLE, expected_revision=held.revision)
    await stage.seconds(9.0, stage.one, stage.other)
    assert (await stage.lease()) == longer
    await stage.seconds(1.5, stage.one, stage.other)
    assert (await stage.lease()).epoch == 2

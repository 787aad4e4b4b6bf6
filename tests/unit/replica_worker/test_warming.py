"""A replica that has just come waits for what is planned for its slots, and for nothing else, and not for long."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from services.replica_worker.core.assignment import Assignment, fold, without
from services.replica_worker.core.warming import Slots, WarmPolicy, WarmUp, looked
from shared.contracts.catalog import ASSIGNMENT
from shared.contracts.codec import decode, encode
from shared.messages.desired import AssignedAdapter, AssignmentShard
from shared.messages.identity import AdapterKey, key_of
from tests.support.replica import BASE_HASH, Rig, rig
from tests.support.replica_operations import assign
from tests.support.unruly_engine import UnrulyEngine, unruly

POLICY = WarmPolicy(adapters=3, deadline_s=30.0, plan_s=5.0)
NEW = WarmUp(since_s=0.0)


def key(name: str) -> AdapterKey:
    return AdapterKey(adapter_id=name, digest=key_of(name))


def plan(*names: str, shard: int = 0, shards: int = 1, tier: str = "gpu") -> AssignmentShard:
    """The first name is the hottest."""
    adapters = tuple(
        AssignedAdapter(adapter_id=name, digest=key_of(name), role="owner", tier=tier, heat=9 - at)
        for at, name in enumerate(names)
    )
    made = AssignmentShard(replica_id="r1", pool_id="p", epoch=1, shard=shard, shards=shards, adapters=adapters)
    return decode(ASSIGNMENT, encode(ASSIGNMENT, made))


PLANNED = fold(Assignment(), plan("a", "b", "c", "d", "e"))


def slots(*resident: str, free: int = 8, failed: tuple[str, ...] = ()) -> Slots:
    held = {key(name) for name in resident}
    return Slots(is_resident=held.__contains__, free=free, failed={key(name) for name in failed})


def look(
    before: WarmUp = NEW, assignment: Assignment = PLANNED, has: Slots | None = None, now_s: float = 1.0
) -> WarmUp:
    return looked(before, assignment, has or slots(), now_s, POLICY)


def test_it_waits_for_the_busiest_and_says_how_many_are_to_come() -> None:
    assert (look().over, look().to_come) == (False, 3)
    assert look(has=slots("a", "c")).to_come == 1
    done = look(has=slots("a", "b", "c"))
    assert (done.over, done.to_come, done.reason) == (True, 0, "all that was waited for is in its slots")


def test_it_never_begins_again() -> None:
    done = look(has=slots("a", "b", "c"))
    assert look(done, has=slots(), now_s=2.0) is done


def test_before_there_is_a_whole_plan_it_waits_for_one_and_not_for_long() -> None:
    for assignment in (Assignment(), fold(Assignment(), plan("a", shards=2)), without(PLANNED, 0)):
        assert (look(assignment=assignment).over, look(assignment=assignment).to_come) == (False, 0)
        late = look(assignment=assignment, now_s=5.0)
        assert (late.over, late.reason) == (True, "nothing was planned for its slots within 5 s")


@pytest.mark.parametrize("planned", [plan(), plan("a", "b", tier="ram")], ids=["nothing", "RAM only"])
def test_a_plan_without_slots_is_no_reason_to_wait(planned: AssignmentShard) -> None:
    assert look(assignment=fold(Assignment(), planned)).over


def test_without_a_free_slot_nothing_more_is_waited_for() -> None:
    assert look(has=slots("a", free=1)).to_come == 1
    assert look(has=slots("a", free=0)).over
    assert look(assignment=Assignment(), has=slots(free=0)).over


def test_what_cannot_be_loaded_is_not_waited_for() -> None:
    assert look(has=slots("a", failed=("b",))).to_come == 1
    assert look(has=slots("a", failed=("b", "c"))).over


def test_the_deadline_ends_it_whatever_is_missing() -> None:
    assert not look(has=slots("a"), now_s=29.9).over
    late = look(has=slots("a"), now_s=30.0)
    assert (late.over, late.reason) == (True, "2 adapters had not come within 30 s")
    hurried = msgspec.structs.replace(POLICY, deadline_s=0.0)
    assert looked(NEW, PLANNED, slots(), 0.0, hurried).over


async def test_a_new_replica_reports_what_is_to_come_until_it_is_there(replica: Rig, engine: UnrulyEngine) -> None:
    said = replica.replica.reporter.report
    assert (said().ready, said().warming, said().to_warm) == (True, True, 0)
    engine.copying.clear()
    records = [await replica.register(f"acme-{at}") for at in range(3)]
    await assign(replica, *((record, "gpu") for record in records))
    await replica.until(lambda: said().to_warm == 3)
    engine.copying.set()
    await replica.until(lambda: not said().warming)
    assert set(replica.replica.loader.resident) == {record.key for record in records}
    await replica.replica.loader.drop(records[0].key)
    assert not said().warming


async def test_a_replica_whose_loads_never_end_takes_requests_after_the_deadline(
    replica: Rig, engine: UnrulyEngine
) -> None:
    said = replica.replica.reporter.report
    engine.copying.clear()
    await assign(replica, (await replica.register("acme-1"), "gpu"))
    await replica.until(lambda: said().to_warm == 1)
    await replica.clock.advance(29.0)
    assert said().warming
    await replica.clock.advance(1.0)
    assert (said().warming, said().to_warm, said().ready) == (False, 0, True)
    engine.copying.set()


async def test_how_long_is_a_setting_and_none_is_one_too(tmp_path: Path, model_folder: Path) -> None:
    async with rig(tmp_path, model_folder, engine=unruly(BASE_HASH), warm_deadline_s=0.0) as hurried:
        assert not hurried.replica.reporter.report().warming

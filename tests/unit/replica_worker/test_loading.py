"""From the store to a slot: once, checked, and with an end to every failure."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec
import pytest

from services.replica_worker.core.pace import Pace
from services.replica_worker.engine.port import AdapterUnusable
from services.replica_worker.tiers.errors import AdapterFailed
from shared.contracts.catalog import STATE
from shared.messages.operations import AskState, HoldResult
from tests.support.replica import BASE_HASH, REPLICA_ID, Rig, refused, rig
from tests.support.replica_operations import load, unload
from tests.support.unruly_engine import UnrulyEngine, unruly


def byte_counts(replica: Rig) -> tuple[int, int, int]:
    loader = replica.replica.loader
    on_disk = sum(path.stat().st_size for path in replica.cache.glob("*.safetensors"))
    return loader.ram.budget.used_bytes, loader.disk.budget.used_bytes, on_disk


async def test_c17_loading_and_unloading_200_times_leaves_nothing_behind(replica: Rig) -> None:
    record, other = await replica.register("acme-1"), await replica.register("acme-2")
    assert (await load(replica, other)).ok
    before = byte_counts(replica)
    for _ in range(200):
        assert await load(replica, record) == HoldResult(
            adapter_id="acme-1", ok=True, tier="gpu", reason="resident where it was wanted"
        )
        assert byte_counts(replica) != before
        assert (await unload(replica, record)).tier == "remote"
    assert byte_counts(replica) == before
    assert replica.replica.loader.slots.table.empty == 3


async def test_c21_64_adapters_through_4_slots_each_answer_as_themselves(replica: Rig) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(64)]
    calls = [(record, turn) for record in records for turn in range(2)]
    random.Random(21).shuffle(calls)
    heard = await asyncio.gather(
        *(replica.caller.run(replica.request(f"{record.adapter_id}-{turn}", record)) for record, turn in calls)
    )
    tokens: dict[str, set[tuple[int, ...]]] = {}
    for (record, _), each in zip(calls, heard, strict=True):
        assert each.finish is not None, each.answers
        tokens.setdefault(record.adapter_id, set()).add(each.token_ids)
    assert all(len(answers) == 1 for answers in tokens.values())
    assert len(set.union(*tokens.values())) == 64


async def test_c23_500_requests_that_end_in_every_way_release_every_reference(
    replica: Rig, engine: UnrulyEngine
) -> None:
    dice = random.Random(23)
    records = [await replica.register(f"acme-{at}") for at in range(12)]
    replica.stored(records[0]).write_bytes(b"other bytes")

    async def one(at: int) -> None:
        record = dice.choice([*records, None])
        if dice.random() < 0.1:
            call = dice.choice(["load", "read", "fingerprint"])
            engine.fail(call, dice.choice([AdapterUnusable("no"), RuntimeError("planted")]))
        changes = {"stop": ("",)} if dice.random() < 0.05 else {"max_tokens": dice.choice([1, 8, 5_000])}
        heard = await replica.caller.send(replica.request(f"r{at}", record, **changes))
        for _ in range(dice.randrange(60)):
            await asyncio.sleep(0)
        if dice.random() < 0.4:
            await replica.caller.cancel(f"r{at}")
        elif not heard.over:
            await replica.until(lambda: heard.over or replica.replica.generation.open == 0)

    for start in range(0, 500, 50):
        await asyncio.gather(*(one(at) for at in range(start, start + 50)))
    await replica.settled()
    replica.assert_sound()
    assert replica.replica.loader.slots.table.busy == 0
    assert engine.load_figures().running == 0


@pytest.mark.parametrize("steps", range(0, 40, 2))
async def test_c24_undeploying_at_any_await_of_an_acquisition_never_leaves_a_request_without_its_adapter(
    replica: Rig, engine: UnrulyEngine, steps: int
) -> None:
    record = await replica.register("acme-1")
    acquiring = asyncio.create_task(replica.replica.loader.acquire(record))
    for _ in range(steps):
        await asyncio.sleep(0)
    dropped = await replica.replica.loader.drop(record.key)
    reference = await acquiring
    assert engine.held_digest(reference.slot) == record.digest
    refused = await replica.replica.loader.drop(record.key)
    assert refused is not None
    assert engine.held_digest(reference.slot) == record.digest
    reference.release()
    reference.release()
    assert await replica.replica.loader.drop(record.key) is None
    assert dropped is None or isinstance(dropped, str)


@pytest.mark.parametrize("steps", range(12))
async def test_c24_acquiring_at_any_await_of_an_unload_loads_again(
    replica: Rig, engine: UnrulyEngine, steps: int
) -> None:
    record = await replica.register("acme-1")
    await replica.replica.loader.bring(record, "gpu")
    dropping = asyncio.create_task(replica.replica.loader.drop(record.key))
    for _ in range(steps):
        await asyncio.sleep(0)
    reference = await replica.replica.loader.acquire(record)
    await dropping
    assert engine.held_digest(reference.slot) == record.digest
    reference.release()


async def test_c26_fifty_first_requests_are_one_download(replica: Rig) -> None:
    record = await replica.register("acme-1")
    heard = await asyncio.gather(*(replica.caller.run(replica.request(f"r{at}", record)) for at in range(50)))
    assert all(each.finish is not None for each in heard)
    assert replica.store.reads == {record.store_key: 1}


async def test_c26_places_that_spell_alike_never_share_a_file(replica: Rig) -> None:
    one = await replica.register("one", b"bytes of one" * 9)
    two = await replica.register("two", b"bytes of two" * 9)
    for record, key in ((one, "a/b_c"), (two, "a_b/c")):
        target = replica.folder / "store" / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(replica.stored(record).read_bytes())
        await replica.tell(msgspec.structs.replace(record, store_key=key))
    for record in (one, two):
        assert (await load(replica, record)).ok
    assert replica.store.reads == {"a/b_c": 1, "a_b/c": 1}
    assert replica.cached(one).read_bytes() != replica.cached(two).read_bytes()


async def test_the_same_bytes_under_two_ids_are_one_file_and_two_adapters(replica: Rig) -> None:
    one, two = await replica.register("one", b"shared" * 9), await replica.register("two", b"shared" * 9, alpha=4.0)
    assert (await load(replica, one)).ok
    assert (await load(replica, two)).ok
    assert replica.store.reads == {one.store_key: 1}
    assert set(replica.replica.loader.slots.table.resident) == {one.key, two.key}


async def test_an_adapter_in_use_is_not_unloaded(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1")
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", record))
    await replica.caller.wait(lambda: heard.accepted is not None)
    refused = await unload(replica, record)
    assert (refused.ok, refused.tier) == (False, "gpu")
    assert "1 requests use it" in refused.reason
    engine.go()
    await replica.caller.wait(lambda: heard.over)
    assert (await unload(replica, record)).ok


async def test_the_state_names_what_is_held(replica: Rig) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(3)]
    for record, tier in zip(records, ("disk", "ram", "gpu"), strict=True):
        assert (await load(replica, record, tier)).ok
    state = await replica.registry.ask(STATE, AskState(), REPLICA_ID, timeout_s=5)
    assert state.gpu_adapters == ("acme-2",)
    assert state.ram_adapters == ("acme-1", "acme-2")
    assert state.disk_adapters == ("acme-0", "acme-1", "acme-2")
    assert state.ready


async def test_loading_what_is_unknown_or_into_no_tier_says_so(replica: Rig) -> None:
    record = await replica.register("acme-1")
    unknown = msgspec.structs.replace(record, digest="e" * 64)
    assert "knows no such adapter" in (await load(replica, unknown)).reason
    assert "is no tier" in (await load(replica, record, "cloud")).reason


async def test_a_waiter_that_leaves_in_any_moment_leaves_nothing_behind(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1")
    for steps in range(0, 40, 3):
        acquiring = asyncio.create_task(replica.replica.loader.acquire(record))
        for _ in range(steps):
            await asyncio.sleep(0)
        acquiring.cancel()
        [result] = await asyncio.gather(acquiring, return_exceptions=True)
        if not isinstance(result, BaseException):
            result.release()
        await replica.until(lambda: not replica.replica.loader.slots.table.busy)
        assert replica.replica.loader.slots.table.references == 0
        await replica.replica.loader.drop(record.key)


async def test_a_slot_that_was_closed_for_a_waiter_who_left_serves_its_own_adapter_again(
    tmp_path: Path, model_folder: Path
) -> None:
    engine = unruly(BASE_HASH, slots=1)
    async with rig(tmp_path, model_folder, engine=engine, slots=1) as small:
        hot, cold = await small.register("hot"), await small.register("cold")
        engine.hold()
        running = await small.caller.send(small.request("runs", hot))
        await small.caller.wait(lambda: running.accepted is not None)
        await small.caller.send(small.request("leaves", cold))
        await small.until(lambda: small.replica.generation.dispatcher.waiting == 1)
        await small.clock.advance(1.5)
        await small.replica.tick()
        joins = await small.caller.send(small.request("joins", hot))
        await small.until(lambda: small.replica.generation.dispatcher.waiting == 2)
        await small.clock.advance(1.5)
        await small.caller.cancel("leaves")
        await small.replica.tick()
        await small.caller.wait(lambda: joins.accepted is not None)
        engine.go()


async def test_ram_smaller_than_the_slots_still_serves_all(tmp_path: Path, model_folder: Path) -> None:
    async with rig(tmp_path, model_folder, ram_budget_bytes=2_000) as small:
        records = [await small.register(f"acme-{at}", bytes([at]) * 900) for at in range(12)]
        heard = await asyncio.gather(
            *(small.caller.run(small.request(f"r{at}", record)) for at, record in enumerate(records))
        )
        assert all(each.finish is not None for each in heard), [each.refused for each in heard]
        assert small.replica.loader.ram.budget.used_bytes <= 2_000


@pytest.mark.parametrize("steps", range(12))
async def test_a_waiter_that_leaves_as_its_load_fails_gives_back_nothing_twice(
    replica: Rig, engine: UnrulyEngine, steps: int
) -> None:
    record, other = await replica.register("acme-1"), await replica.register("acme-2")
    for each in (record, other):
        await replica.replica.loader.bring(each, "ram")
    engine.fail("load", AdapterUnusable("planted"))
    acquiring = asyncio.create_task(replica.replica.loader.acquire(record))
    for _ in range(steps):
        await asyncio.sleep(0)
    acquiring.cancel()
    [result] = await asyncio.gather(acquiring, return_exceptions=True)
    assert isinstance(result, asyncio.CancelledError | AdapterFailed), result
    await replica.until(lambda: not replica.replica.loader.slots.table.busy)
    engine.faults.clear()
    (await replica.replica.loader.acquire(other)).release()


async def test_what_is_being_copied_to_a_slot_stays_in_ram(tmp_path: Path, model_folder: Path) -> None:
    engine = unruly(BASE_HASH)
    async with rig(tmp_path, model_folder, engine=engine, ram_budget_bytes=2_000) as small:
        copied, second, third = [await small.register(f"acme-{at}", bytes([at]) * 900) for at in range(3)]
        engine.copying.clear()
        acquiring = asyncio.create_task(small.replica.loader.acquire(copied))
        await small.until(lambda: engine.calls["load"] == 1)
        for record in (second, third):
            await small.replica.loader.bring(record, "ram")
        assert [small.replica.loader.ram.holds(each.key) for each in (copied, second, third)] == [True, False, True]
        engine.copying.set()
        (await acquiring).release()


async def test_however_slow_the_store_was_one_adapter_is_tried_and_those_behind_it_are_told_to_wait(
    replica: Rig,
) -> None:
    replica.replica.loader.disk.pace = Pace(assumed_bytes_per_s=0.001)
    first, second = await replica.register("acme-1"), await replica.register("acme-2")
    tried = await replica.caller.send(replica.request("r1", first))
    told = refused(await replica.caller.run(replica.request("r2", second)))
    beside = await replica.caller.send(replica.request("r3", first))
    assert (told.code, told.elsewhere, told.retry_after_s) == ("overloaded", True, 30.0)
    await replica.caller.wait(lambda: tried.over and beside.over)
    assert tried.finish is not None
    assert beside.finish is not None
    assert (await replica.caller.run(replica.request("r4", second))).finish is not None


async def test_who_is_refused_for_another_reason_is_not_expected_back(replica: Rig) -> None:
    first, second = await replica.register("acme-1"), await replica.register("acme-2")
    replica.replica.loader.disk.pace = Pace(assumed_bytes_per_s=first.size_bytes / 50.0)
    for at in range(5):
        elsewhere = await replica.caller.run(replica.request(f"elsewhere-{at}", second, pool_id="another"))
        assert refused(elsewhere).code == "wrong_pool"
    await replica.caller.send(replica.request("r1", first))
    told = refused(await replica.caller.run(replica.request("r2", second)))
    assert (told.code, told.retry_after_s) == ("overloaded", pytest.approx(2.0, rel=0.1))

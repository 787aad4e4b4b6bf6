"""Every planted fault on the way to a slot has one clear end, and nothing stays behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from services.replica_worker.engine.port import AdapterUnusable
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from shared.bus.port import AskFailed
from shared.contracts.catalog import ADAPTER_EFFECT_MISMATCH, ADAPTER_LOAD_FAILED, FINGERPRINT
from shared.messages.adapters import AdapterLoadFailed, EffectMismatch
from shared.messages.operations import AskFingerprint
from shared.store.port import StoreUnavailable
from tests.support.replica import REPLICA_ID, Rig, rig, timed
from tests.support.replica_operations import load, unload
from tests.support.unruly_engine import UnrulyEngine


async def test_c20_an_adapter_whose_file_vanished_fails_alone(replica: Rig) -> None:
    gone, there = await replica.register("gone"), await replica.register("there")
    replica.stored(gone).unlink()
    heard, other = await asyncio.gather(
        replica.caller.run(replica.request("r1", gone)), replica.caller.run(replica.request("r2", there))
    )
    assert heard.refused is not None
    assert (heard.refused.code, heard.refused.elsewhere) == ("adapter_unavailable", True)
    assert "not in the store" in heard.refused.message
    assert other.finish is not None
    assert other.finish.reason == "length"


@pytest.mark.parametrize("call", ["read", "load"])
async def test_c28_a_step_that_fails_once_does_not_poison_the_retry(
    replica: Rig, engine: UnrulyEngine, call: str
) -> None:
    record = await replica.register("acme-1")
    engine.fail(call, AdapterUnusable("a passing fault"))
    failed = await load(replica, record)
    assert (failed.ok, failed.tier == "gpu") == (False, False)
    assert "a passing fault" in failed.reason
    assert (await load(replica, record)).ok
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.accepted is not None
    assert heard.accepted.tier == "gpu"


async def test_c28_a_proof_that_fails_once_leaves_nothing_that_a_retry_could_take_for_loaded(
    replica: Rig, engine: UnrulyEngine
) -> None:
    record = await replica.register("acme-1")
    engine.fail("probe", RuntimeError("a passing fault"), times=2)
    failed = await load(replica, record)
    assert not failed.ok
    assert "cannot be proven: a passing fault" in failed.reason
    await replica.until(lambda: replica.replica.loader.slots.table.empty == 4)
    assert [engine.held_digest(slot) for slot in range(4)] == [None] * 4
    again = await load(replica, record)
    assert (again.ok, again.tier) == (True, "gpu")
    probes = engine.calls["probe"]
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.accepted is not None
    assert (heard.accepted.tier, engine.calls["probe"]) == ("gpu", probes), "routable: nothing is left to be proven"


async def test_a_slot_whose_clearing_failed_is_not_lost(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1")
    assert (await load(replica, record)).ok
    engine.fail("clear", RuntimeError("planted"))
    with pytest.raises(AskFailed, match="planted"):
        await unload(replica, record)
    assert replica.replica.loader.slots.table.empty == 4
    assert (await load(replica, record)).ok


async def test_c33_a_killed_replica_comes_back_from_its_disk_without_the_store(replica: Rig) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(3)]
    for record in records:
        assert (await load(replica, record, "disk")).ok
    (replica.cache / f"{'a' * 64}.part").write_bytes(b"half a file")
    reads = dict(replica.store.reads)
    replica.store.broken = StoreUnavailable("the store is away")
    await replica.restart_after_kill(timed())
    for at, record in enumerate(records):
        heard = await replica.caller.run(replica.request(f"r{at}", record))
        assert heard.accepted is not None, heard.answers
        assert heard.accepted.tier == "disk"
    assert replica.store.reads == reads
    assert replica.replica.loader.disk.budget.used_bytes == sum(record.size_bytes for record in records) + len(
        b"half a file"
    )


async def test_c36_a_corrupt_file_fails_with_its_reason_and_is_not_fetched_again_and_again(replica: Rig) -> None:
    record = await replica.register("acme-1")
    content = replica.stored(record).read_bytes()
    replica.stored(record).write_bytes(content[:-1] + b"\x00")
    for at in range(5):
        heard = await replica.caller.run(replica.request(f"r{at}", record))
        assert heard.refused is not None
        assert heard.refused.code == "adapter_failed"
        assert "corrupt" in heard.refused.message
    assert replica.store.reads == {record.store_key: 1}
    assert list(replica.cache.glob("*.safetensors")) == []
    await replica.clock.advance(31.0)
    await replica.caller.run(replica.request("later", record))
    assert replica.store.reads == {record.store_key: 2}
    replica.stored(record).write_bytes(content)
    assert (await load(replica, record)).ok
    assert (await replica.caller.run(replica.request("healed", record))).accepted is not None


async def told_of_losses(replica: Rig) -> list[AdapterLoadFailed]:
    told: list[AdapterLoadFailed] = []

    async def on_loss(event: AdapterLoadFailed, ids: tuple[str, ...]) -> None:
        told.append(event)

    await replica.registry.consume(ADAPTER_LOAD_FAILED, "test", on_loss)
    return told


@pytest.mark.parametrize("code", ["corrupt", "missing"])
async def test_c36_the_registry_is_told_once_that_an_active_adapters_stored_bytes_are_lost(
    replica: Rig, code: str
) -> None:
    told = await told_of_losses(replica)
    record = await replica.register("acme-1")
    if code == "corrupt":
        replica.stored(record).write_bytes(b"something else")
    else:
        replica.stored(record).unlink()
    for at in range(3):
        await replica.caller.run(replica.request(f"r{at}", record))
        await replica.clock.advance(700.0)
        await replica.replica.alarms.tell()
    await replica.until(lambda: len(told) == 1)
    assert (told[0].adapter_id, told[0].digest, told[0].replica_id) == ("acme-1", record.digest, REPLICA_ID)
    assert told[0].code == code
    assert replica.store.reads[record.store_key] == 3, "what the registry decides of it is not decided here"


async def test_c36_a_candidate_and_a_network_fault_are_no_loss(replica: Rig) -> None:
    told = await told_of_losses(replica)
    candidate, cut_off = await replica.register("c", status="evaluating"), await replica.register("acme-1")
    replica.stored(candidate).unlink()
    await replica.caller.run(replica.request("r1", candidate))
    replica.store.broken = StoreUnavailable("planted")
    await replica.caller.run(replica.request("r2", cut_off))
    await replica.replica.alarms.tell()
    lost = await replica.register("lost")
    replica.store.broken = None
    replica.stored(lost).unlink()
    await replica.caller.run(replica.request("r3", lost))
    await replica.replica.alarms.tell()
    await replica.until(lambda: bool(told))
    assert [event.adapter_id for event in told] == ["lost"]


async def test_c36_a_loss_that_the_bus_did_not_take_is_told_later(replica: Rig) -> None:
    told = await told_of_losses(replica)
    record = await replica.register("acme-1")
    replica.stored(record).unlink()
    await replica.caller.run(replica.request("r1", record))
    replica.broker.disconnect(replica.bus)
    await replica.replica.alarms.tell()
    replica.broker.reconnect(replica.bus)
    await replica.replica.alarms.tell()
    await replica.until(lambda: len(told) == 1)


async def test_a_byte_that_flips_on_disk_is_noticed_and_the_file_fetched_again(replica: Rig) -> None:
    record = await replica.register("acme-1")
    assert (await load(replica, record, "disk")).ok
    content = replica.cached(record).read_bytes()
    replica.cached(record).write_bytes(content[:10] + b"\x00" + content[11:])
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.finish is not None
    assert replica.store.reads == {record.store_key: 2}
    assert replica.cached(record).read_bytes() == content


async def test_a_byte_that_flips_on_disk_is_refused_if_the_store_is_gone_too(replica: Rig) -> None:
    record = await replica.register("acme-1")
    assert (await load(replica, record, "disk")).ok
    replica.cached(record).write_bytes(b"something else")
    replica.stored(record).unlink()
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.refused is not None
    assert heard.refused.code == "adapter_unavailable"
    assert not replica.cached(record).exists()


async def test_what_is_on_disk_serves_without_the_store(replica: Rig) -> None:
    record = await replica.register("acme-1")
    assert (await load(replica, record, "disk")).ok
    replica.stored(record).unlink()
    assert (await replica.caller.run(replica.request("r1", record))).accepted is not None


async def test_a_full_disk_is_a_clear_refusal_and_leaves_nothing(replica: Rig) -> None:
    record = await replica.register("acme-1")
    (replica.cache / f"{record.digest}.part").symlink_to("/dev/full")
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.refused is not None
    assert heard.refused.code == "adapter_unavailable"
    assert "no space is left on the disk" in heard.refused.message
    assert replica.replica.loader.disk.budget.used_bytes == 0
    assert (await replica.caller.run(replica.request("r2", record))).accepted is not None


async def test_a_disk_that_cannot_make_room_is_a_clear_refusal_and_no_lasting_one(
    tmp_path: Path, model_folder: Path
) -> None:
    async with rig(tmp_path, model_folder, disk_budget_bytes=600) as small:
        old, new = await small.register("old", b"o" * 500), await small.register("new", b"n" * 500)
        await small.replica.loader.bring(old, "disk")
        small.cached(old).unlink()
        small.cached(old).mkdir()  # what cannot be unlinked
        with pytest.raises(AdapterUnavailable, match=r"cannot be fetched: .* cannot be deleted"):
            await small.replica.loader.bring(new, "disk")
        small.cached(old).rmdir()
        await small.replica.loader.bring(new, "disk")
        assert small.cached(new).exists()


async def test_an_adapter_of_another_base_is_never_loaded(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1", base_model_hash="0" * 64)
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.refused is not None
    assert heard.refused.code == "adapter_failed"
    assert "belongs to base model 000000000000" in heard.refused.message
    assert engine.calls["read"] == 0


async def test_a_load_with_another_effect_than_on_record_is_cleared_told_and_refused(
    replica: Rig, engine: UnrulyEngine
) -> None:
    told: list[EffectMismatch] = []
    heard_of_it = asyncio.Event()

    async def on_mismatch(event: EffectMismatch, ids: tuple[str, ...]) -> None:
        told.append(event)
        heard_of_it.set()

    await replica.registry.consume(ADAPTER_EFFECT_MISMATCH, "test", on_mismatch)
    record = await replica.register("acme-1")
    assert (await load(replica, record)).ok
    ask = AskFingerprint(adapter_id=record.adapter_id, digest=record.digest)
    found = await replica.registry.ask(FINGERPRINT, ask, REPLICA_ID, timeout_s=5)
    proven = msgspec.structs.replace(record, effects=(found.effect,))
    await replica.tell(proven)
    assert (await unload(replica, record)).ok
    assert (await load(replica, record)).ok

    assert (await unload(replica, record)).ok
    engine.wrong_weights = True
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.refused is not None
    assert (heard.refused.code, heard.refused.elsewhere) == ("adapter_failed", True)
    async with asyncio.timeout(5):
        await heard_of_it.wait()
    assert told[0].expected != told[0].found
    assert "a log-probability differs" in told[0].reason
    assert [engine.held_digest(slot) for slot in range(4)] == [None] * 4

    engine.wrong_weights = False
    assert (await load(replica, record)).ok


async def test_a_fingerprint_of_another_build_proves_nothing_here(replica: Rig) -> None:
    record = await replica.register("acme-1", fingerprint="torch-9-cpu/bfloat16/" + "0" * 64)
    assert (await load(replica, record)).ok


async def test_an_adapter_larger_than_ram_is_unavailable_with_both_numbers(tmp_path: Path, model_folder: Path) -> None:
    async with rig(tmp_path, model_folder, ram_budget_bytes=2_000) as small:
        record = await small.register("acme-1", b"x" * 3_000)
        with pytest.raises(AdapterUnavailable, match=r"3000 bytes do not fit.*2000"):
            await small.replica.loader.acquire(record)
        with pytest.raises(AdapterUnavailable):
            await small.replica.loader.acquire(record)


async def test_a_failure_is_remembered_per_adapter_not_per_file(replica: Rig, engine: UnrulyEngine) -> None:
    one, two = await replica.register("one", b"shared" * 9), await replica.register("two", b"shared" * 9)
    engine.fail("read", AdapterUnusable("only this one"))
    with pytest.raises(AdapterFailed, match="only this one"):
        await replica.replica.loader.acquire(one)
    (await replica.replica.loader.acquire(two)).release()


async def test_a_remembered_failure_says_as_before_whether_to_ask_elsewhere(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1")
    engine.fail("read", AdapterUnusable("no scale"))
    answers = [(await replica.caller.run(replica.request(f"r{at}", record))).refused for at in range(2)]
    assert engine.calls["read"] == 1
    assert [(each.message, each.elsewhere) for each in answers if each] == [
        ("the engine cannot apply acme-1: no scale.", False)
    ] * 2


async def test_a_record_that_changes_forgives_what_failed_under_the_old_one(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1")
    engine.fail("read", AdapterUnusable("a scale that this engine does not know"))
    assert (await replica.caller.run(replica.request("r1", record))).refused is not None
    await replica.tell(record)
    assert (await replica.caller.run(replica.request("r2", record))).refused is not None
    await replica.tell(msgspec.structs.replace(record, alpha=8.0))
    assert (await replica.caller.run(replica.request("r3", record))).accepted is not None
    assert engine.calls["read"] == 3, "once in vain, once to load it, and once to check what was loaded"


async def test_an_adapter_that_failed_its_evaluation_is_not_served(replica: Rig) -> None:
    record = await replica.register("acme-1", status="failed")
    heard = await replica.caller.run(replica.request("r1", record))
    assert heard.refused is not None
    assert (heard.refused.code, heard.refused.message) == ("adapter_failed", "Adapter acme-1 is failed.")
    assert replica.store.reads == {}

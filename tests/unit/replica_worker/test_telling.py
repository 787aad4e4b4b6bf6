"""What a replica tells the fleet, and what it does with what the fleet tells it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from services.replica_worker.engine.port import AdapterUnusable, EngineFailed
from shared.bus.port import AskFailed
from shared.contracts.catalog import ADAPTER, EVALUATE, REPLICA_REPORT, REPLICA_RESIDENCY
from shared.messages.desired import AdapterRecord
from shared.messages.identity import key_of
from shared.messages.operations import EvaluateAdapter
from shared.messages.reports import ReplicaReport, Residency, ResidencyView, fold_residency
from shared.store.port import StoreUnavailable
from tests.support.replica import BASE_HASH, REPLICA_ID, Rig, rig
from tests.support.replica_operations import assign, tier
from tests.support.unruly_engine import UnrulyEngine, unruly


class Reader:
    """Placement's view of the replica."""

    def __init__(self) -> None:
        self.view = ResidencyView()
        self.messages: list[Residency] = []
        self.reports: list[ReplicaReport] = []

    async def listen(self, replica: Rig) -> Reader:
        await replica.placement.subscribe(REPLICA_RESIDENCY, self._on_residency)
        await replica.placement.subscribe(REPLICA_REPORT, self._on_report)
        return self

    def tiers(self) -> dict[str, str]:
        return {key.adapter_id: tier for key, tier in self.view.tiers.items()}

    async def _on_residency(self, message: Residency, ids: tuple[str, ...]) -> None:
        self.messages.append(message)
        self.view = fold_residency(self.view, message)

    async def _on_report(self, report: ReplicaReport, ids: tuple[str, ...]) -> None:
        self.reports.append(report)


async def test_changes_within_20_ms_travel_together(replica: Rig) -> None:
    reader = await Reader().listen(replica)
    records = [await replica.register(f"acme-{at}") for at in range(3)]
    for record in records:
        await replica.replica.loader.bring(record, "gpu")
    assert reader.messages == []
    await replica.clock.advance(0.02)
    await replica.until(lambda: bool(reader.messages))
    assert len(reader.messages) == 1
    assert reader.tiers() == {"acme-0": "gpu", "acme-1": "gpu", "acme-2": "gpu"}
    await replica.replica.loader.drop(records[1].key)
    await replica.clock.advance(0.02)
    await replica.until(lambda: len(reader.messages) == 2)
    assert reader.tiers() == {"acme-0": "gpu", "acme-2": "gpu"}
    assert reader.messages[-1].sequence == reader.messages[0].sequence + 1


async def test_a_snapshot_makes_a_late_reader_exact(replica: Rig) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(3)]
    for record, wanted in zip(records, ("disk", "ram", "gpu"), strict=True):
        await replica.replica.loader.bring(record, wanted)
    reader = await Reader().listen(replica)
    await replica.residency.snapshot()
    await replica.until(lambda: reader.view.exact)
    assert reader.tiers() == {"acme-0": "disk", "acme-1": "ram", "acme-2": "gpu"}


async def test_a_file_found_at_start_is_told_once_its_adapter_is_known(replica: Rig) -> None:
    record = await replica.register("acme-1")
    await replica.replica.loader.bring(record, "disk")
    await replica.restart_after_kill(unruly(BASE_HASH))
    reader = await Reader().listen(replica)
    await replica.residency.snapshot()
    await replica.until(lambda: reader.view.exact)
    assert reader.tiers() == {"acme-1": "disk"}
    await replica.clock.advance(0.02)
    twin = msgspec.structs.replace(record, adapter_id="twin")
    await replica.tell(twin)
    await replica.until(lambda: replica.clock.next_wake_s is not None)
    await replica.clock.advance(0.02)
    await replica.until(lambda: reader.tiers() == {"acme-1": "disk", "twin": "disk"})


async def test_a_report_counts_what_is_there(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1")
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", record))
    await replica.caller.wait(lambda: heard.accepted is not None)
    await replica.replica.tick()
    reader = await Reader().listen(replica)
    await replica.replica.reporter.send()
    await replica.until(lambda: bool(reader.reports))
    report = reader.reports[0]
    assert (report.ready, report.slots, report.slots_busy, report.loads_per_min) == (True, 4, 1, 1.0)
    assert (report.ram_bytes, report.disk_bytes) == (record.size_bytes, record.size_bytes)
    assert (report.engine_build, report.base_model_hash) == ("timed-1", BASE_HASH)
    engine.go()


@pytest.mark.parametrize(("given", "said"), [("", "cpu"), ("NVIDIA L4", "NVIDIA L4")])
async def test_a_report_says_on_what_kind_of_device_it_computes(
    given: str, said: str, tmp_path: Path, model_folder: Path
) -> None:
    async with rig(tmp_path, model_folder, gpu_kind=given) as replica:
        assert replica.replica.reporter.report().gpu_kind == said


async def test_a_report_says_how_full_the_kv_cache_is(replica: Rig, engine: UnrulyEngine) -> None:
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", max_tokens=64))
    await replica.caller.wait(lambda: heard.accepted is not None)
    engine.allow(40)
    await replica.caller.wait(lambda: len(heard.token_ids) == 40)
    await replica.replica.tick()
    busy = replica.replica.reporter.report()
    assert heard.accepted is not None
    blocks = -(-(heard.accepted.prompt_tokens + 39) // 16)
    assert (busy.kv_used_tokens, busy.kv_total_tokens) == (16 * blocks, 64_000)
    engine.go()
    await replica.caller.wait(lambda: heard.over)
    await replica.replica.tick()
    assert replica.replica.reporter.report().kv_used_tokens == 0


async def test_a_replica_that_cannot_start_says_why(tmp_path: Path, model_folder: Path) -> None:
    engine = unruly("0" * 64)
    settings = {"engine": engine, "base_hash": BASE_HASH}
    with pytest.raises(EngineFailed, match="runs base model 000000000000, not ba5eba5eba5e"):
        async with rig(tmp_path, model_folder, **settings):
            pytest.fail("it must not start")
    async with rig(tmp_path, model_folder):
        """Nothing was left behind: the folder can be taken again."""


async def test_the_assignment_is_brought_in_and_no_higher_than_wanted(replica: Rig) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(3)]
    await assign(replica, *zip(records, ("gpu", "ram", "disk"), strict=True))
    await replica.until(lambda: [tier(replica, record) for record in records] == ["gpu", "ram", "disk"])
    await replica.replica.convergence.stir_now_and_then()
    assert replica.replica.convergence.plan().actions == ()
    assert replica.replica.reporter.report().assignment_epoch == 1


async def test_an_assignment_that_comes_before_its_records_is_kept(replica: Rig) -> None:
    record = await replica.register("acme-1")
    later = msgspec.structs.replace(record, adapter_id="acme-2")
    await assign(replica, (later, "ram"))
    await replica.until(lambda: replica.replica.convergence.assignment.epoch == 1)
    await replica.tell(later)
    await replica.until(lambda: tier(replica, later) == "ram")


async def test_converging_evicts_nobody_from_a_slot(replica: Rig) -> None:
    there = [await replica.register(f"there-{at}") for at in range(4)]
    for record in there:
        await replica.replica.loader.bring(record, "gpu")
    wanted = await replica.register("wanted")
    await assign(replica, (wanted, "gpu"))
    await replica.until(lambda: tier(replica, wanted) == "ram")
    await replica.replica.loader.drop(there[0].key)
    await replica.until(lambda: tier(replica, wanted) == "gpu")
    assert [tier(replica, record) for record in there[1:]] == ["gpu"] * 3


async def test_a_failing_adapter_does_not_hold_up_the_others(replica: Rig) -> None:
    bad, good = await replica.register("bad"), await replica.register("good")
    replica.stored(bad).write_bytes(b"corrupt")
    await assign(replica, (bad, "gpu"), (good, "gpu"))
    await replica.until(lambda: tier(replica, good) == "gpu")
    assert replica.store.reads[bad.store_key] == 1


async def test_a_surprise_in_one_adapter_holds_up_neither_the_others_nor_its_own_retry(
    replica: Rig, engine: UnrulyEngine
) -> None:
    odd, good = await replica.register("a-odd"), await replica.register("good")
    for record in (odd, good):
        await replica.replica.loader.bring(record, "disk")  # so that the odd one is read first
    engine.fail("read", RuntimeError("planted"))
    await assign(replica, (odd, "gpu"), (good, "gpu"))
    await replica.until(lambda: tier(replica, good) == "gpu")
    assert tier(replica, odd) == "disk"
    await replica.clock.advance(1.1)
    await replica.replica.convergence.stir_now_and_then()
    await replica.until(lambda: tier(replica, odd) == "gpu")


async def test_what_the_store_could_not_give_is_tried_again(replica: Rig) -> None:
    record = await replica.register("acme-1")
    replica.store.broken = StoreUnavailable("away")
    await assign(replica, (record, "ram"))
    await replica.until(lambda: replica.store.reads[record.store_key] == 1)
    replica.store.broken = None
    await replica.replica.convergence.stir_now_and_then()
    await replica.clock.advance(1.1)
    await replica.replica.convergence.stir_now_and_then()
    await replica.until(lambda: tier(replica, record) == "ram")
    assert replica.store.reads[record.store_key] == 2


@pytest.mark.parametrize("how", ["retired", "deleted"])
async def test_a_retired_adapter_serves_what_runs_and_then_leaves_every_tier(
    replica: Rig, engine: UnrulyEngine, how: str
) -> None:
    record = await replica.register("acme-1")
    engine.hold()
    heard = await replica.caller.send(replica.request("r1", record))
    await replica.caller.wait(lambda: heard.accepted is not None)
    if how == "retired":
        await replica.tell(msgspec.structs.replace(record, status="retired"))
    else:
        await replica.registry.state(ADAPTER).delete(key_of(record.adapter_id))
    await replica.replica.convergence.stir_now_and_then()
    assert tier(replica, record) == "gpu"
    engine.go()
    await replica.caller.wait(lambda: heard.over)
    assert heard.finish is not None
    assert heard.finish.reason == "length"
    await replica.replica.convergence.stir_now_and_then()
    await replica.until(lambda: tier(replica, record) == "remote")
    assert not replica.cached(record).exists()
    if how == "deleted":
        await replica.until(lambda: record.key not in replica.replica.loader.ram.sizes)


async def test_a_retired_adapter_leaves_the_file_that_another_one_shares(replica: Rig) -> None:
    retired, twin = await replica.register("retired", b"shared" * 9), await replica.register("twin", b"shared" * 9)
    for record in (retired, twin):
        await replica.replica.loader.bring(record, "gpu")
    await replica.tell(msgspec.structs.replace(retired, status="retired"))
    await replica.until(lambda: retired.key not in replica.replica.loader.slots.table.resident)
    await replica.until(lambda: not replica.replica.loader.ram.holds(retired.key))
    assert tier(replica, twin) == "gpu"
    assert replica.cached(twin).exists()


async def test_an_older_epoch_changes_nothing(replica: Rig) -> None:
    new, old = await replica.register("new"), await replica.register("old")
    await assign(replica, (new, "ram"), epoch=7)
    await replica.until(lambda: tier(replica, new) == "ram")
    await assign(replica, (old, "ram"), epoch=6)
    await replica.until(lambda: "ignored" in replica.replica.convergence.assignment.reason)
    assert tier(replica, old) == "remote"


async def evaluate(replica: Rig, record: AdapterRecord):  # type: ignore[no-untyped-def]
    return await replica.registry.ask(EVALUATE, EvaluateAdapter(record=record), REPLICA_ID, timeout_s=10)


async def test_a_candidate_that_no_record_names_is_measured(replica: Rig) -> None:
    record = await replica.register("acme-1")
    candidate = msgspec.structs.replace(record, adapter_id="candidate", status="evaluating")
    found = await evaluate(replica, candidate)
    assert (found.passed, found.reason) == (True, "finite, and differs from the base")
    assert found.fingerprint.startswith("timed-1/none/")
    assert replica.replica.loader.slots.table.references == 0


async def test_c08_a_candidate_without_effect_fails(replica: Rig, engine: UnrulyEngine) -> None:
    engine.no_effect = True
    found = await evaluate(replica, await replica.register("acme-1"))
    assert (found.passed, found.reason.split(":")[0]) == (False, "no effect")


async def test_a_candidate_that_cannot_be_applied_fails_with_the_engines_reason(
    replica: Rig, engine: UnrulyEngine
) -> None:
    engine.fail("read", AdapterUnusable("rank 32 is too high"))
    found = await evaluate(replica, await replica.register("acme-1"))
    assert not found.passed
    assert "rank 32 is too high" in found.reason


async def test_what_is_no_fault_of_the_candidate_is_no_verdict(replica: Rig, engine: UnrulyEngine) -> None:
    record = await replica.register("acme-1")
    replica.store.broken = StoreUnavailable("away")
    with pytest.raises(AskFailed, match="cannot be fetched"):
        await evaluate(replica, record)
    replica.store.broken = None
    engine.fail("probe", RuntimeError("planted"), times=2)
    with pytest.raises(AskFailed, match="planted"):
        await evaluate(replica, record)
    assert replica.replica.loader.slots.table.references == 0
    assert (await evaluate(replica, record)).passed


async def test_a_bad_copy_on_one_replica_is_no_verdict(replica: Rig) -> None:
    record = await replica.register("acme-1")
    replica.stored(record).write_bytes(b"corrupt")
    with pytest.raises(AskFailed, match="corrupt"):
        await evaluate(replica, record)


async def test_an_evaluation_gives_up_when_nobody_waits_for_it_any_more(
    replica: Rig, engine: UnrulyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.replica_worker.tiers.loader.OPERATION_DEADLINE_S", 0.01)
    engine.copying.clear()
    with pytest.raises(AskFailed, match="got no slot within"):
        await evaluate(replica, await replica.register("acme-1"))
    engine.copying.set()


async def test_evaluations_and_requests_share_the_slots(replica: Rig) -> None:
    records = [await replica.register(f"acme-{at}") for at in range(10)]
    found = await asyncio.gather(*(evaluate(replica, record) for record in records))
    assert all(each.passed for each in found)
    assert len({each.fingerprint for each in found}) == 10

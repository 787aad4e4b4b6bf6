"""From an announcement to an active adapter, over both buses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.gating import evaluation
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows
from services.registry.io.weights import Weights, WeightsSources
from shared.bus.port import Bus
from shared.contracts import catalog
from shared.messages.adapters import Defect, EffectMismatch
from shared.messages.operations import Evaluation
from shared.messages.pools import pool_id
from tests.conftest import Within
from tests.support.adapter_files import BASE, Recipe, announcement, file_of, write_folder
from tests.support.bus_worlds import World as BusWorld
from tests.support.registry_watch import alias_is, eventually, heard, record_is
from tests.support.registry_world import EFFECT, FakePlacement, FakeReplica, World, world

POOL = pool_id(BASE.base_model_hash, 8)
ALIAS = "acme/support:prod"


# -- the way in ----------------------------------------------------------------------------------------


async def test_a_post_leads_to_an_alias_that_gateways_see(here: World, gateway: Bus) -> None:
    announced = here.announce(alias=ALIAS)
    answer = await here.post(announced)
    assert (answer.status_code, answer.json()["status"]) == (201, "verified")
    adapter = await here.reached("acme-support-1", "active")
    assert [move["state"] for move in adapter["history"]] == ["registered", "verified", "evaluating", "active"]
    assert (adapter["fingerprint"], adapter["evaluations"][0]["passed"]) == ("f1", True)
    record = await alias_is(gateway, ALIAS, "acme-support-1")
    assert record is not None
    assert (record.digest, record.pool_id, record.base_model_name) == (announced.checksum, POOL, "small-base")
    assert record.tenant_id == "acme"


async def test_an_event_leads_to_the_same_and_to_facts(here: World, pipeline: Bus, gateway: Bus) -> None:
    channels = catalog.ADAPTER_VERIFIED, catalog.ADAPTER_EVALUATED, catalog.ADAPTER_ACTIVATED
    verified, evaluated, activated = await heard(pipeline, *channels)
    announced = here.announce(alias=ALIAS)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, announced)
    await alias_is(gateway, ALIAS, "acme-support-1")
    [found] = await verified.first()
    assert (found.digest, found.pool_id) == (announced.checksum, POOL)
    [found] = await evaluated.first()
    assert (found.passed, found.replica_id, found.fingerprint) == (True, "replica-b", "f1")
    [found] = await activated.first()
    assert found.adapter_id == "acme-support-1"


async def test_replicas_are_told_of_an_adapter_before_they_are_asked_to_evaluate_it(
    here: World, buses: BusWorld, replicas: tuple[FakeReplica, FakeReplica]
) -> None:
    await here.activated("v1")
    record = await record_is(await buses.connect("replica_worker"), "v1", "active")
    [question] = replicas[1].asked
    assert question.record.status == "evaluating"
    assert record == msgspec.structs.replace(question.record, status="active", fingerprint="f1", effects=(EFFECT,))
    assert (here.folder / "store" / question.record.store_key).read_bytes() == file_of()


async def test_the_same_again_changes_nothing(here: World, pipeline: Bus) -> None:
    announced = await here.activated("v1")
    before = (await here.admin.get("/internal/adapters/v1")).json()
    again = await here.post(announced)
    assert (again.status_code, again.json()["status"]) == (200, "active")
    rejected, verified = await heard(pipeline, catalog.ADAPTER_REJECTED, catalog.ADAPTER_VERIFIED)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, announced)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, here.announce("v2", seed=2))
    assert [one.adapter_id for one in await verified.first(2)] == ["v1", "v2"]
    assert rejected.messages == []
    assert (await here.admin.get("/internal/adapters/v1")).json() == before


async def test_the_same_id_with_other_bytes_is_refused(here: World, pipeline: Bus) -> None:
    await here.activated("v1")
    other = here.announce("v1", seed=9)
    answer = await here.post(other)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "adapter_id_taken")
    [rejected] = await heard(pipeline, catalog.ADAPTER_REJECTED)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, other)
    [found] = await rejected.first()
    assert [defect.code for defect in found.defects] == ["adapter_id_taken"]
    assert await here.status("v1") == "active"


async def test_an_id_is_taken_from_the_moment_it_is_announced(
    here: World, pipeline: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while its file is still being read."""
    [rejected] = await heard(pipeline, catalog.ADAPTER_REJECTED)
    other, first = here.announce("v1", seed=9), announcement(file_of(), adapter_id="v1")
    write_folder(here.folder / "inbox" / "first", file_of(), first)
    taking = iter([msgspec.structs.replace(first, weights_uri=(here.folder / "inbox" / "first").as_uri())])
    begin = WeightsSources.open

    async def slowly(sources: WeightsSources, uri: str) -> Weights | Defect:
        for taker in taking:
            assert (await here.post(taker)).status_code == 409
            await pipeline.publish(catalog.ADAPTER_REGISTERED, taker)
        return await begin(sources, uri)

    monkeypatch.setattr(WeightsSources, "open", slowly)
    assert (await here.post(other)).status_code == 201
    [found] = await rejected.first()
    assert (found.adapter_id, [defect.code for defect in found.defects]) == ("v1", ["adapter_id_taken"])
    assert (await here.reached("v1", "active"))["checksum"] == other.checksum


async def test_an_event_with_a_bad_file_is_answered_with_every_defect(here: World, pipeline: Bus) -> None:
    [rejected] = await heard(pipeline, catalog.ADAPTER_REJECTED)
    announced = here.announce("v1", rank=64, alpha=-1.0, alias="globex/x")
    await pipeline.publish(catalog.ADAPTER_REGISTERED, announced)
    [found] = await rejected.first()
    codes = {defect.code for defect in found.defects}
    assert {"rank_too_high", "alpha_invalid", "alias_foreign", "shape_invalid"} <= codes
    assert await here.status("v1") == "rejected"


async def test_an_event_whose_ids_are_wrong_is_answered_although_there_is_no_record(here: World, pipeline: Bus) -> None:
    [rejected] = await heard(pipeline, catalog.ADAPTER_REJECTED)
    wrong = msgspec.structs.replace(here.announce("v1"), adapter_id="../" * 2000, tenant_id="nobody")
    await pipeline.publish(catalog.ADAPTER_REGISTERED, wrong)
    [found] = await rejected.first()
    assert {"adapter_id_invalid", "tenant_unknown"} <= {defect.code for defect in found.defects}
    assert (await here.admin.get("/internal/adapters")).json()["adapters"] == []


async def test_a_rejected_announcement_may_be_corrected_under_the_same_id(here: World) -> None:
    assert (await here.post(here.announce("v1", rank=5))).status_code == 422
    assert await here.status("v1") == "rejected"
    await here.activated("v1")
    states = [move["state"] for move in (await here.admin.get("/internal/adapters/v1")).json()["history"]]
    assert states[:4] == ["registered", "rejected", "registered", "verified"]


async def test_c38_two_adapters_in_the_same_second_are_both_served(here: World) -> None:
    first, second = here.announce("v1"), here.announce("v2", seed=2)
    answers = await asyncio.gather(here.post(first), here.post(second))
    assert [answer.status_code for answer in answers] == [201, 201]
    await here.reached("v1", "active")
    await here.reached("v2", "active")


async def test_one_announcement_many_times_at_once_is_one_adapter(here: World) -> None:
    announced = here.announce("v1")
    answers = await asyncio.gather(*(here.post(announced) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    history = (await here.reached("v1", "active"))["history"]
    assert [move["state"] for move in history].count("registered") == 1


async def test_c50_an_adapter_goes_to_the_pool_of_its_largest_rank(here: World, placement: FakePlacement) -> None:
    placement.pool_id = pool_id(BASE.base_model_hash, 16)
    recipe = Recipe(rank_pattern={"q_proj": 16})
    file = file_of(recipe)
    announced = announcement(file, adapter_id="v1", rank_pattern={"q_proj": 16})
    assert (await here.post(write_folder(here.folder / "inbox" / "v1", file, announced))).status_code == 201
    assert (await here.reached("v1", "active"))["pool_id"] == placement.pool_id


async def test_an_upload_is_as_good_as_a_folder(here: World) -> None:
    file = file_of(Recipe(seed=3))
    announced = announcement(file, adapter_id="v1")
    answer = await here.admin.put(f"/internal/uploads/{announced.checksum}", content=file)
    assert (answer.status_code, answer.json()) == (201, {"weights_uri": f"upload:{announced.checksum}"})
    uploaded = msgspec.structs.replace(announced, weights_uri=answer.json()["weights_uri"])
    assert (await here.post(uploaded)).status_code == 201
    await here.reached("v1", "active")
    second = msgspec.structs.replace(uploaded, adapter_id="v1-again")
    assert (await here.post(second)).status_code == 201


# -- the evaluation ------------------------------------------------------------------------------------


async def test_c08_an_adapter_without_effect_is_never_activated(
    here: World, buses: BusWorld, pipeline: Bus, gateway: Bus, replicas: tuple[FakeReplica, FakeReplica]
) -> None:
    [failed] = await heard(pipeline, catalog.ADAPTER_FAILED)
    replicas[1].passed, replicas[1].reason = False, "no effect"
    await here.post(here.announce("v1", alias=ALIAS))
    adapter = await here.reached("v1", "failed")
    assert "no effect" in adapter["reason"]
    assert "no effect" in (await failed.first())[0].reason
    await record_is(await buses.connect("replica_worker"), "v1", None)
    await alias_is(gateway, ALIAS, None)
    refused = await here.admin.put(f"/internal/aliases/{ALIAS}", json={"adapter_id": "v1"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "adapter_not_active")


async def test_an_owner_is_asked_first_and_another_if_it_cannot(
    here: World, replicas: tuple[FakeReplica, FakeReplica]
) -> None:
    replicas[1].trouble = "the store did not answer"
    await here.activated("v1")
    assert (len(replicas[1].asked), len(replicas[0].asked)) == (1, 1)


async def test_an_adapter_waits_until_a_replica_is_ready(
    here: World, placement: FakePlacement, replicas: tuple[FakeReplica, FakeReplica]
) -> None:
    placement.replica_ids = ()
    assert (await here.post(here.announce("v1"))).status_code == 201
    await here.reached("v1", "evaluating")
    assert replicas[1].asked == []
    placement.replica_ids = ("replica-a", "replica-b")
    await here.reached("v1", "active")


async def test_an_evaluation_that_never_comes_fails_at_its_deadline(
    tmp_path: Path, buses: BusWorld, replicas: tuple[FakeReplica, FakeReplica]
) -> None:
    for replica in replicas:
        replica.trouble = "out of memory"
    async with world(tmp_path, buses.connect, evaluation_deadline_s=0.2) as here:
        await here.prepare()
        await here.post(here.announce("v1"))
        assert "out of memory" in (await here.reached("v1", "failed"))["reason"]


async def test_an_evaluation_that_stumbles_is_taken_up_again(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stumbles = iter([RuntimeError("planted")])
    judge = evaluation.judge

    def stumbling(found: Evaluation) -> evaluation.Verdict:
        for error in stumbles:
            raise error
        return judge(found)

    monkeypatch.setattr(evaluation, "judge", stumbling)
    await here.activated("v1")
    assert next(stumbles, None) is None


async def test_an_adapter_that_moved_on_between_two_looks_is_not_moved_back(
    here: World, monkeypatch: pytest.MonkeyPatch, within: Within
) -> None:
    find, moved = adapter_rows.find, asyncio.Event()
    ending = iter(["v1"])

    async def find_too_early(connection: AsyncConnection, adapter_id: str, **how: bool) -> StoredAdapter | None:
        found = await find(connection, adapter_id, **how)
        if found is not None and found.status == "verified" and not how and adapter_id in ending:
            async with here.registry.database.write() as other:
                await adapter_rows.save(other, msgspec.structs.replace(found, status="failed"), [])
            moved.set()
        return found

    monkeypatch.setattr(adapter_rows, "find", find_too_early)
    assert (await here.post(here.announce("v1"))).status_code == 201
    async with within(30):
        await moved.wait()
    await here.activated("v2", seed=2)  # the moves of an adapter that came later are decided after those of v1
    assert await here.status("v1") == "failed"


async def test_a_replica_that_applied_other_weights_is_counted(here: World, buses: BusWorld) -> None:
    mismatch = EffectMismatch(adapter_id="v1", digest="d", replica_id="replica-a", expected="f1", found="f2")
    worker = await buses.connect("replica_worker")
    await worker.publish(catalog.ADAPTER_EFFECT_MISMATCH, mismatch)

    async def counted() -> bool:
        return "lorafleet_registry_effect_mismatches_total 1.0" in (await here.admin.get("/metrics")).text

    await eventually(counted)

"""From an announcement to an alias that gateways can route, over both buses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.bus.port import Bus
from shared.contracts import catalog
from shared.contracts.channel import Channel
from shared.messages.adapters import AdapterRegistered
from shared.messages.desired import AdapterRecord, AliasRecord
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE, Recipe, announcement, file_of, write_folder
from tests.support.bus_worlds import World as BusWorld
from tests.support.bus_worlds import world_of
from tests.support.registry_world import FakePlacement, FakeReplica, Heard, World, eventually, world

POOL = pool_id(BASE.base_model_hash, 8)
ALIAS = "acme/support:prod"


@pytest.fixture(params=["memory", "nats"])
async def buses(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BusWorld]:
    folder = tmp_path / "nats"
    folder.mkdir()
    async with world_of(request.param, folder) as made:
        yield made


@pytest.fixture
async def placement(buses: BusWorld) -> FakePlacement:
    placement = FakePlacement(POOL, ("replica-a", "replica-b"), owners=("replica-b", "replica-a"))
    await placement.serve(await buses.connect("placement"))
    return placement


@pytest.fixture
async def replicas(buses: BusWorld, placement: FakePlacement) -> tuple[FakeReplica, FakeReplica]:
    both = FakeReplica("replica-a"), FakeReplica("replica-b")
    for replica in both:
        await replica.serve(await buses.connect("replica_worker"))
    return both


@pytest.fixture
async def here(tmp_path: Path, buses: BusWorld, replicas: tuple[FakeReplica, FakeReplica]) -> AsyncIterator[World]:
    async with world(tmp_path, buses.connect) as made:
        await made.prepare()
        yield made


@pytest.fixture
async def gateway(buses: BusWorld) -> Bus:
    return await buses.connect("gateway")


@pytest.fixture
async def pipeline(buses: BusWorld) -> Bus:
    return await buses.connect("pipeline")


async def alias_is(gateway: Bus, adapter_id: str | None, alias: str = ALIAS) -> AliasRecord | None:
    """What gateways see, once they see this adapter there (None: nothing)."""
    bucket, found = gateway.state(catalog.ALIAS), None

    async def told() -> bool:
        nonlocal found
        change = await bucket.get(key_of(alias))
        found = change.value if change else None
        return (found.adapter_id if found else None) == adapter_id

    await eventually(told)
    return found


async def record_is(bus: Bus, adapter_id: str, status: str | None) -> AdapterRecord | None:
    """What replicas see of an adapter, once it has this status (None: it is gone)."""
    bucket, found = bus.state(catalog.ADAPTER), None

    async def told() -> bool:
        nonlocal found
        change = await bucket.get(key_of(adapter_id))
        found = change.value if change else None
        return (found.status if found else None) == status

    await eventually(told)
    return found


async def heard(bus: Bus, *channels: Channel[Any, Any]) -> list[Heard]:
    return [await Heard().follow(bus, channel) for channel in channels]


# -- the way in ----------------------------------------------------------------------------------------


async def test_a_post_leads_to_an_alias_that_gateways_see(here: World, gateway: Bus) -> None:
    announced = here.announce(alias=ALIAS)
    answer = await here.post(announced)
    assert (answer.status_code, answer.json()["status"]) == (201, "verified")
    adapter = await here.reached("acme-support-1", "active")
    assert [move["state"] for move in adapter["history"]] == ["registered", "verified", "evaluating", "active"]
    assert (adapter["fingerprint"], adapter["evaluations"][0]["passed"]) == ("f1", True)
    record = await alias_is(gateway, "acme-support-1")
    assert record is not None
    assert (record.digest, record.pool_id, record.base_model_name) == (announced.checksum, POOL, "small-base")
    assert record.tenant_id == "acme"


async def test_an_event_leads_to_the_same_and_to_facts(here: World, pipeline: Bus, gateway: Bus) -> None:
    channels = catalog.ADAPTER_VERIFIED, catalog.ADAPTER_EVALUATED, catalog.ADAPTER_ACTIVATED
    verified, evaluated, activated = await heard(pipeline, *channels)
    announced = here.announce(alias=ALIAS)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, announced)
    await alias_is(gateway, "acme-support-1")
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
    assert record == msgspec.structs.replace(question.record, status="active", fingerprint="f1")
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
    await alias_is(gateway, None)
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


# -- aliases -------------------------------------------------------------------------------------------


async def test_deploy_and_rollback(here: World, gateway: Bus) -> None:
    await here.activated("v1", alias=ALIAS)
    await here.activated("v2", seed=2)
    await alias_is(gateway, "v1")
    moved = await here.admin.put(f"/internal/aliases/{ALIAS}", json={"adapter_id": "v2", "expected_adapter_id": "v1"})
    assert (moved.status_code, moved.json()["previous_adapter_id"]) == (200, "v1")
    await alias_is(gateway, "v2")
    stale = await here.admin.put(f"/internal/aliases/{ALIAS}", json={"adapter_id": "v2", "expected_adapter_id": "v1"})
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "alias_changed")
    assert (await here.admin.post(f"/internal/aliases/{ALIAS}/rollback")).json()["adapter_id"] == "v1"
    await alias_is(gateway, "v1")
    assert (await here.admin.post(f"/internal/aliases/{ALIAS}/rollback")).json()["adapter_id"] == "v2"
    [listed] = (await here.admin.get("/internal/aliases?tenant_id=acme")).json()["aliases"]
    assert (listed["alias"], listed["adapter_id"], listed["previous_adapter_id"]) == (ALIAS, "v2", "v1")
    assert (await here.admin.get("/internal/aliases?tenant_id=globex")).json()["aliases"] == []


async def test_a_later_version_is_not_replaced_by_one_whose_evaluation_took_longer(
    here: World, gateway: Bus, placement: FakePlacement
) -> None:
    placement.pool_id = "nobody"
    first = announcement(file_of(), adapter_id="v1", alias=ALIAS)
    await here.post(write_folder(here.folder / "inbox" / "v1", file_of(), first))
    await here.reached("v1", "evaluating")
    placement.pool_id = pool_id(BASE.base_model_hash, 16)
    large = file_of(Recipe(rank=16))
    second = announcement(large, adapter_id="v2", alias=ALIAS, rank=16)
    await here.post(write_folder(here.folder / "inbox" / "v2", large, second))
    await alias_is(gateway, "v2")
    placement.pool_id = POOL
    await here.reached("v1", "active")
    [listed] = (await here.admin.get("/internal/aliases")).json()["aliases"]
    assert listed["adapter_id"] == "v2"


async def test_retiring_waits_for_the_alias_and_then_tells_replicas(
    here: World, buses: BusWorld, pipeline: Bus, gateway: Bus
) -> None:
    [retired] = await heard(pipeline, catalog.ADAPTER_RETIRED)
    announced: AdapterRegistered = await here.activated("v1", alias=ALIAS)
    refused = await here.admin.post("/internal/adapters/v1/retire")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "adapter_in_use")
    assert (await here.admin.delete(f"/internal/aliases/{ALIAS}")).status_code == 200
    await alias_is(gateway, None)
    assert (await here.admin.post("/internal/adapters/v1/retire")).json()["status"] == "retired"
    await record_is(await buses.connect("replica_worker"), "v1", None)
    assert (await retired.first())[0].digest == announced.checksum
    again = await here.admin.put(f"/internal/aliases/{ALIAS}", json={"adapter_id": "v1"})
    assert again.status_code == 409


# -- keys ----------------------------------------------------------------------------------------------


async def test_a_key_is_shown_once_and_kept_as_a_hash(here: World, gateway: Bus) -> None:
    made = (await here.admin.post("/internal/keys", json={"tenant_id": "acme", "may_call_base": True})).json()
    assert made["api_key"].startswith("lf-")
    bucket = gateway.state(catalog.API_KEY)

    async def known() -> bool:
        return await bucket.get(key_of(made["api_key"])) is not None

    async def unknown() -> bool:
        return not await known()

    await eventually(known)
    change = await bucket.get(key_of(made["api_key"]))
    assert change is not None
    assert change.value is not None
    assert (change.value.key_id, change.value.tenant_id, change.value.may_call_base) == (made["key_id"], "acme", True)
    listed = (await here.admin.get("/internal/keys")).text
    assert made["key_id"] in listed
    assert made["api_key"] not in listed
    kept = b"".join(path.read_bytes() for path in here.folder.glob("registry.db*"))
    assert made["key_id"].encode() in kept
    assert made["api_key"].encode() not in kept
    assert (await here.admin.delete(f"/internal/keys/{made['key_id']}")).status_code == 204
    await eventually(unknown)
    assert (await here.admin.delete(f"/internal/keys/{made['key_id']}")).status_code == 404


async def test_a_renamed_base_model_is_told_with_its_aliases(here: World, gateway: Bus) -> None:
    await here.activated("v1", alias=ALIAS)
    await alias_is(gateway, "v1")
    renamed = msgspec.structs.replace(BASE, name="renamed-base")
    answer = await here.admin.put(f"/internal/base-models/{BASE.base_model_hash}", json=msgspec.to_builtins(renamed))
    assert answer.status_code == 200
    bucket = gateway.state(catalog.ALIAS)

    async def told() -> bool:
        change = await bucket.get(key_of(ALIAS))
        return change is not None and change.value is not None and change.value.base_model_name == "renamed-base"

    await eventually(told)

"""Deploying, rolling back, retiring, and what gateways and replicas see of it, over both buses."""

from __future__ import annotations

import asyncio

import msgspec

from shared.bus.port import Bus
from shared.contracts import catalog
from shared.messages.adapters import AdapterRegistered
from shared.messages.identity import key_of
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE, Recipe, announcement, file_of, write_folder
from tests.support.bus_worlds import World as BusWorld
from tests.support.registry_watch import alias_is, eventually, heard, record_is
from tests.support.registry_world import FakePlacement, World, everything_in

POOL = pool_id(BASE.base_model_hash, 8)
ALIAS = "acme/support:prod"


# -- aliases -------------------------------------------------------------------------------------------


async def test_deploy_and_rollback(here: World, gateway: Bus) -> None:
    await here.activated("v1", alias=ALIAS)
    await here.activated("v2", seed=2)
    await alias_is(gateway, ALIAS, "v1")
    moved = await here.admin.put(f"/internal/aliases/{ALIAS}", json={"adapter_id": "v2", "expected_adapter_id": "v1"})
    assert (moved.status_code, moved.json()["previous_adapter_id"]) == (200, "v1")
    await alias_is(gateway, ALIAS, "v2")
    stale = await here.admin.put(f"/internal/aliases/{ALIAS}", json={"adapter_id": "v2", "expected_adapter_id": "v1"})
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "alias_changed")
    assert (await here.admin.post(f"/internal/aliases/{ALIAS}/rollback")).json()["adapter_id"] == "v1"
    await alias_is(gateway, ALIAS, "v1")
    assert (await here.admin.post(f"/internal/aliases/{ALIAS}/rollback")).json()["adapter_id"] == "v2"
    [listed] = (await here.admin.get("/internal/aliases?tenant_id=acme")).json()["aliases"]
    assert (listed["alias"], listed["adapter_id"], listed["previous_adapter_id"]) == (ALIAS, "v2", "v1")
    assert (await here.admin.get("/internal/aliases?tenant_id=globex")).json()["aliases"] == []


async def test_of_many_who_expect_the_same_exactly_one_deploys(here: World) -> None:
    await here.activated("v1", alias=ALIAS)
    await here.activated("v2", seed=2)
    path = f"/internal/aliases/{ALIAS}"
    seen = await here.admin.get(path)
    by_id = [here.admin.put(path, json={"adapter_id": "v2", "expected_adapter_id": "v1"}) for _ in range(8)]
    answers = await asyncio.gather(*by_id)
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 7]
    assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409} == {"alias_changed"}
    etag = next(answer.headers["etag"] for answer in answers if answer.status_code == 200)
    assert (seen.headers["etag"], etag) == ('"1"', '"2"')
    by_revision = [here.admin.put(path, json={"adapter_id": "v1"}, headers={"if-match": etag}) for _ in range(8)]
    assert sorted(answer.status_code for answer in await asyncio.gather(*by_revision)) == [200, *[409] * 7]
    wrong = await here.admin.put(path, json={"adapter_id": "v2"}, headers={"if-match": "2"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (422, "if-match")


async def test_of_many_who_create_an_alias_exactly_one_does(here: World) -> None:
    for seed, adapter_id in enumerate(("v1", "v2")):
        await here.activated(adapter_id, seed=seed)
    new = {"if-none-match": "*"}
    asked = [
        here.admin.put("/internal/aliases/acme/new", json={"adapter_id": f"v{1 + at % 2}"}, headers=new)
        for at in range(8)
    ]
    assert sorted(answer.status_code for answer in await asyncio.gather(*asked)) == [200, *[409] * 7]


async def test_a_revision_is_never_given_twice(here: World) -> None:
    await here.activated("v1", alias=ALIAS)
    path = f"/internal/aliases/{ALIAS}"
    assert (await here.admin.delete(f"{path}?by=ann&reason=over")).status_code == 200
    assert (await here.admin.get(path)).status_code == 404
    again = await here.admin.put(path, json={"adapter_id": "v1"})
    assert (again.headers["etag"], again.json()["previous_adapter_id"]) == ('"3"', None)
    history = (await here.admin.get(f"{path}/history")).json()["history"]
    assert [(one["change"], one["adapter_id"], one["previous_adapter_id"]) for one in history] == [
        ("set", "v1", None), ("remove", None, "v1"), ("set", "v1", None),
    ]  # fmt: skip


async def test_aliases_and_their_history_come_in_pages(here: World) -> None:
    await here.activated("v1")
    for name in "cab":
        await here.admin.put(f"/internal/aliases/acme/{name}", json={"adapter_id": "v1"})
    first = (await here.admin.get("/internal/aliases?limit=2")).json()
    rest = (await here.admin.get(f"/internal/aliases?limit=2&after={first['next']}")).json()
    assert [one["alias"] for one in first["aliases"] + rest["aliases"]] == ["acme/a", "acme/b", "acme/c"]
    assert rest["next"] is None
    await here.admin.delete("/internal/aliases/acme/a")
    latest = (await here.admin.get("/internal/aliases/acme/a/history?limit=1")).json()
    before = (await here.admin.get(f"/internal/aliases/acme/a/history?limit=1&after={latest['next']}")).json()
    assert [one["change"] for one in latest["history"] + before["history"]] == ["remove", "set"]
    assert (await here.admin.get("/internal/aliases/acme/none/history")).status_code == 404
    assert (await here.admin.get("/internal/aliases/acme/a/history?after=x")).status_code == 422


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
    await alias_is(gateway, ALIAS, "v2")
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
    await alias_is(gateway, ALIAS, None)
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
    kept = await everything_in(here.registry.database)
    assert made["key_id"] in kept
    assert made["api_key"] not in kept
    assert (await here.admin.delete(f"/internal/keys/{made['key_id']}")).status_code == 204
    await eventually(unknown)
    assert (await here.admin.delete(f"/internal/keys/{made['key_id']}")).status_code == 404


async def test_a_renamed_base_model_is_told_with_its_aliases(here: World, gateway: Bus) -> None:
    await here.activated("v1", alias=ALIAS)
    await alias_is(gateway, ALIAS, "v1")
    renamed = msgspec.structs.replace(BASE, name="renamed-base")
    answer = await here.admin.put(f"/internal/base-models/{BASE.base_model_hash}", json=msgspec.to_builtins(renamed))
    assert answer.status_code == 200
    bucket = gateway.state(catalog.ALIAS)

    async def told() -> bool:
        change = await bucket.get(key_of(ALIAS))
        return change is not None and change.value is not None and change.value.base_model_name == "renamed-base"

    await eventually(told)

"""A version is where its requests go before an alias means it, and leaves every tier once none does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from services.registry.deployment.wanted import want
from services.registry.io import wanted_rows
from shared.bus.port import Ids
from shared.contracts import catalog
from shared.messages.identity import key_of
from shared.messages.operations import HoldResult, LoadAdapter
from tests.integration.registry.test_migrations import moved
from tests.support.registry_errors import error_of
from tests.support.registry_shop import ALIAS, PATH, Shop, open_shop, shop_in
from tests.support.registry_watch import alias_is, heard, value_is


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, rollback_residency_s=20.0) as shop:
        yield shop


# -- resident first ------------------------------------------------------------------------------------


async def test_the_alias_moves_once_every_owner_has_the_version_in_a_slot(shop: Shop) -> None:
    await shop.versions("v1", "v2")
    meant_meanwhile: list[str] = []

    async def load(order: LoadAdapter, ids: Ids) -> HoldResult:
        meant_meanwhile.append(await shop.meant())
        return HoldResult(adapter_id=order.adapter_id, ok=True, tier="gpu", reason="resident")

    await shop.place.broker.connect("replica_worker").serve(catalog.LOAD, load, "replica-c")
    shop.placement.replica_ids, shop.placement.owners = ("replica-b", "replica-c"), ("replica-c", "replica-b")
    assert (await shop.put("v2")).status_code == 200
    assert meant_meanwhile == ["v1"]
    assert shop.new_loads() == ["replica-b v2 gpu"]
    assert await shop.meant() == "v2"


async def test_one_owner_is_enough_and_none_is_503_with_what_each_said(shop: Shop) -> None:
    await shop.versions("v1", "v2", "v3")
    shop.fail("no slot is free", shop.replicas[0])
    assert (await shop.put("v2")).status_code == 200
    shop.fail("no slot is free")
    refused = await shop.put("v3")
    assert error_of(refused, 503) == {
        "message": f"Alias '{ALIAS}' stays as it is: no owner could make v3 resident "
        "(replica-a: no slot is free; replica-b: no slot is free).",
        "type": "api_error", "code": "not_resident", "param": None,
    }  # fmt: skip
    assert refused.headers["retry-after"] == "1"
    assert await shop.meant() == "v2"


async def test_force_and_a_rollback_wait_for_nobody(shop: Shop) -> None:
    await shop.versions("v1", "v2")
    shop.fail("no slot is free")
    assert (await shop.put("v2", force=True)).status_code == 200
    assert (await shop.here.admin.post(f"{PATH}/rollback")).json()["adapter_id"] == "v1"


async def test_a_rollback_waits_a_moment_for_a_replica_that_says_nothing(tmp_path: Path) -> None:
    answered = asyncio.Event()

    async def load(order: LoadAdapter, ids: Ids) -> HoldResult:
        await answered.wait()
        return HoldResult(adapter_id=order.adapter_id, ok=True, tier="gpu", reason="resident")

    async with open_shop(tmp_path, rollback_residency_s=0.01) as shop:
        await shop.versions("v1", "v2")
        await shop.put("v2")
        await shop.place.broker.connect("replica_worker").serve(catalog.LOAD, load, "replica-c")
        shop.placement.replica_ids = shop.placement.owners = ("replica-c",)
        assert (await shop.here.admin.post(f"{PATH}/rollback")).json()["adapter_id"] == "v1"
        answered.set()


async def test_without_placement_a_deployment_is_503_and_a_rollback_goes_through(shop: Shop) -> None:
    await shop.versions("v1", "v2")
    await shop.put("v2")
    shop.placement.trouble = "the view is not full"
    message = error_of(await shop.put("v1"), 503)["message"]
    assert message.startswith(f"Alias '{ALIAS}' stays as it is: placement cannot be asked")
    assert (await shop.here.admin.post(f"{PATH}/rollback")).json()["adapter_id"] == "v1"


async def test_c39_a_deployment_while_every_engine_is_starting_goes_through_and_is_served_when_one_is_up(
    shop: Shop,
) -> None:
    await shop.versions("v1", "v2")
    ready, shop.placement.replica_ids = shop.placement.replica_ids, ()
    assert (await shop.put("v2")).status_code == 200
    assert shop.new_loads() == []
    await alias_is(shop.gateway, ALIAS, "v2")
    await shop.is_wanted("v2", True)  # so placement assigns it, and a replica that comes up loads it
    shop.placement.replica_ids = ready
    assert (await shop.put("v1")).status_code == 200
    assert shop.new_loads() == ["replica-a v1 gpu", "replica-b v1 gpu"]


async def test_whoever_moves_the_alias_while_a_rollback_waits_for_replicas_wins(shop: Shop) -> None:
    await shop.versions("v1", "v2", "v3")
    await shop.put("v2")

    async def load(order: LoadAdapter, ids: Ids) -> HoldResult:
        if order.adapter_id == "v1":
            await shop.put("v3", force=True)
        return HoldResult(adapter_id=order.adapter_id, ok=True, tier="gpu", reason="resident")

    await shop.place.broker.connect("replica_worker").serve(catalog.LOAD, load, "replica-c")
    shop.placement.replica_ids = shop.placement.owners = ("replica-c",)
    assert error_of(await shop.here.admin.post(f"{PATH}/rollback"), 409)["code"] == "alias_changed"
    assert await shop.meant() == "v3"


async def test_a_reason_fits_the_events_that_carry_it(shop: Shop) -> None:
    await shop.versions("v1", "v2")
    for name in ("by", "reason"):
        refused = error_of(await shop.put("v2", **{name: "x" * 1_001}), 422)
        assert (refused["code"], refused["param"]) == ("invalid_body", name)
    assert (await shop.put("v2", by="x" * 1_000, reason="x" * 1_000)).status_code == 200


# -- wanted --------------------------------------------------------------------------------------------


async def test_the_old_version_is_let_go_and_wanted_again_by_a_rollback(shop: Shop) -> None:
    await shop.versions("v1", "v2")
    await shop.put("v2")
    await shop.is_wanted("v1", False)
    await shop.is_wanted("v2", True)
    await shop.here.admin.put("/internal/aliases/acme/other", json={"adapter_id": "v1"})
    await shop.is_wanted("v1", True)
    await shop.here.admin.delete("/internal/aliases/acme/other")
    await shop.is_wanted("v1", False)
    await shop.here.admin.post(f"{PATH}/rollback")
    await shop.is_wanted("v1", True)
    await shop.is_wanted("v2", False)


async def test_what_is_retired_meanwhile_is_not_told_to_replicas_again(shop: Shop) -> None:
    await shop.versions("v1", "v2")
    await shop.here.admin.post("/internal/adapters/v2/retire")
    async with shop.here.registry.database.write() as connection:
        await wanted_rows.set_wanted(connection, "v2", False, None)
        assert await want(connection, "v2", 1e12) == []


async def test_what_was_never_deployed_is_kept_warm_for_a_while(tmp_path: Path) -> None:
    shop = await shop_in(tmp_path)
    at_once = {"keep_warm_s": 0.01, "wanted_sweep_s": 0.01, "reconcile_s": 0.05}
    async with shop.place.registry(**at_once) as shop.here:
        await shop.here.prepare()
        await shop.versions("v1", "v2")
        await shop.is_wanted("v2", False)
        await shop.is_wanted("v1", True)
        assert (await shop.here.admin.get("/internal/adapters/v2")).json()["status"] == "active"
        assert (await shop.put("v2")).status_code == 200
        await shop.is_wanted("v2", True)


# -- splits --------------------------------------------------------------------------------------------


async def test_a_canary_grows_and_is_promoted_and_the_history_says_who_and_why(shop: Shop) -> None:
    await shop.versions("v1", "v2")
    [events] = await heard(shop.place.broker.connect("pipeline"), catalog.ALIAS_MOVED)
    said = {"adapter_id": "v2", "by": "ann"}
    begun = (await shop.here.admin.put(f"{PATH}/split", json={**said, "percent": 10, "reason": "a canary"})).json()
    assert shop.new_loads() == ["replica-a v2 gpu", "replica-b v2 gpu"]
    grown = (await shop.here.admin.put(f"{PATH}/split", json={**said, "percent": 50})).json()
    assert begun["split_salt"] == grown["split_salt"] != ""
    record = await alias_is(shop.gateway, ALIAS, "v1")
    assert record is not None
    await value_is(shop.gateway, catalog.ALIAS, key_of(ALIAS), lambda one: one.split_percent == 50.0)
    promoted = (await shop.here.admin.post(f"{PATH}/promote", json={"by": "bob"})).json()
    assert (promoted["adapter_id"], promoted["previous_adapter_id"]) == ("v2", "v1")
    assert (promoted["split_adapter_id"], promoted["split_percent"], promoted["revision"]) == (None, 0.0, 4)
    await shop.is_wanted("v1", False)
    history = (await shop.here.admin.get(f"{PATH}/history")).json()["history"]
    seen = [(one["revision"], one["change"], one["split_percent"], one["actor"], one["reason"]) for one in history]
    assert seen == [
        (4, "promote", 0.0, "bob", f"{ALIAS} moves from v1 to v2 altogether"),
        (3, "split", 50.0, "ann", f"50 % of the sessions of {ALIAS} mean v2"),
        (2, "split", 10.0, "ann", "a canary"),
        (1, "set", 0.0, "registry", "announced with v1"),
    ]
    moves = await events.first(4)
    assert [(move.revision, move.change, move.actor) for move in moves] == [
        (one["revision"], one["change"], one["actor"]) for one in reversed(history)
    ]


async def test_a_split_is_not_ended_in_passing(shop: Shop) -> None:
    await shop.versions("v1", "v2", "v3")
    await shop.here.admin.put(f"{PATH}/split", json={"adapter_id": "v2", "percent": 10})
    assert error_of(await shop.put("v3"), 409)["code"] == "alias_split"
    other = await shop.here.admin.put(f"{PATH}/split", json={"adapter_id": "v3", "percent": 10})
    assert error_of(other, 409)["code"] == "alias_split"
    assert error_of(await shop.here.admin.post("/internal/adapters/v2/retire"), 409)["code"] == "adapter_in_use"
    assert error_of(await shop.here.admin.delete(PATH), 409)["code"] == "alias_split"
    assert (await shop.put("v3", force=True)).json()["split_adapter_id"] is None
    await shop.is_wanted("v2", False)


async def test_a_split_ends_with_its_alias_by_force_only(shop: Shop) -> None:
    await shop.versions("v1", "v2")
    await shop.here.admin.put(f"{PATH}/split", json={"adapter_id": "v2", "percent": 10})
    assert (await shop.here.admin.delete(f"{PATH}?force=true")).json()["adapter_id"] == "v1"
    for adapter_id in ("v1", "v2"):
        await shop.is_wanted(adapter_id, False)


@pytest.mark.parametrize("ending", ["unsplit", "rollback"])
async def test_a_canary_is_taken_back(shop: Shop, ending: str) -> None:
    await shop.versions("v1", "v2")
    await shop.here.admin.put(f"{PATH}/split", json={"adapter_id": "v2", "percent": 10})
    if ending == "unsplit":
        answer = await shop.here.admin.delete(f"{PATH}/split?by=ann&reason=slow")
    else:
        answer = await shop.here.admin.post(f"{PATH}/rollback", json={"by": "ann", "reason": "slow"})
    assert (answer.json()["adapter_id"], answer.json()["split_adapter_id"]) == ("v1", None)
    latest = (await shop.here.admin.get(f"{PATH}/history?limit=1")).json()["history"][0]
    assert (latest["change"], latest["actor"], latest["reason"]) == (ending, "ann", "slow")
    await shop.is_wanted("v2", False)
    again = await shop.here.admin.delete(f"{PATH}/split")
    assert error_of(again, 409)["code"] == "alias_not_split"


async def test_aliases_that_end_in_a_word_of_the_path_are_aliases(shop: Shop) -> None:
    await shop.versions("v1")
    for word in ("split", "history", "promote", "rollback"):
        assert (
            await shop.here.admin.put(f"/internal/aliases/acme/{word}", json={"adapter_id": "v1"})
        ).status_code == 200
        assert (await shop.here.admin.get(f"/internal/aliases/acme/{word}")).json()["adapter_id"] == "v1"
        assert (await shop.here.admin.delete(f"/internal/aliases/acme/{word}")).status_code == 200


# -- old data ------------------------------------------------------------------------------------------


async def test_aliases_from_before_revisions_move_on_and_back(shop: Shop) -> None:
    await shop.versions("v1", "v2")
    await shop.put("v2")
    database = shop.here.registry.database
    async with database.write() as connection:
        await connection.run_sync(moved("downgrade", "0002"))
        await connection.run_sync(moved("upgrade", "head"))
        await connection.execute(text("UPDATE alias_history SET revision = 0"))
    answer = await shop.here.admin.get(PATH)
    assert (answer.headers["etag"], answer.json()["previous_adapter_id"]) == ('"1"', "v1")
    back = await shop.here.admin.post(f"{PATH}/rollback", headers={"if-match": '"1"'})
    assert (back.json()["adapter_id"], back.headers["etag"]) == ("v1", '"2"')
    history = (await shop.here.admin.get(f"{PATH}/history")).json()["history"]
    assert [(one["revision"], one["adapter_id"]) for one in history] == [(2, "v1"), (0, "v2"), (0, "v1")]

"""A version that was announced with an alias is deployed as it becomes active: once, and over nobody's decision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import delete

from services.registry.core.deployment.aliases import GUARD, REGISTRY, Change, Denied
from services.registry.io import wanted_rows
from services.registry.io.tables import ALIAS_HISTORY, ALIASES
from shared.runtime.clock import ManualClock
from tests.support.registry_shop import ALIAS, PATH, Shop, open_shop, shop_in
from tests.support.registry_watch import alias_is, eventually


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path, rollback_residency_s=20.0) as shop:
        yield shop


async def test_c38_two_adapters_registered_in_the_same_second_are_both_deployed(tmp_path: Path) -> None:
    shop = await shop_in(tmp_path)
    async with shop.place.registry(clock=ManualClock()) as here:
        await here.prepare()
        both = {f"acme/{name}": here.announce(name, seed=seed, alias=f"acme/{name}") for seed, name in enumerate("xy")}
        answers = await asyncio.gather(*(here.post(announced) for announced in both.values()))
        assert [answer.status_code for answer in answers] == [201, 201]
        for alias, announced in both.items():
            await alias_is(shop.gateway, alias, announced.adapter_id)
        listed = (await here.admin.get("/internal/adapters")).json()["adapters"]
        assert {one["registered_at_s"] for one in listed} == {0.0}


async def test_a_deployment_that_no_owner_could_do_is_made_by_the_next_start(tmp_path: Path) -> None:
    shop = await shop_in(tmp_path)
    shop.fail("no slot is free")
    async with shop.place.registry() as here:
        await here.prepare()
        await here.post(here.announce("v1", alias=ALIAS))
        await here.reached("v1", "active")
    shop.fail(None)
    async with shop.place.registry():
        await alias_is(shop.gateway, ALIAS, "v1")


async def test_a_deployment_that_another_registry_left_is_taken_up(tmp_path: Path) -> None:
    shop = await shop_in(tmp_path)
    async with shop.place.registry(reconcile_s=0.05) as here:
        await here.prepare()
        await here.activated("v1", alias=ALIAS)
        async with here.registry.database.write() as connection:  # as if it had not come that far yet
            await connection.execute(delete(ALIAS_HISTORY))
            await connection.execute(delete(ALIASES))
        await eventually(lambda: here.means(ALIAS, "v1"))


async def test_what_was_decided_since_is_not_undone_by_the_next_start(tmp_path: Path) -> None:
    shop = await shop_in(tmp_path)
    async with shop.place.registry() as here:
        await here.prepare()
        await here.activated("v1", alias=ALIAS)
        assert (await here.admin.delete(PATH)).status_code == 200
    async with shop.place.registry() as here, here.registry.database.read() as connection:
        assert await wanted_rows.to_deploy(connection) == []


async def announced(shop: Shop, *adapter_ids: str) -> None:
    """Active under the shop's alias, whether replicas let it mean them or not."""
    for adapter_id in adapter_ids:
        await shop.here.post(shop.here.announce(adapter_id, seed=9, alias=ALIAS))
        await shop.here.reached(adapter_id, "active")


async def code_of_announced(shop: Shop, adapter_id: str) -> str:
    outcome = await shop.here.registry.aliasing.deploy_announced(adapter_id)
    return outcome.code if isinstance(outcome, Denied) else f"it means {outcome.adapter_id}"


async def test_a_person_who_decides_while_an_announced_version_waits_for_replicas_is_not_overruled(shop: Shop) -> None:
    await shop.versions("v1", "v0")
    shop.fail("no slot is free")
    await announced(shop, "v2")
    assert await code_of_announced(shop, "v2") == "not_resident"
    assert (await shop.put("v0", force=True, by="ann")).status_code == 200
    shop.fail(None)
    assert await code_of_announced(shop, "v2") == "alias_decided"
    assert await shop.meant() == "v0"


async def test_an_announced_version_that_was_taken_back_is_not_deployed_again(shop: Shop) -> None:
    await shop.versions("v1")
    await shop.here.activated("v2", seed=2, alias=ALIAS)
    await alias_is(shop.gateway, ALIAS, "v2")
    assert await code_of_announced(shop, "v2") == "it means v2"
    taken_back = Change(actor=GUARD, reason="v2: too slow")
    await shop.here.registry.aliasing.roll_back(ALIAS, change=taken_back, kind="auto_rollback")
    assert await code_of_announced(shop, "v2") == "alias_decided"
    assert await shop.meant() == "v1"


async def test_the_late_deployment_of_an_earlier_version_decides_nothing_about_a_later_one(shop: Shop) -> None:
    shop.fail("no slot is free")
    await announced(shop, "v1", "v2")
    late = Change(actor=REGISTRY, reason="announced with v1", force=True)
    await shop.here.registry.aliasing.deploy(ALIAS, "v1", change=late)
    async with shop.here.registry.database.read() as connection:
        assert [one.adapter_id for one in await wanted_rows.to_deploy(connection)] == ["v2"]
    shop.fail(None)
    await alias_is(shop.gateway, ALIAS, "v2")

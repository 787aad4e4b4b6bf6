"""Base models as registered objects: which pool an adapter goes to, and how a base model goes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from httpx import Response

from shared.contracts import catalog
from shared.messages.desired import BaseModelRecord
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE, Recipe, announcement, file_of, write_folder
from tests.support.registry_place import Place
from tests.support.registry_watch import value_is
from tests.support.registry_world import World

HASH = BASE.base_model_hash
WIDE = msgspec.structs.replace(BASE, base_model_hash="ab" * 32, name="wide-base", rank_classes=(16, 64))
ALIAS = "acme/support:prod"


async def put(here: World, base: BaseModelRecord) -> Response:
    return await here.admin.put(f"/internal/base-models/{base.base_model_hash}", json=msgspec.to_builtins(base))


async def retire(here: World, base_model_hash: str = HASH) -> Response:
    return await here.admin.post(f"/internal/base-models/{base_model_hash}/retire")


def of_rank(here: World, rank: int, **changes: Any) -> Any:
    """An announcement on the base with classes 16 and 64, with a file of that rank."""
    file = file_of(Recipe(rank=max(rank, 1)))
    changes = {"rank": rank, "adapter_id": f"r{rank}", "base_model_hash": WIDE.base_model_hash, **changes}
    return write_folder(here.folder / "inbox" / str(changes["adapter_id"]), file, announcement(file, **changes))


@pytest.mark.parametrize(("rank", "rank_class"), [(1, 16), (16, 16), (17, 64), (64, 64)])
async def test_c46_a_rank_goes_to_the_smallest_pool_that_fits(alone: World, rank: int, rank_class: int) -> None:
    await put(alone, WIDE)
    answer = await alone.post(of_rank(alone, rank))
    assert (answer.status_code, answer.json()["pool_id"]) == (201, pool_id(WIDE.base_model_hash, rank_class))


async def test_c46_a_pattern_counts_as_a_rank(alone: World) -> None:
    await put(alone, WIDE)
    file = file_of(Recipe(rank=8, rank_pattern={"q_proj": 64}))
    said = announcement(file, rank=8, rank_pattern={"q_proj": 64}, base_model_hash=WIDE.base_model_hash)
    answer = await alone.post(write_folder(alone.folder / "inbox" / "patterned", file, said))
    assert answer.json()["pool_id"] == pool_id(WIDE.base_model_hash, 64)


@pytest.mark.parametrize(("rank", "code", "other"), [(65, "rank_too_high", "64"), (0, "rank_invalid", "at least 1"),
                                                     (-1, "rank_invalid", "at least 1")])  # fmt: skip
async def test_c46_a_rank_that_fits_no_pool_is_refused_with_both_numbers(
    alone: World, rank: int, code: str, other: str
) -> None:
    await put(alone, WIDE)
    answer = await alone.post(of_rank(alone, rank))
    [found] = [one for one in answer.json()["error"]["defects"] if one["code"] == code]
    assert (answer.status_code, str(rank) in found["message"], other in found["message"]) == (422, True, True)


async def test_a_class_that_is_added_takes_what_did_not_fit(alone: World) -> None:
    narrow = msgspec.structs.replace(WIDE, rank_classes=(16,))
    await put(alone, narrow)
    assert (await alone.post(of_rank(alone, 64))).status_code == 422
    await put(alone, WIDE)
    assert (await alone.post(of_rank(alone, 64))).json()["pool_id"] == pool_id(WIDE.base_model_hash, 64)


# -- retirement ----------------------------------------------------------------------------------------


async def test_a_base_that_something_points_at_stays_and_everything_is_named(place: Place) -> None:
    await place.replicas("replica-a")
    async with place.registry() as here:
        await here.prepare()
        await here.activated("v1", alias=ALIAS)
        await here.activated("v2", seed=2)
        async with here.registry.database.write() as connection:
            await connection.exec_driver_sql("UPDATE aliases SET split_adapter_id = 'v2', split_percent = 20")
        answer = await retire(here)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (409, "base_model_in_use")
        assert [(one["code"], one["message"]) for one in error["defects"]] == [
            ("alias_points_here", f"Alias {ALIAS} means v1."),
            ("split_points_here", f"A split of alias {ALIAS} means v2."),
            ("adapter_points_here", "Adapter v1 is active."),
            ("adapter_points_here", "Adapter v2 is active."),
        ]
        assert "1 alias, 1 split, 2 adapters still point at it" in error["message"]
        assert (await retire(here)).json() == answer.json()


async def test_a_way_back_to_a_version_points_at_its_base(place: Place) -> None:
    await place.replicas("replica-a")
    async with place.registry() as here:
        await here.prepare()
        await here.activated("v1", alias=ALIAS)
        await here.activated("v2", seed=2, alias=ALIAS)
        messages = [one["message"] for one in (await retire(here)).json()["error"]["defects"]]
        assert f"Alias {ALIAS} would roll back to v1." in messages


async def test_an_adapter_that_is_being_evaluated_points_at_its_base(alone: World) -> None:
    await alone.post(alone.announce("v1"))
    await alone.reached("v1", "evaluating")
    [found] = (await retire(alone)).json()["error"]["defects"]
    assert found["message"] == "Adapter v1 is evaluating."


async def test_a_base_that_nothing_points_at_goes_and_comes_again(place: Place) -> None:
    await place.replicas("replica-a")
    bucket = place.broker.connect("gateway")
    async with place.registry() as here:
        await here.prepare()
        await here.activated("v1")
        await here.admin.post("/internal/adapters/v1/retire")
        await value_is(bucket, catalog.BASE_MODEL, HASH, lambda base: base is not None)
        gone = (await retire(here)).json()
        assert gone["retired_at_s"] > 0
        assert (await retire(here)).json() == gone
        await value_is(bucket, catalog.BASE_MODEL, HASH, lambda base: base is None)
        assert (await here.admin.get("/internal/base-models")).json()["base_models"] == []
        assert (await here.admin.get("/internal/base-models?retired=true")).json()["base_models"] == [gone]
        refused = await here.post(here.announce("v2", seed=2))
        assert [one["code"] for one in refused.json()["error"]["defects"]] == ["base_model_unknown"]
    async with place.registry() as here:
        await value_is(bucket, catalog.BASE_MODEL, HASH, lambda base: base is None)
        assert (await put(here, BASE)).status_code == 200
        assert (await here.post(here.announce("v2", seed=2))).status_code == 201
        await value_is(bucket, catalog.BASE_MODEL, HASH, lambda base: base is not None)


async def test_an_announcement_that_is_being_checked_points_at_its_base(
    alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that read its base before comes to be verified after the base has gone."""
    verifications = alone.registry.registrations._verifications
    check, refused = verifications._check_and_store, []

    async def checked_late(*said: Any) -> Any:
        refused.append(await retire(alone))
        return await check(*said)

    monkeypatch.setattr(verifications, "_check_and_store", checked_late)
    assert (await alone.post(alone.announce("v1"))).status_code == 201
    [found] = refused[0].json()["error"]["defects"]
    assert (refused[0].status_code, found["message"]) == (409, "Adapter v1 is registered.")


async def test_nobody_overrides_an_evaluation_on_a_retired_base(place: Place) -> None:
    [replica] = await place.replicas("replica-a")
    replica.passed = False
    async with place.registry() as here:
        await here.prepare()
        await here.post(here.announce("v1"))
        await here.reached("v1", "failed")
        assert (await retire(here)).status_code == 200
        said = {"by": "ann", "reason": "it is good enough for us"}
        refused = await here.admin.post("/internal/adapters/v1/override", json=said)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "base_model_retired")
        assert await here.status("v1") == "failed"


async def test_a_base_that_nobody_knows_cannot_be_retired(alone: World) -> None:
    answer = await retire(alone, "0" * 64)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "base_model_unknown")


async def test_the_name_of_a_retired_base_stays_its_own(alone: World) -> None:
    await retire(alone)
    answer = await put(alone, msgspec.structs.replace(WIDE, name=BASE.name))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "name_taken")

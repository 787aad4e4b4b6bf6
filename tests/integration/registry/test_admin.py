"""The rest of /internal: uploads, listings, aliases, tenants, base models, and questions to the fleet."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.bus.memory import MemoryBroker
from shared.bus.port import Ids
from shared.contracts import catalog
from shared.messages.desired import TenantRecord
from shared.messages.operations import AskFleet, AskState, HoldResult, LoadAdapter, ReplicaState, UnloadAdapter
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE
from tests.support.registry_errors import error_of
from tests.support.registry_world import FakePlacement, FakeReplica, World

POOL = pool_id(BASE.base_model_hash, 8)
BASE_PATH = f"/internal/base-models/{BASE.base_model_hash}"


# -- uploads -------------------------------------------------------------------------------------------


async def test_an_upload_with_another_checksum_is_422(alone: World) -> None:
    answer = await alone.admin.put(f"/internal/uploads/{'0' * 64}", content=b"other bytes")
    assert error_of(answer, 422)["code"] == "checksum_mismatch"
    assert [path for path in (alone.folder / "store").rglob("*") if path.is_file()] == []


async def test_an_upload_over_the_limit_is_413(alone: World) -> None:
    large = bytes((1 << 20) + 1)
    answer = await alone.admin.put(f"/internal/uploads/{hashlib.sha256(large).hexdigest()}", content=large)
    assert error_of(answer, 413)["code"] == "body_too_large"
    assert [path for path in (alone.folder / "store").rglob("*") if path.is_file()] == []


# -- looking ------------------------------------------------------------------------------------------


async def test_adapters_are_listed_in_pages(alone: World) -> None:
    for at in range(5):
        await alone.post(alone.announce(f"v{at}", seed=at))
    seen: list[str] = []
    after = ""
    while after is not None:
        page = (await alone.admin.get("/internal/adapters", params={"limit": 2, "after": after})).json()
        seen += [one["adapter_id"] for one in page["adapters"]]
        after = page["next"]
    assert seen == ["v0", "v1", "v2", "v3", "v4"]


async def test_adapters_are_filtered(alone: World) -> None:
    await alone.post(alone.announce("v1"))
    await alone.post(alone.announce("v2", rank=99))
    for query, ids in (
        ("status=rejected", ["v2"]), ("tenant_id=acme", ["v1", "v2"]), ("tenant_id=globex", []),
        ("tenant_id=acme&status=rejected", ["v2"]),
    ):  # fmt: skip
        found = (await alone.admin.get(f"/internal/adapters?{query}")).json()["adapters"]
        assert [one["adapter_id"] for one in found] == ids, query


async def test_what_is_not_there_is_404(alone: World) -> None:
    for method, path in (
        ("GET", "/internal/adapters/none"), ("POST", "/internal/adapters/none/retire"),
        ("POST", "/internal/aliases/acme/none/rollback"), ("DELETE", "/internal/aliases/acme/none"),
        ("DELETE", "/internal/keys/none"), ("POST", "/internal/replicas/r1/adapters/none/load"),
        ("POST", "/internal/replicas/r1/adapters/none/unload"),
    ):  # fmt: skip
        error_of(await alone.admin.request(method, path), 404)


# -- aliases, tenants, keys, base models ---------------------------------------------------------------


async def test_c62_the_name_of_a_base_is_no_alias(alone: World) -> None:
    answer = await alone.admin.put("/internal/aliases/small-base", json={"adapter_id": "v1"})
    assert error_of(answer, 422)["code"] == "alias_is_base_model"


async def test_aliases_mean_known_active_own_adapters(alone: World) -> None:
    await alone.post(alone.announce("v1"))
    for alias, adapter_id, status, code in (
        ("acme/x", "none", 404, "adapter_unknown"),
        ("acme/x", "v1", 409, "adapter_not_active"),
        ("globex/x", "v1", 422, "alias_foreign"),
    ):
        answer = await alone.admin.put(f"/internal/aliases/{alias}", json={"adapter_id": adapter_id})
        assert error_of(answer, status)["code"] == code


async def test_an_alias_that_never_meant_anything_else_cannot_go_back(alone: World, broker: MemoryBroker) -> None:
    await FakePlacement(POOL, ("r1",)).serve(broker.connect("placement"))
    await FakeReplica("r1").serve(broker.connect("replica_worker"))
    await alone.activated("v1", alias="acme/x")
    answer = await alone.admin.post("/internal/aliases/acme/x/rollback")
    assert error_of(answer, 409)["code"] == "nothing_to_roll_back"


async def test_a_tenant_is_made_and_changed(alone: World) -> None:
    assert (await alone.admin.post("/internal/tenants", json={"tenant_id": "globex"})).status_code == 201
    changed = await alone.admin.post("/internal/tenants", json={"tenant_id": "globex", "weight": 2.5})
    weighty = msgspec.to_builtins(TenantRecord(tenant_id="globex", weight=2.5))
    assert (changed.status_code, changed.json()) == (200, weighty)
    again = await alone.admin.post("/internal/tenants", json={"tenant_id": "globex"})
    assert (again.status_code, again.json()) == (200, weighty)
    listed = (await alone.admin.get("/internal/tenants")).json()["tenants"]
    assert [(tenant["tenant_id"], tenant["weight"]) for tenant in listed] == [("acme", 1.0), ("globex", 2.5)]


async def test_base_models_are_listed_as_they_were_told(alone: World) -> None:
    [listed] = (await alone.admin.get("/internal/base-models")).json()["base_models"]
    assert (created_at_s := listed["created_at_s"]) > 0
    assert listed == {**msgspec.json.decode(msgspec.json.encode(BASE)), "created_at_s": created_at_s}
    again = await alone.admin.put(BASE_PATH, json=msgspec.to_builtins(BASE))
    assert again.status_code == 200


# -- questions to the fleet ----------------------------------------------------------------------------


async def test_the_fleet_is_what_placement_says(alone: World, broker: MemoryBroker) -> None:
    nobody = error_of(await alone.admin.get("/internal/fleet"), 503)
    assert nobody["code"] == "no_responders"
    assert nobody["message"].startswith("Placement does not answer")
    await FakePlacement(POOL, ("r1", "r2")).serve(broker.connect("placement"))
    fleet = (await alone.admin.get("/internal/fleet")).json()
    assert [replica["replica_id"] for replica in fleet["replicas"]] == ["r1", "r2"]


async def test_a_placement_that_is_silent_is_named(alone: World, broker: MemoryBroker) -> None:
    async def silent(message: AskFleet, ids: Ids) -> None:
        return None

    await broker.connect("placement").subscribe(catalog.FLEET, silent)
    error = error_of(await alone.admin.get("/internal/fleet"), 504)
    assert (error["code"], error["message"][:25]) == ("no_answer", "Placement does not answer")


async def test_a_replica_that_is_not_there_is_503_and_one_that_is_silent_504(
    alone: World, broker: MemoryBroker
) -> None:
    assert error_of(await alone.admin.get("/internal/replicas/r1/state"), 503)["code"] == "no_responders"

    async def silent(message: AskState, ids: Ids) -> None:
        return None

    await broker.connect("replica_worker").subscribe(catalog.STATE, silent, "r1")
    assert error_of(await alone.admin.get("/internal/replicas/r1/state"), 504)["code"] == "no_answer"
    assert error_of(await alone.admin.get("/internal/replicas/r%201/state"), 422)["code"] == "invalid_replica_id"


async def test_a_replica_shows_its_state(alone: World, broker: MemoryBroker) -> None:
    state = ReplicaState(
        replica_id="r1", pool_id=POOL, ready=True, draining=False, queue_depth=1, tokens_in_flight=2,
        evictions_per_min=0.5, gpu_adapters=("v1",), ram_adapters=(),
    )  # fmt: skip

    async def answer(question: AskState, ids: Ids) -> ReplicaState:
        return state

    await broker.connect("replica_worker").serve(catalog.STATE, answer, "r1")
    shown = (await alone.admin.get("/internal/replicas/r1/state")).json()
    assert (shown["gpu_adapters"], shown["tokens_in_flight"]) == (["v1"], 2)


async def test_c28_a_load_is_a_success_only_if_the_replica_says_so(alone: World, broker: MemoryBroker) -> None:
    asked: list[LoadAdapter | UnloadAdapter] = []
    done = True

    async def hold(question: LoadAdapter | UnloadAdapter, ids: Ids) -> HoldResult:
        asked.append(question)
        return HoldResult(adapter_id=question.adapter_id, ok=done, tier="gpu", reason="as the test says")

    worker = broker.connect("replica_worker")
    await worker.serve(catalog.LOAD, hold, "r1")
    await worker.serve(catalog.UNLOAD, hold, "r1")
    announced = alone.announce("v1")
    await alone.post(announced)
    path = "/internal/replicas/r1/adapters/v1"
    assert (await alone.admin.post(f"{path}/load")).json()["ok"] is True
    assert (await alone.admin.post(f"{path}/load", json={"tier": "ram"})).status_code == 200
    assert (await alone.admin.post(f"{path}/unload")).status_code == 200
    assert asked == [
        LoadAdapter(adapter_id="v1", digest=announced.checksum),
        LoadAdapter(adapter_id="v1", digest=announced.checksum, tier="ram"),
        UnloadAdapter(adapter_id="v1", digest=announced.checksum),
    ]
    done = False
    assert "as the test says" in error_of(await alone.admin.post(f"{path}/load"), 409)["message"]
    assert error_of(await alone.admin.post(f"{path}/load", json={"tier": "remote"}), 422)["param"] == "tier"


async def test_an_adapter_that_no_replica_may_hold_is_not_loaded(alone: World) -> None:
    await alone.post(alone.announce("v1", rank=99))
    answer = await alone.admin.post("/internal/replicas/r1/adapters/v1/load")
    assert error_of(answer, 409)["code"] == "adapter_not_active"


async def test_a_database_that_is_away_is_503(alone: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(engine: AsyncEngine) -> None:
        raise OperationalError("SELECT 1", {}, Exception("planted"))

    monkeypatch.setattr(AsyncEngine, "begin", away)
    assert error_of(await alone.admin.get("/internal/adapters"), 503)["code"] == "database_unavailable"
    assert error_of(await alone.post(alone.announce("v1")), 503)["code"] == "database_unavailable"
    assert "planted" in error_of(await alone.admin.get("/readyz"), 503)["message"]
    monkeypatch.undo()
    assert (await alone.post(alone.announce("v1"))).status_code == 201


async def test_what_nobody_foresaw_is_500_without_its_details(alone: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*arguments: Any) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("services.registry.io.adapter_rows.find", broken)
    error = error_of(await alone.admin.get("/internal/adapters/v1"), 500)
    assert (error["code"], "secret" in error["message"]) == ("internal_error", False)

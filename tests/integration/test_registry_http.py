"""The admin door: who is let in, and that every bad input gets the right status and one sentence."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus, Ids
from shared.contracts import catalog
from shared.messages.operations import AskState, HoldResult, LoadAdapter, ReplicaState, UnloadAdapter
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE, announcement, file_of, peft_config, write_folder
from tests.support.registry_world import FakePlacement, FakeReplica, World, world

POOL = pool_id(BASE.base_model_hash, 8)
BASE_PATH = f"/internal/base-models/{BASE.base_model_hash}"


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def here(tmp_path: Path, broker: MemoryBroker) -> AsyncIterator[World]:
    async def connect(service: str) -> Bus:
        return broker.connect(service)

    async with world(tmp_path, connect, ask_timeout_s=0.2, largest_file_bytes=1 << 20) as made:
        await made.prepare()
        yield made


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error of an answer, once its form is right: one sentence, a type, a code."""
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["message"].endswith((".", " more)"))
    assert "\n" not in error["message"]
    assert error["type"] == ("invalid_request_error" if status < 500 else "api_error")
    assert error["code"]
    return error


async def still_serves(here: World) -> None:
    assert (await here.post(here.announce("after-all-that", seed=77))).status_code == 201


def body(here: World, **changes: Any) -> dict[str, Any]:
    return {**msgspec.to_builtins(here.announce("v1")), **changes}


# -- who is let in -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic an-admin-key-for-tests", "Bearer \u00e4"]
)
async def test_without_the_admin_key_nothing_is_answered(here: World, authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization.encode()}
    del here.admin.headers["authorization"]
    for method, path in (
        ("GET", "/internal/adapters"), ("POST", "/internal/adapters"), ("PUT", "/internal/aliases/acme/x"),
        ("GET", "/internal/keys"), ("POST", "/internal/tenants"), ("GET", "/internal/fleet"),
        ("PUT", f"/internal/uploads/{'0' * 64}"), ("PUT", BASE_PATH), ("DELETE", "/internal/keys/1"),
    ):  # fmt: skip
        answer = await here.admin.request(method, path, headers=headers)
        assert error_of(answer, 401)["code"] == "invalid_admin_key"


async def test_probes_need_no_key(here: World) -> None:
    del here.admin.headers["authorization"]
    assert (await here.admin.get("/healthz")).status_code == 200
    assert (await here.admin.get("/readyz")).status_code in (200, 503)
    assert "lorafleet_registry_registrations_total" in (await here.admin.get("/metrics")).text
    for path in ("/docs", "/openapi.json", "/"):
        assert error_of(await here.admin.get(path), 404)["code"] == "not_served"


async def test_a_method_that_is_not_served_is_405(here: World) -> None:
    error_of(await here.admin.delete("/internal/adapters"), 405)


# -- bodies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"{", b"", b"nonsense", b"\xff\xfe", b"[1,2", b'{"a": 1}}'])
async def test_c81_what_is_no_json_is_400(here: World, text: bytes) -> None:
    assert error_of(await here.admin.post("/internal/adapters", content=text), 400)["code"] == "malformed_json"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rank": "8"}, "rank"),
        ({"rank": 8.5}, "rank"),
        ({"adapter_id": 5}, "adapter_id"),
        ({"adapter_id": None}, "adapter_id"),
        ({"target_modules": "q_proj"}, "target_modules"),
        ({"target_modules": ["q_proj", 1]}, "target_modules[1]"),
        ({"rank_pattern": {"q_proj": "x"}}, "rank_pattern[...]"),
        ({"use_rslora": 1}, "use_rslora"),
        ({"weight_uri": "x"}, "weight_uri"),
        ({"tenant": "acme"}, "tenant"),
    ],
)
async def test_a_field_that_is_wrong_or_unknown_is_named(here: World, changes: dict[str, Any], field: str) -> None:
    error = error_of(await here.admin.post("/internal/adapters", json=body(here, **changes)), 422)
    assert (error["code"], error["param"]) == ("invalid_body", field)
    assert field in error["message"]
    await still_serves(here)


async def test_a_missing_field_is_named(here: World) -> None:
    said = body(here)
    del said["checksum"]
    assert error_of(await here.admin.post("/internal/adapters", json=said), 422)["param"] == "checksum"


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("POST", "/internal/tenants", {"tenant_id": "acme", "wight": 2}),
        ("POST", "/internal/keys", {"tenant_id": "acme", "may_call": True}),
        ("PUT", "/internal/aliases/acme/x", {"adapter": "v1"}),
        ("PUT", BASE_PATH, {**msgspec.to_builtins(BASE), "layer": 3}),
        ("PUT", BASE_PATH, {**msgspec.to_builtins(BASE), "modules": {"q_proj": {"in_features": 1, "out": 2}}}),
        ("POST", "/internal/replicas/r1/adapters/v1/load", {"teir": "ram"}),
    ],
)
async def test_unknown_fields_are_refused_everywhere(here: World, method: str, path: str, said: Any) -> None:
    assert "unknown field" in error_of(await here.admin.request(method, path, json=said), 422)["message"]


async def test_c81_a_large_body_is_413(here: World) -> None:
    large = b'{"adapter_id": "' + b"x" * (2 << 20) + b'"}'
    assert error_of(await here.admin.post("/internal/adapters", content=large), 413)["code"] == "body_too_large"

    async def unannounced() -> AsyncIterator[bytes]:
        for at in range(0, len(large), 1 << 16):
            yield large[at : at + (1 << 16)]

    error_of(await here.admin.post("/internal/adapters", content=unannounced()), 413)
    await still_serves(here)


# -- adapters that are wrong ---------------------------------------------------------------------------


async def test_a_right_adapter_is_201_and_then_200(here: World) -> None:
    announced = here.announce("v1")
    first, second = await here.post(announced), await here.post(announced)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["digest"] == announced.checksum
    assert first.json()["pool_id"] == POOL


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"base_model_hash": "0" * 64}, "base_model_unknown"),
        ({"rank": 64}, "rank_too_high"),
        ({"rank": 0}, "rank_invalid"),
        ({"rank": -(1 << 62)}, "rank_invalid"),
        ({"rank": (1 << 64) - 1}, "rank_too_high"),
        ({"checksum": "0" * 64}, "checksum_mismatch"),
        ({"checksum": "zero"}, "checksum_invalid"),
        ({"adapter_id": "../../etc"}, "adapter_id_invalid"),
        ({"adapter_id": "a\0b"}, "adapter_id_invalid"),
        ({"tenant_id": "globex"}, "tenant_unknown"),
        ({"target_modules": ["q_proj", "down_proj", "c_attn"]}, "module_unknown"),
        ({"weights_uri": "file:///etc/passwd"}, "weights_uri_refused"),
        ({"weights_uri": "file:///x/adapter_model.bin"}, "pickle_refused"),
        ({"weights_uri": f"upload:{'0' * 64}"}, "weights_missing"),
        ({"alias": "Acme/Support"}, "alias_invalid"),
        ({"alias": "acme/\u0430"}, "alias_invalid"),
        ({"version": "1\u00002"}, "version_invalid"),
    ],
)
async def test_a_wrong_registration_is_422_with_its_defects(here: World, changes: dict[str, Any], code: str) -> None:
    error = error_of(await here.admin.post("/internal/adapters", json=body(here, **changes)), 422)
    assert code in {defect["code"] for defect in error["defects"]}
    assert all(defect["message"].endswith((".", "…")) for defect in error["defects"])
    await still_serves(here)


async def test_a_wrong_registration_is_kept_with_its_defects(here: World) -> None:
    error = error_of(await here.admin.post("/internal/adapters", json=body(here, rank=64, alpha=0)), 422)
    kept = (await here.admin.get("/internal/adapters/v1")).json()
    assert (kept["status"], kept["defects"]) == ("rejected", error["defects"])
    assert "more)" in error["message"]


@pytest.mark.parametrize("length", [0, 8, 0.5, -1])
async def test_c51_a_truncated_file_is_refused(here: World, length: float) -> None:
    file = file_of()
    cut = file[: int(len(file) * length) if isinstance(length, float) else length]
    announced = write_folder(here.folder / "inbox" / "v1", cut, announcement(cut, adapter_id="v1"))
    error = error_of(await here.post(announced), 422)
    assert "not_safetensors" in {defect["code"] for defect in error["defects"]}
    assert not list((here.folder / "store").rglob("*.safetensors"))


async def test_c56_a_pickle_is_refused_and_never_opened(here: World) -> None:
    folder = here.folder / "inbox" / "v1"
    folder.mkdir(parents=True)
    fifo = folder / "adapter_model.bin"
    os.mkfifo(fifo)  # whoever opened it would never return
    for uri in (folder.as_uri(), fifo.as_uri()):
        announced = announcement(b"", adapter_id="v1", weights_uri=uri)
        assert "pickle_refused" in {one["code"] for one in error_of(await here.post(announced), 422)["defects"]}


async def test_c54_a_link_out_of_the_inbox_is_refused(here: World) -> None:
    announced = here.announce("v1")
    weights = here.folder / "inbox" / "v1" / "adapter_model.safetensors"
    weights.rename(here.folder / "outside.safetensors")
    weights.symlink_to(here.folder / "outside.safetensors")
    assert error_of(await here.post(announced), 422)["code"] == "weights_uri_refused"


async def test_c43_a_dora_config_is_refused(here: World) -> None:
    announced = here.announce("v1")
    config = here.folder / "inbox" / "v1" / "adapter_config.json"
    config.write_bytes(peft_config(announced, use_dora=True))
    assert error_of(await here.post(announced), 422)["code"] == "dora"


# -- uploads -------------------------------------------------------------------------------------------


async def test_an_upload_with_another_checksum_is_422(here: World) -> None:
    answer = await here.admin.put(f"/internal/uploads/{'0' * 64}", content=b"other bytes")
    assert error_of(answer, 422)["code"] == "checksum_mismatch"
    assert [path for path in (here.folder / "store").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["x", "..%2f..%2fetc", "A" * 64])
async def test_an_upload_is_named_by_its_checksum(here: World, name: str) -> None:
    answer = await here.admin.put(f"/internal/uploads/{name}", content=b"x")
    assert answer.status_code in (404, 422)


async def test_an_upload_over_the_limit_is_413(here: World) -> None:
    large = bytes((1 << 20) + 1)
    answer = await here.admin.put(f"/internal/uploads/{hashlib.sha256(large).hexdigest()}", content=large)
    assert error_of(answer, 413)["code"] == "body_too_large"
    assert [path for path in (here.folder / "store").rglob("*") if path.is_file()] == []


# -- looking ------------------------------------------------------------------------------------------


async def test_adapters_are_listed_in_pages(here: World) -> None:
    for at in range(5):
        await here.post(here.announce(f"v{at}", seed=at))
    seen: list[str] = []
    after = ""
    while after is not None:
        page = (await here.admin.get("/internal/adapters", params={"limit": 2, "after": after})).json()
        seen += [one["adapter_id"] for one in page["adapters"]]
        after = page["next"]
    assert seen == ["v0", "v1", "v2", "v3", "v4"]


async def test_adapters_are_filtered(here: World) -> None:
    await here.post(here.announce("v1"))
    await here.post(here.announce("v2", rank=99))
    for query, ids in (
        ("status=rejected", ["v2"]), ("tenant_id=acme", ["v1", "v2"]), ("tenant_id=globex", []),
        ("tenant_id=acme&status=rejected", ["v2"]),
    ):  # fmt: skip
        found = (await here.admin.get(f"/internal/adapters?{query}")).json()["adapters"]
        assert [one["adapter_id"] for one in found] == ids, query


@pytest.mark.parametrize("query", ["status=live", "limit=0", "limit=x", "limit=1001", "limit=-1"])
async def test_a_wrong_query_is_422(here: World, query: str) -> None:
    assert error_of(await here.admin.get(f"/internal/adapters?{query}"), 422)["code"] == "invalid_query"


async def test_what_is_not_there_is_404(here: World) -> None:
    for method, path in (
        ("GET", "/internal/adapters/none"), ("POST", "/internal/adapters/none/retire"),
        ("POST", "/internal/aliases/acme/none/rollback"), ("DELETE", "/internal/aliases/acme/none"),
        ("DELETE", "/internal/keys/none"), ("POST", "/internal/replicas/r1/adapters/none/load"),
        ("POST", "/internal/replicas/r1/adapters/none/unload"),
    ):  # fmt: skip
        error_of(await here.admin.request(method, path), 404)


# -- aliases, tenants, keys, base models ---------------------------------------------------------------


@pytest.mark.parametrize("alias", ["acme/a,b", "acme/a b", "acme/a|b", "acme/A", "acme", "acme/a/b", "acme/a:b:c"])
async def test_c62_an_alias_outside_the_grammar_is_422(here: World, alias: str) -> None:
    answer = await here.admin.put(f"/internal/aliases/{alias}", json={"adapter_id": "v1"})
    assert error_of(answer, 422)["code"] == "alias_invalid"


async def test_c62_the_name_of_a_base_is_no_alias(here: World) -> None:
    answer = await here.admin.put("/internal/aliases/small-base", json={"adapter_id": "v1"})
    assert error_of(answer, 422)["code"] == "alias_is_base_model"


async def test_aliases_mean_known_active_own_adapters(here: World) -> None:
    await here.post(here.announce("v1"))
    for alias, adapter_id, status, code in (
        ("acme/x", "none", 404, "adapter_unknown"),
        ("acme/x", "v1", 409, "adapter_not_active"),
        ("globex/x", "v1", 422, "alias_foreign"),
    ):
        answer = await here.admin.put(f"/internal/aliases/{alias}", json={"adapter_id": adapter_id})
        assert error_of(answer, status)["code"] == code


async def test_an_alias_that_never_meant_anything_else_cannot_go_back(here: World, broker: MemoryBroker) -> None:
    await FakePlacement(POOL, ("r1",)).serve(broker.connect("placement"))
    await FakeReplica("r1").serve(broker.connect("replica_worker"))
    await here.activated("v1", alias="acme/x")
    answer = await here.admin.post("/internal/aliases/acme/x/rollback")
    assert error_of(answer, 409)["code"] == "nothing_to_roll_back"


async def test_a_tenant_is_made_and_changed(here: World) -> None:
    assert (await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})).status_code == 201
    changed = await here.admin.post("/internal/tenants", json={"tenant_id": "globex", "weight": 2.5})
    assert (changed.status_code, changed.json()) == (200, {"tenant_id": "globex", "weight": 2.5})
    listed = (await here.admin.get("/internal/tenants")).json()["tenants"]
    assert listed == [{"tenant_id": "acme", "weight": 1.0}, {"tenant_id": "globex", "weight": 2.5}]


@pytest.mark.parametrize("said", [{"tenant_id": "Acme"}, {"tenant_id": "acme", "weight": 0}, {"tenant_id": ""}])
async def test_a_wrong_tenant_is_422(here: World, said: dict[str, Any]) -> None:
    error_of(await here.admin.post("/internal/tenants", json=said), 422)


async def test_a_key_needs_a_tenant(here: World) -> None:
    answer = await here.admin.post("/internal/keys", json={"tenant_id": "nobody"})
    assert error_of(answer, 422)["code"] == "tenant_unknown"


async def test_base_models_are_listed_as_they_were_told(here: World) -> None:
    [listed] = (await here.admin.get("/internal/base-models")).json()["base_models"]
    assert (created_at_s := listed["created_at_s"]) > 0
    assert listed == {**msgspec.json.decode(msgspec.json.encode(BASE)), "created_at_s": created_at_s}
    again = await here.admin.put(BASE_PATH, json=msgspec.to_builtins(BASE))
    assert again.status_code == 200


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"base_model_hash": "0" * 64}, 422, "invalid_body"),
        ({"layers": 0}, 422, "base_model_invalid"),
        ({"layers": 7}, 409, "base_model_differs"),
        ({"rank_classes": [8]}, 409, "rank_class_in_use"),
    ],
)
async def test_a_wrong_base_model_is_refused(here: World, changes: dict[str, Any], status: int, code: str) -> None:
    answer = await here.admin.put(BASE_PATH, json={**msgspec.to_builtins(BASE), **changes})
    assert error_of(answer, status)["code"] == code


# -- questions to the fleet ----------------------------------------------------------------------------


async def test_the_fleet_is_what_placement_says(here: World, broker: MemoryBroker) -> None:
    assert error_of(await here.admin.get("/internal/fleet"), 503)["code"] == "no_responders"
    await FakePlacement(POOL, ("r1", "r2")).serve(broker.connect("placement"))
    fleet = (await here.admin.get("/internal/fleet")).json()
    assert [replica["replica_id"] for replica in fleet["replicas"]] == ["r1", "r2"]


async def test_a_replica_that_is_not_there_is_503_and_one_that_is_silent_504(here: World, broker: MemoryBroker) -> None:
    assert error_of(await here.admin.get("/internal/replicas/r1/state"), 503)["code"] == "no_responders"

    async def silent(message: AskState, ids: Ids) -> None:
        return None

    await broker.connect("replica_worker").subscribe(catalog.STATE, silent, "r1")
    assert error_of(await here.admin.get("/internal/replicas/r1/state"), 504)["code"] == "no_answer"
    assert error_of(await here.admin.get("/internal/replicas/r%201/state"), 422)["code"] == "invalid_replica_id"


async def test_a_replica_shows_its_state(here: World, broker: MemoryBroker) -> None:
    state = ReplicaState(
        replica_id="r1", pool_id=POOL, ready=True, draining=False, queue_depth=1, tokens_in_flight=2,
        evictions_per_min=0.5, gpu_adapters=("v1",), ram_adapters=(),
    )  # fmt: skip

    async def answer(question: AskState, ids: Ids) -> ReplicaState:
        return state

    await broker.connect("replica_worker").serve(catalog.STATE, answer, "r1")
    shown = (await here.admin.get("/internal/replicas/r1/state")).json()
    assert (shown["gpu_adapters"], shown["tokens_in_flight"]) == (["v1"], 2)


async def test_c28_a_load_is_a_success_only_if_the_replica_says_so(here: World, broker: MemoryBroker) -> None:
    asked: list[LoadAdapter | UnloadAdapter] = []
    done = True

    async def hold(question: LoadAdapter | UnloadAdapter, ids: Ids) -> HoldResult:
        asked.append(question)
        return HoldResult(adapter_id=question.adapter_id, ok=done, tier="gpu", reason="as the test says")

    worker = broker.connect("replica_worker")
    await worker.serve(catalog.LOAD, hold, "r1")
    await worker.serve(catalog.UNLOAD, hold, "r1")
    announced = here.announce("v1")
    await here.post(announced)
    path = "/internal/replicas/r1/adapters/v1"
    assert (await here.admin.post(f"{path}/load")).json()["ok"] is True
    assert (await here.admin.post(f"{path}/load", json={"tier": "ram"})).status_code == 200
    assert (await here.admin.post(f"{path}/unload")).status_code == 200
    assert asked == [
        LoadAdapter(adapter_id="v1", digest=announced.checksum),
        LoadAdapter(adapter_id="v1", digest=announced.checksum, tier="ram"),
        UnloadAdapter(adapter_id="v1", digest=announced.checksum),
    ]
    done = False
    assert "as the test says" in error_of(await here.admin.post(f"{path}/load"), 409)["message"]
    assert error_of(await here.admin.post(f"{path}/load", json={"tier": "remote"}), 422)["param"] == "tier"


async def test_an_adapter_that_no_replica_may_hold_is_not_loaded(here: World) -> None:
    await here.post(here.announce("v1", rank=99))
    answer = await here.admin.post("/internal/replicas/r1/adapters/v1/load")
    assert error_of(answer, 409)["code"] == "adapter_not_active"


async def test_a_database_that_is_away_is_503(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(engine: AsyncEngine) -> None:
        raise OperationalError("SELECT 1", {}, Exception("planted"))

    monkeypatch.setattr(AsyncEngine, "begin", away)
    assert error_of(await here.admin.get("/internal/adapters"), 503)["code"] == "database_unavailable"
    assert error_of(await here.post(here.announce("v1")), 503)["code"] == "database_unavailable"
    assert "planted" in error_of(await here.admin.get("/readyz"), 503)["message"]
    monkeypatch.undo()
    await still_serves(here)


async def test_what_nobody_foresaw_is_500_without_its_details(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*arguments: Any) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("services.registry.io.adapter_rows.find", broken)
    error = error_of(await here.admin.get("/internal/adapters/v1"), 500)
    assert (error["code"], "secret" in error["message"]) == ("internal_error", False)

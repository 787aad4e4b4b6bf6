"""What the admin door refuses, each with the right status and one sentence: of one registry, which goes on serving."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from tests.support.adapter_files import BASE
from tests.support.registry_errors import error_of
from tests.support.registry_world import World, world

pytestmark = pytest.mark.asyncio(loop_scope="module")

BASE_PATH = f"/internal/base-models/{BASE.base_model_hash}"
_numbers = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Nobody else is on its bus."""
    broker = MemoryBroker()

    async def connect(service: str) -> Bus:
        return broker.connect(service)

    async with world(tmp_path_factory.mktemp("refusing"), connect, ask_timeout_s=0.2) as made:
        await made.prepare()
        yield made


async def still_serves(shared: World) -> None:
    number = next(_numbers)
    assert (await shared.post(shared.announce(f"right-{number}", seed=number))).status_code == 201


def body(shared: World, **changes: Any) -> dict[str, Any]:
    """The announcement of an adapter that nobody has named before."""
    return {**msgspec.to_builtins(shared.announce(f"wrong-{next(_numbers)}")), **changes}


def stranger(shared: World) -> httpx.AsyncClient:
    """Who brings no key."""
    transport = httpx.ASGITransport(app=shared.door, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://registry")


# -- who is let in -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic an-admin-key-for-tests", "Bearer \u00e4"]
)
async def test_without_the_admin_key_nothing_is_answered(shared: World, authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization.encode()}
    for method, path in (
        ("GET", "/internal/adapters"), ("POST", "/internal/adapters"), ("PUT", "/internal/aliases/acme/x"),
        ("GET", "/internal/keys"), ("POST", "/internal/tenants"), ("GET", "/internal/fleet"),
        ("PUT", f"/internal/uploads/{'0' * 64}"), ("PUT", BASE_PATH), ("DELETE", "/internal/keys/1"),
    ):  # fmt: skip
        async with stranger(shared) as unknown:
            answer = await unknown.request(method, path, headers=headers)
        assert error_of(answer, 401)["code"] == "invalid_admin_key"


async def test_no_key_and_a_wrong_key_are_told_apart(shared: World) -> None:
    async with stranger(shared) as unknown:
        nothing = error_of(await unknown.get("/internal/keys"), 401)["message"]
        wrong = error_of(await unknown.get("/internal/keys", headers={"authorization": "Bearer wrong"}), 401)["message"]
    assert nothing == "An admin key is needed: Authorization: Bearer <key>."
    assert wrong == "LORAFLEET_ADMIN_KEY is not this fleet's admin key."


async def test_a_method_that_is_not_served_is_405(shared: World) -> None:
    error_of(await shared.admin.delete("/internal/adapters"), 405)


# -- bodies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"{", b"", b"nonsense", b"\xff\xfe", b"[1,2", b'{"a": 1}}', b"[" * 100_000])
async def test_c81_what_is_no_json_is_400(shared: World, text: bytes) -> None:
    assert error_of(await shared.admin.post("/internal/adapters", content=text), 400)["code"] == "malformed_json"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rank": "8"}, "rank"),
        ({"rank": 8.5}, "rank"),
        ({"adapter_id": 5}, "adapter_id"),
        ({"adapter_id": None}, "adapter_id"),
        ({"target_modules": 5}, "target_modules"),
        ({"target_modules": ["q_proj", 1]}, "target_modules[1]"),
        ({"rank_pattern": {"q_proj": "x"}}, "rank_pattern[...]"),
        ({"use_rslora": 1}, "use_rslora"),
        ({"weight_uri": "x"}, "weight_uri"),
        ({"tenant": "acme"}, "tenant"),
    ],
)
async def test_a_field_that_is_wrong_or_unknown_is_named(shared: World, changes: dict[str, Any], field: str) -> None:
    error = error_of(await shared.admin.post("/internal/adapters", json=body(shared, **changes)), 422)
    assert (error["code"], error["param"]) == ("invalid_body", field)
    assert field in error["message"]
    await still_serves(shared)


async def test_a_missing_field_is_named(shared: World) -> None:
    said = body(shared)
    del said["checksum"]
    assert error_of(await shared.admin.post("/internal/adapters", json=said), 422)["param"] == "checksum"


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
async def test_unknown_fields_are_refused_everywhere(shared: World, method: str, path: str, said: Any) -> None:
    assert "unknown field" in error_of(await shared.admin.request(method, path, json=said), 422)["message"]


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
async def test_a_wrong_registration_is_422_with_its_defects(shared: World, changes: dict[str, Any], code: str) -> None:
    error = error_of(await shared.admin.post("/internal/adapters", json=body(shared, **changes)), 422)
    assert code in {defect["code"] for defect in error["defects"]}
    assert all(defect["message"].endswith((".", "…")) for defect in error["defects"])
    await still_serves(shared)


# -- everything else -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "..%2f..%2fetc", "A" * 64])
async def test_an_upload_is_named_by_its_checksum(shared: World, name: str) -> None:
    answer = await shared.admin.put(f"/internal/uploads/{name}", content=b"x")
    assert answer.status_code in (404, 422)


@pytest.mark.parametrize(
    "query", ["status=live", "limit=0", "limit=x", "limit=1001", "limit=-1", f"limit={'1' * 5000}"]
)
async def test_a_wrong_query_is_422(shared: World, query: str) -> None:
    assert error_of(await shared.admin.get(f"/internal/adapters?{query}"), 422)["code"] == "invalid_query"


@pytest.mark.parametrize(
    "alias",
    ["acme/a,b", "acme/a b", "acme/a|b", "acme/A", "acme", "acme/a/b", "acme/a:b:c", "acme/\u0430", "acme/\uff41"],
)
async def test_c62_an_alias_outside_the_grammar_is_422(shared: World, alias: str) -> None:
    answer = await shared.admin.put(f"/internal/aliases/{alias}", json={"adapter_id": "v1"})
    assert error_of(answer, 422)["code"] == "alias_invalid"


@pytest.mark.parametrize("said", [{"tenant_id": "Acme"}, {"tenant_id": "acme", "weight": 0}, {"tenant_id": ""}])
async def test_a_wrong_tenant_is_422(shared: World, said: dict[str, Any]) -> None:
    error_of(await shared.admin.post("/internal/tenants", json=said), 422)


async def test_a_key_needs_a_tenant(shared: World) -> None:
    answer = await shared.admin.post("/internal/keys", json={"tenant_id": "nobody"})
    assert error_of(answer, 422)["code"] == "tenant_unknown"


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"base_model_hash": "0" * 64}, 422, "invalid_body"),
        ({"layers": 0}, 422, "base_model_invalid"),
        ({"layers": 7}, 409, "base_model_differs"),
        ({"rank_classes": [8]}, 409, "rank_class_in_use"),
    ],
)
async def test_a_wrong_base_model_is_refused(shared: World, changes: dict[str, Any], status: int, code: str) -> None:
    answer = await shared.admin.put(BASE_PATH, json={**msgspec.to_builtins(BASE), **changes})
    assert error_of(answer, status)["code"] == code

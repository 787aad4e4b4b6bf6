"""The admin door: who is let in, and that every bad body or adapter gets the right status and one sentence."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE, announcement, file_of, peft_config, write_folder
from tests.support.registry_errors import error_of
from tests.support.registry_world import World

POOL = pool_id(BASE.base_model_hash, 8)
BASE_PATH = f"/internal/base-models/{BASE.base_model_hash}"


async def still_serves(alone: World) -> None:
    assert (await alone.post(alone.announce("after-all-that", seed=77))).status_code == 201


def body(alone: World, **changes: Any) -> dict[str, Any]:
    return {**msgspec.to_builtins(alone.announce("v1")), **changes}


# -- who is let in -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic an-admin-key-for-tests", "Bearer \u00e4"]
)
async def test_without_the_admin_key_nothing_is_answered(alone: World, authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization.encode()}
    del alone.admin.headers["authorization"]
    for method, path in (
        ("GET", "/internal/adapters"), ("POST", "/internal/adapters"), ("PUT", "/internal/aliases/acme/x"),
        ("GET", "/internal/keys"), ("POST", "/internal/tenants"), ("GET", "/internal/fleet"),
        ("PUT", f"/internal/uploads/{'0' * 64}"), ("PUT", BASE_PATH), ("DELETE", "/internal/keys/1"),
    ):  # fmt: skip
        answer = await alone.admin.request(method, path, headers=headers)
        assert error_of(answer, 401)["code"] == "invalid_admin_key"


async def test_no_key_and_a_wrong_key_are_told_apart(alone: World) -> None:
    del alone.admin.headers["authorization"]
    nothing = error_of(await alone.admin.get("/internal/keys"), 401)["message"]
    wrong = error_of(await alone.admin.get("/internal/keys", headers={"authorization": "Bearer wrong"}), 401)["message"]
    assert nothing == "An admin key is needed: Authorization: Bearer <key>."
    assert wrong == "LORAFLEET_ADMIN_KEY is not this fleet's admin key."


async def test_probes_need_no_key(alone: World) -> None:
    del alone.admin.headers["authorization"]
    assert (await alone.admin.get("/healthz")).status_code == 200
    assert (await alone.admin.get("/readyz")).status_code in (200, 503)
    assert "lorafleet_registry_registrations_total" in (await alone.admin.get("/metrics")).text
    for path in ("/docs", "/openapi.json", "/"):
        assert error_of(await alone.admin.get(path), 404)["code"] == "not_served"


async def test_a_method_that_is_not_served_is_405(alone: World) -> None:
    error_of(await alone.admin.delete("/internal/adapters"), 405)


# -- bodies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"{", b"", b"nonsense", b"\xff\xfe", b"[1,2", b'{"a": 1}}', b"[" * 100_000])
async def test_c81_what_is_no_json_is_400(alone: World, text: bytes) -> None:
    assert error_of(await alone.admin.post("/internal/adapters", content=text), 400)["code"] == "malformed_json"


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
async def test_a_field_that_is_wrong_or_unknown_is_named(alone: World, changes: dict[str, Any], field: str) -> None:
    error = error_of(await alone.admin.post("/internal/adapters", json=body(alone, **changes)), 422)
    assert (error["code"], error["param"]) == ("invalid_body", field)
    assert field in error["message"]
    await still_serves(alone)


async def test_a_missing_field_is_named(alone: World) -> None:
    said = body(alone)
    del said["checksum"]
    assert error_of(await alone.admin.post("/internal/adapters", json=said), 422)["param"] == "checksum"


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
async def test_unknown_fields_are_refused_everywhere(alone: World, method: str, path: str, said: Any) -> None:
    assert "unknown field" in error_of(await alone.admin.request(method, path, json=said), 422)["message"]


async def test_c81_a_large_body_is_413(alone: World) -> None:
    large = b'{"adapter_id": "' + b"x" * (2 << 20) + b'"}'
    assert error_of(await alone.admin.post("/internal/adapters", content=large), 413)["code"] == "body_too_large"

    async def unannounced() -> AsyncIterator[bytes]:
        for at in range(0, len(large), 1 << 16):
            yield large[at : at + (1 << 16)]

    error_of(await alone.admin.post("/internal/adapters", content=unannounced()), 413)
    await still_serves(alone)


# -- adapters that are wrong ---------------------------------------------------------------------------


async def test_a_right_adapter_is_201_and_then_200(alone: World) -> None:
    announced = alone.announce("v1")
    first, second = await alone.post(announced), await alone.post(announced)
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
async def test_a_wrong_registration_is_422_with_its_defects(alone: World, changes: dict[str, Any], code: str) -> None:
    error = error_of(await alone.admin.post("/internal/adapters", json=body(alone, **changes)), 422)
    assert code in {defect["code"] for defect in error["defects"]}
    assert all(defect["message"].endswith((".", "…")) for defect in error["defects"])
    await still_serves(alone)


async def test_a_wrong_registration_is_kept_with_its_defects(alone: World) -> None:
    error = error_of(await alone.admin.post("/internal/adapters", json=body(alone, rank=64, alpha=0)), 422)
    kept = (await alone.admin.get("/internal/adapters/v1")).json()
    assert (kept["status"], kept["defects"]) == ("rejected", error["defects"])
    assert "more)" in error["message"]


@pytest.mark.parametrize("length", [0, 8, 0.5, -1])
async def test_c51_a_truncated_file_is_refused(alone: World, length: float) -> None:
    file = file_of()
    cut = file[: int(len(file) * length) if isinstance(length, float) else length]
    announced = write_folder(alone.folder / "inbox" / "v1", cut, announcement(cut, adapter_id="v1"))
    error = error_of(await alone.post(announced), 422)
    assert "not_safetensors" in {defect["code"] for defect in error["defects"]}
    assert not list((alone.folder / "store").rglob("*.safetensors"))


async def test_c56_a_pickle_is_refused_and_never_opened(alone: World) -> None:
    folder = alone.folder / "inbox" / "v1"
    folder.mkdir(parents=True)
    fifo = folder / "adapter_model.bin"
    os.mkfifo(fifo)  # whoever opened it would never return
    for uri in (folder.as_uri(), fifo.as_uri()):
        announced = announcement(b"", adapter_id="v1", weights_uri=uri)
        assert "pickle_refused" in {one["code"] for one in error_of(await alone.post(announced), 422)["defects"]}


async def test_c54_a_link_out_of_the_inbox_is_refused(alone: World) -> None:
    announced = alone.announce("v1")
    weights = alone.folder / "inbox" / "v1" / "adapter_model.safetensors"
    weights.rename(alone.folder / "outside.safetensors")
    weights.symlink_to(alone.folder / "outside.safetensors")
    assert error_of(await alone.post(announced), 422)["code"] == "symlink_refused"


async def test_c43_a_dora_config_is_refused(alone: World) -> None:
    announced = alone.announce("v1")
    config = alone.folder / "inbox" / "v1" / "adapter_config.json"
    config.write_bytes(peft_config(announced, use_dora=True))
    assert error_of(await alone.post(announced), 422)["code"] == "dora"

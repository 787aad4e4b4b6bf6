"""The admin door: what it serves, and how it meets bodies and files that cost more than a sentence."""

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


async def still_serves(alone: World) -> None:
    assert (await alone.post(alone.announce("after-all-that", seed=77))).status_code == 201


def body(alone: World, **changes: Any) -> dict[str, Any]:
    return {**msgspec.to_builtins(alone.announce("v1")), **changes}


async def test_probes_need_no_key(alone: World) -> None:
    del alone.admin.headers["authorization"]
    assert (await alone.admin.get("/healthz")).status_code == 200
    assert (await alone.admin.get("/readyz")).status_code in (200, 503)
    assert "lorafleet_registry_registrations_total" in (await alone.admin.get("/metrics")).text
    for path in ("/docs", "/openapi.json", "/"):
        assert error_of(await alone.admin.get(path), 404)["code"] == "not_served"


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

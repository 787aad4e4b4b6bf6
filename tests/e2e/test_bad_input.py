"""Whatever a client sends, it gets one clear sentence and the right status, and the fleet goes on serving."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from openai import OpenAI

from infra.local.temporary import TemporaryFleet
from tests.support.asking import wait_answers
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually

HELLO = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def door(fleet: TemporaryFleet) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fleet.connection.url, timeout=30.0, trust_env=False) as client:
        yield client


@pytest.fixture(autouse=True)
def goes_on_serving(acme: OpenAI, canaries: dict[str, str]) -> Iterator[None]:
    """After each of these tests an adapter still answers."""
    yield
    alias, marker = next(iter(canaries.items()))
    wait_answers(acme, alias, marker)


def envelope(answer: httpx.Response) -> dict[str, Any]:
    """The one error of an answer, checked for its form."""
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert "\n" not in error["message"]
    assert error["message"].strip()
    return error


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b'{"model": 5, "messages": []}', 400), (b'{"model": "m", "messages": "x"}', 400)],
)
def test_c81_a_body_that_is_no_request(door: httpx.Client, acme: OpenAI, body: bytes, status: int) -> None:
    answer = door.post("/v1/chat/completions", content=body, headers={"Authorization": f"Bearer {acme.api_key}"})
    assert answer.status_code == status
    envelope(answer)


def test_c81_twenty_megabytes_are_refused_once(door: httpx.Client, acme: OpenAI) -> None:
    headers = {"Authorization": f"Bearer {acme.api_key}"}
    answer = door.post("/v1/chat/completions", content=b" " * 20_000_000, headers=headers)
    assert answer.status_code == 413
    envelope(answer)


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer lf-wrong"}, {"Authorization": "Basic eDp5"}])
def test_no_key_or_a_wrong_one(door: httpx.Client, header: dict[str, str]) -> None:
    answer = door.post("/v1/chat/completions", json={"model": "x", "messages": HELLO}, headers=header)
    assert answer.status_code == 401
    assert envelope(answer)["code"] == "invalid_api_key"


def test_c59_foreign_and_unknown_aliases_are_the_same_404(
    door: httpx.Client, pipeline: Pipeline, canaries: dict[str, str], canary_folders: dict[str, Path]
) -> None:
    headers = {"Authorization": f"Bearer {pipeline.key('globex', may_call_base=False)}"}
    pipeline.bring(next(iter(canary_folders.values())), "globex-own", "globex/own:prod")

    def listed() -> list[str]:
        answer = door.get("/v1/models", headers=headers)
        return [model["id"] for model in answer.json()["data"]] if answer.status_code == 200 else []

    eventually(lambda: listed() == ["globex/own:prod"], "the gateway to know the key and the alias, and no other")

    def ask(model: str) -> httpx.Response:
        return door.post("/v1/chat/completions", json={"model": model, "messages": HELLO}, headers=headers)

    foreign_alias = next(iter(canaries))
    foreign, unknown = ask(foreign_alias), ask("globex/none:prod")
    assert foreign.status_code == unknown.status_code == 404
    assert envelope(foreign)["code"] == "model_not_found"
    same = foreign.text.replace(foreign_alias, "ALIAS"), unknown.text.replace("globex/none:prod", "ALIAS")
    assert same[0] == same[1]
    assert ask("globex/own:prod").status_code == 200
    assert {door.get(f"/v1/models/{name}", headers=headers).status_code for name in canaries} == {404}


def _refused(pipeline: Pipeline, folder: Path, **changes: Any) -> tuple[int, dict[str, Any]]:
    message = pipeline.message(folder, changes.pop("adapter_id", "bad-adapter"), **changes)
    answer = pipeline.admin.post("/internal/adapters", content=msgspec.json.encode(message))
    error: dict[str, Any] = answer.json()["error"]
    return answer.status_code, error


def test_base_hash_mismatch(pipeline: Pipeline, canary_folders: dict[str, Path]) -> None:
    status, error = _refused(pipeline, next(iter(canary_folders.values())), base_model_hash="0" * 64)
    assert status == 422
    assert "0" * 12 in error["defects"][0]["message"]


def test_c46_rank_64_is_refused_with_both_numbers(pipeline: Pipeline, canary_folders: dict[str, Path]) -> None:
    status, error = _refused(pipeline, next(iter(canary_folders.values())), rank=64)
    assert status == 422
    assert any("64" in defect["message"] and "16" in defect["message"] for defect in error["defects"])


def test_wrong_checksum(pipeline: Pipeline, canary_folders: dict[str, Path]) -> None:
    status, error = _refused(pipeline, next(iter(canary_folders.values())), checksum="1" * 64)
    assert status == 422
    assert any(defect["field"] == "checksum" for defect in error["defects"])


@pytest.mark.parametrize("keep", [0, 8, 0.5, -1])
def test_c51_truncated_safetensors(
    pipeline: Pipeline, canary_folders: dict[str, Path], tmp_path: Path, keep: float
) -> None:
    source = (next(iter(canary_folders.values())) / "adapter_model.safetensors").read_bytes()
    kept = source[: int(len(source) * keep)] if isinstance(keep, float) else source[:keep]
    folder = _peft_copy(next(iter(canary_folders.values())), tmp_path, "adapter_model.safetensors", kept)
    checksum = hashlib.sha256(kept).hexdigest()
    status, _ = _refused(pipeline, folder, adapter_id=f"cut-{abs(hash(keep)) % 97}", checksum=checksum)
    assert status == 422


def test_c56_a_pickle_is_refused_unopened(pipeline: Pipeline, canary_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = _peft_copy(next(iter(canary_folders.values())), tmp_path, "adapter_model.bin", b"\x80\x04cos\nsystem\n.")
    message = pipeline.message(folder, "pickled")
    uri = message.weights_uri.replace("adapter_model.safetensors", "adapter_model.bin")
    changed = msgspec.structs.replace(message, weights_uri=uri)
    answer = pipeline.admin.post("/internal/adapters", content=msgspec.json.encode(changed))
    assert answer.status_code == 422
    assert ".bin" in answer.text


@pytest.mark.parametrize("adapter_id", ["../../etc", "/etc/x", "a/../b", "a\0b", "x" * 4096])
def test_c54_names_that_would_be_paths(pipeline: Pipeline, canary_folders: dict[str, Path], adapter_id: str) -> None:
    message = pipeline.message(next(iter(canary_folders.values())), "honest-name")
    answer = pipeline.admin.post(
        "/internal/adapters", content=msgspec.json.encode(msgspec.structs.replace(message, adapter_id=adapter_id))
    )
    assert answer.status_code == 422
    assert answer.json()["error"]["defects"][0]["field"] == "adapter_id"


def test_an_unknown_field_of_a_registration_is_named(pipeline: Pipeline, canary_folders: dict[str, Path]) -> None:
    message = pipeline.message(next(iter(canary_folders.values())), "extra-field")
    body = {**msgspec.to_builtins(message), "rnak": 8}
    answer = pipeline.admin.post("/internal/adapters", json=body)
    assert answer.status_code == 422
    assert "rnak" in answer.json()["error"]["message"]


def test_internal_needs_the_admin_key(fleet: TemporaryFleet, acme: OpenAI) -> None:
    with httpx.Client(base_url=fleet.connection.admin_url, trust_env=False) as client:
        for headers in ({}, {"Authorization": f"Bearer {acme.api_key}"}):
            assert client.get("/internal/adapters", headers=headers).status_code == 401


def _peft_copy(folder: Path, target: Path, name: str, content: bytes) -> Path:
    """The PEFT folder with one file more, or changed."""
    copy = target / "peft"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / name).write_bytes(content)
    return copy

"""Weights that a pipeline left in a bucket: read there, copied, and nothing else in it looked at."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.messages.adapters import AdapterRegistered
from shared.store.port import weights_key
from tests.integration.store.bucket import Bucket
from tests.integration.store.test_registry_on_s3 import place
from tests.support.adapter_files import announcement, file_of, peft_config
from tests.support.long_file import LAYER_BYTES, wide_base, write_long_file
from tests.support.registry_errors import error_of
from tests.support.registry_world import World
from tests.support.s3_server import BUCKET
from tests.support.scripted_http import Answer, Asked, answering

FILE = file_of()
FLAT_BYTES = 8 << 20


def allowing(bucket: Bucket, **changes: Any) -> dict[str, Any]:
    """Settings of a registry whose own store is a folder."""
    access = msgspec.structs.asdict(bucket.server.access)
    return {**access, "weights_prefixes": (f"s3://{BUCKET}/{bucket.prefix}",), **changes}


@pytest.fixture
async def here(tmp_path: Path, bucket: Bucket) -> AsyncIterator[World]:
    async with place(tmp_path).registry(**allowing(bucket)) as made:
        await made.prepare()
        yield made


async def put(bucket: Bucket, key: str, content: bytes) -> None:
    await bucket.store().put(key, _pieces([content]), hashlib.sha256(content).hexdigest())


async def left(bucket: Bucket, name: str) -> AdapterRegistered:
    """A PEFT folder in the bucket, and the announcement that names it."""
    announced = announcement(FILE, adapter_id=name, weights_uri=f"s3://{BUCKET}/{bucket.prefix}/{name}")
    await put(bucket, f"{name}/adapter_model.safetensors", FILE)
    await put(bucket, f"{name}/adapter_config.json", peft_config(announced))
    return announced


async def _pieces(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def test_a_folder_in_a_bucket_registers_and_its_file_is_copied(here: World, bucket: Bucket) -> None:
    announced = await left(bucket, "v1")
    answer = await here.post(announced)
    assert answer.status_code == 201, answer.text
    stored = here.folder / "store" / weights_key(announced.checksum)
    assert stored.read_bytes() == FILE


async def test_one_file_registers_and_its_config_is_read(here: World, bucket: Bucket) -> None:
    announced = await left(bucket, "v1")
    named = msgspec.structs.replace(announced, weights_uri=f"{announced.weights_uri}/adapter_model.safetensors")
    await put(bucket, "v1/adapter_config.json", peft_config(announced, r=8))
    assert error_of(await here.post(named), 422)["code"] == "config_disagrees"
    await bucket.store().delete("v1/adapter_config.json")
    assert (await here.post(named)).status_code == 201


async def test_what_is_not_there_and_what_is_not_allowed_are_told_apart(here: World, bucket: Bucket) -> None:
    announced = await left(bucket, "v1")
    await put(bucket, "pickled/adapter_model.bin", b"cos\nsystem\n(S'touch pwned'\ntR.")
    prefix = f"s3://{BUCKET}/{bucket.prefix}"
    for uri, code in (
        (f"{prefix}/v2", "weights_missing"),
        (f"{prefix}/v2.safetensors", "weights_missing"),
        (f"{prefix}/pickled", "pickle_refused"),
        (f"{prefix}/pickled/adapter_model.bin", "pickle_refused"),
        (f"{prefix}/../other/v1", "weights_uri_refused"),
        (f"s3://{BUCKET}/other/v1", "weights_uri_refused"),
    ):
        refused = error_of(await here.post(msgspec.structs.replace(announced, weights_uri=uri)), 422)
        assert [defect["code"] for defect in refused["defects"]] == [code], uri


async def test_a_bucket_that_is_away_says_nothing_of_the_adapter(tmp_path: Path, bucket: Bucket) -> None:
    announced = msgspec.structs.replace(await left(bucket, "v1"), weights_uri="s3://nowhere/v1")
    async with place(tmp_path).registry(**allowing(bucket, weights_prefixes=("s3://nowhere",))) as here:
        await here.prepare()
        assert error_of(await here.post(announced), 503)["code"] == "source_unavailable"
        assert await here.status("v1") == "registered"


@pytest.mark.parametrize("status", [301, 307])
async def test_a_bucket_that_sends_elsewhere_is_not_followed(tmp_path: Path, bucket: Bucket, status: int) -> None:
    strangers: list[Asked] = []

    def stranger(asked: Asked) -> Answer:
        strangers.append(asked)
        return Answer(200, FILE)

    with answering(stranger) as elsewhere:
        moved = {"Location": f"{elsewhere}/models/v1", "x-amz-bucket-region": "eu-elsewhere-1"}
        body = b"<Error><Code>PermanentRedirect</Code><Message>Go elsewhere.</Message></Error>"
        with answering(lambda _: Answer(status, body, moved)) as url:
            changes = allowing(bucket, s3_endpoint_url=url, weights_prefixes=("s3://models",))
            async with place(tmp_path).registry(**changes) as here:
                await here.prepare()
                announced = announcement(FILE, weights_uri="s3://models/v1")
                assert error_of(await here.post(announced), 503)["code"] == "source_unavailable"
    assert strangers == []


async def test_memory_stays_flat_while_a_long_object_is_checked_and_copied(tmp_path: Path, bucket: Bucket) -> None:
    announced, base = write_long_file(tmp_path / "long.safetensors"), wide_base()
    with (tmp_path / "long.safetensors").open("rb") as file:
        await bucket.store().put("long.safetensors", _pieces(iter(lambda: file.read(1 << 20), b"")), announced.checksum)
    async with place(tmp_path).registry(**allowing(bucket)) as here:
        await here.prepare()
        path = f"/internal/base-models/{base.base_model_hash}"
        assert (await here.admin.put(path, json=msgspec.to_builtins(base))).is_success
        assert (await here.post(await left(bucket, "v1"))).status_code == 201  # what is made once is made by now
        tracemalloc.start()
        uri = f"s3://{BUCKET}/{bucket.prefix}/long.safetensors"
        answer = await here.post(msgspec.structs.replace(announced, weights_uri=uri))
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert answer.status_code == 201, answer.text
    assert answer.json()["size_bytes"] > LAYER_BYTES
    assert peak_bytes < FLAT_BYTES

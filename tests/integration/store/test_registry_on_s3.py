"""A registry that keeps its files in a bucket."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import ClientDisconnect

from services.registry.io.drafts import Draft
from services.registry.registration.arriving import PART_BYTES
from shared.runtime.settings import SettingsError
from shared.store.access import S3Access
from shared.store.port import StoreUnavailable, weights_key
from shared.store.s3 import S3Store
from shared.store.s3_requests import put_whole
from tests.integration.store.bucket import Bucket
from tests.integration.store_suite import chunks_of, digest_of, read_all
from tests.support.adapter_files import Recipe, announcement, file_of
from tests.support.registry_place import Place
from tests.support.registry_watch import eventually
from tests.support.s3_server import BUCKET


def place(folder: Path) -> Place:
    return Place(folder, f"sqlite+aiosqlite:///{folder}/registry.db")


def said(bucket: Bucket, name: str = BUCKET) -> dict[str, Any]:
    return {"store_url": f"s3://{name}/{bucket.prefix}", **msgspec.structs.asdict(bucket.server.access)}


async def test_an_upload_becomes_a_verified_object(tmp_path: Path, bucket: Bucket) -> None:
    file = file_of(Recipe())
    digest = hashlib.sha256(file).hexdigest()
    async with place(tmp_path).registry(**said(bucket)) as here:
        await here.prepare()
        uploaded = await here.admin.put(f"/internal/uploads/{digest}", content=file)
        assert bucket.files() == [weights_key(digest)]
        uri = uploaded.json()["weights_uri"]
        assert (await here.post(announcement(file, adapter_id="v1", weights_uri=uri))).status_code == 201
    assert bucket.files() == [weights_key(digest)]
    assert await read_all(bucket.store(), weights_key(digest)) == file


async def test_the_bytes_of_an_upload_cross_the_link_to_the_store_once(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none of them comes back: what was learnt of them on their way here is enough."""
    adopt, file, sent = S3Store.adopt, file_of(Recipe()), list[str]()
    path = f"/internal/uploads/{hashlib.sha256(file).hexdigest()}"

    async def noted(store: S3Store, key: str, draft: Path, digest: str) -> str | None:
        sent.append(key)
        return await adopt(store, key, draft, digest)

    async def half() -> AsyncIterator[bytes]:
        yield file[:100]
        raise ClientDisconnect

    monkeypatch.setattr(S3Store, "adopt", noted)
    monkeypatch.setattr(S3Store, "put", None)
    monkeypatch.setattr(S3Store, "read", None)
    async with place(tmp_path).registry(**said(bucket)) as here:
        await here.prepare()
        await here.admin.put(path, content=half())
        whole = await here.admin.put(path, content=file[100:], headers={"upload-offset": "100"})
        [key] = bucket.files()
        before = await bucket.store().listed("adapters")
        announced = announcement(file, adapter_id="v1", weights_uri=whole.json()["weights_uri"])
        assert (await here.post(announced)).status_code == 201
    assert (sent, await bucket.store().listed("adapters")) == ([key], before)


async def test_an_upload_that_goes_in_one_request_is_on_no_disk_before_and_is_not_read_again(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_of(Recipe())
    for name in ("adopt", "put", "read"):
        monkeypatch.setattr(S3Store, name, None)
    monkeypatch.setattr(Draft, "append", None)
    async with place(tmp_path).registry(**said(bucket)) as here:
        await here.prepare()
        sent = await here.admin.put(f"/internal/uploads/{hashlib.sha256(file).hexdigest()}", content=file)
        announced = announcement(file, adapter_id="v1", weights_uri=sent.json()["weights_uri"])
        assert (await here.post(announced)).status_code == 201
    assert bucket.files() == [weights_key(hashlib.sha256(file).hexdigest())]


async def test_an_upload_that_the_bucket_did_not_take_goes_on_with_nothing_sent_twice(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = os.urandom(PART_BYTES + 9000)
    path = f"/internal/uploads/{hashlib.sha256(file).hexdigest()}"

    async def away(*_: object) -> str:
        raise StoreUnavailable("no answer")

    async with place(tmp_path).registry(**said(bucket)) as here:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(S3Store, "take", away)
            assert (await here.admin.put(path, content=file)).status_code == 503
        offset = (await here.admin.head(path)).headers["upload-offset"]
        assert offset == str(len(file))
        assert (await here.admin.put(path, content=b"", headers={"upload-offset": offset})).status_code == 201
    assert await read_all(bucket.store(), bucket.files()[0]) == file


async def test_an_upload_goes_on_at_another_registry_with_the_same_folder_for_drafts(
    tmp_path: Path, bucket: Bucket
) -> None:
    file = os.urandom(PART_BYTES + 9000)
    path = f"/internal/uploads/{hashlib.sha256(file).hexdigest()}"
    shared = {**said(bucket), "drafts_folder": tmp_path / "drafts"}

    async def broken() -> AsyncIterator[bytes]:
        yield file[: PART_BYTES + 100]
        raise ClientDisconnect

    async with place(tmp_path / "one").registry(**shared) as here:
        assert (await here.admin.put(path, content=broken())).status_code == 400
    assert bucket.files() == []
    async with place(tmp_path / "other").registry(**shared) as here:
        offset = (await here.admin.head(path)).headers["upload-offset"]
        assert int(offset) == PART_BYTES + 100
        whole = await here.admin.put(path, content=file[int(offset) :], headers={"upload-offset": offset})
        assert whole.status_code == 201
    [key] = bucket.files()
    assert await read_all(bucket.store(), key) == file
    assert list((tmp_path / "drafts").iterdir()) == []


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_is_on_its_way_into_the_bucket_is_no_buffer_for_others(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """Its thread sends it to the end, whether or not somebody still waits for it."""
    under_way, may_go_on = threading.Event(), threading.Event()
    first, second = os.urandom(PART_BYTES), os.urandom(PART_BYTES)

    def slow(client: Any, where: Mapping[str, str], content: bytearray, digest: str) -> str:
        if digest == digest_of(first):
            under_way.set()
            may_go_on.wait(20)
        return put_whole(client, where, content, digest)

    async def arrived() -> bool:
        return len(bucket.files()) == 2

    monkeypatch.setattr("shared.store.s3.put_whole", slow)
    async with place(tmp_path).registry(**said(bucket)) as here:
        with here.registry.uploads._memory.share():  # somebody else is uploading, so that buffers are kept
            sending = asyncio.create_task(here.registry.uploads.receive(digest_of(first), 0, chunks_of(first)))
            await asyncio.to_thread(under_way.wait, 20)
            if is_cancelled:
                sending.cancel()
                await asyncio.wait([sending])
            await here.registry.uploads.receive(digest_of(second), 0, chunks_of(second))
        may_go_on.set()
        await asyncio.wait([sending])
        await eventually(arrived)
    for content in (first, second):
        assert await read_all(bucket.store(), weights_key(digest_of(content))) == content


async def test_a_bucket_that_is_none_is_a_store_that_is_away(tmp_path: Path, bucket: Bucket) -> None:
    async with place(tmp_path).registry(**said(bucket, "nowhere")) as here:
        await here.prepare()
        answer = await here.post(here.announce("v1"))
        assert answer.status_code == 503
        assert answer.json()["error"] == {
            **answer.json()["error"],
            "code": "store_unavailable",
            "message": "The store does not answer: the store has no bucket nowhere.",
        }


async def test_settings_of_no_store_are_named(tmp_path: Path) -> None:
    half = S3Access(s3_access_key_id="id")
    with pytest.raises(SettingsError, match=r"LORAFLEET_REGISTRY_STORE_URL does not fit: .*belong together"):
        async with place(tmp_path).registry(store_url="s3://bucket", **msgspec.structs.asdict(half)):
            pass

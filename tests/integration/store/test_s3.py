"""The store in a bucket of a real server: the common suite, and what only S3 can do."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import AsyncIterator

import msgspec
import pytest

from shared.store.port import DigestMismatch, ObjectStore, StoreUnavailable, weights_key
from shared.store.s3 import LinkLimits, S3Store, connect
from tests.integration.store.bucket import Bucket, Waits
from tests.integration.store_suite import LARGE, SMALL, StoreSuite, chunks_of, digest_of, put, read_all
from tests.support.s3_server import BUCKET

KEY = weights_key(digest_of(SMALL))


@pytest.fixture
def store(bucket: Bucket) -> ObjectStore:
    return bucket.store()


class TestS3Store(StoreSuite):
    pass


async def test_objects_lie_below_the_prefix(bucket: Bucket) -> None:
    store = bucket.store()
    for payload in (SMALL, LARGE):
        await put(store, payload)
    assert bucket.files() == sorted(weights_key(digest_of(payload)) for payload in (SMALL, LARGE))


async def test_c26_a_prefix_and_a_key_never_make_another_ones_name(bucket: Bucket) -> None:
    first, second = (S3Store(connect(bucket.server.access), BUCKET, f"{bucket.prefix}-{name}") for name in ("a", "a-b"))
    await first.put("b_c", chunks_of(SMALL), digest_of(SMALL))
    await second.put("c", chunks_of(b"other"), digest_of(b"other"))
    assert await read_all(first, "b_c") == SMALL
    assert await read_all(second, "c") == b"other"


async def test_failed_puts_leave_no_part_behind(bucket: Bucket) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield LARGE
        raise ConnectionResetError

    store = bucket.store()
    for chunks, digest in ((broken(), digest_of(LARGE)), (chunks_of(LARGE), digest_of(b"other"))):
        with pytest.raises((ConnectionResetError, DigestMismatch)):
            await store.put(weights_key(digest), chunks, digest)
    assert bucket.files() == []


async def test_parts_that_a_killed_put_sent_are_removed_once_they_are_old(bucket: Bucket) -> None:
    """And nobody else's: a bucket may have other writers."""
    client, store = connect(bucket.server.access), bucket.store()

    def begun(folder: str) -> dict[str, str]:
        place = {"Bucket": BUCKET, "Key": f"{bucket.prefix}/{folder}/x"}
        return {**place, "UploadId": client.create_multipart_upload(**place)["UploadId"]}

    ours, other = begun("adapters"), begun("adapters-of-others")
    assert await store.prune("adapters", time.time() - 3600) == 0
    client.upload_part(**ours, PartNumber=1, Body=SMALL)
    assert await store.prune("adapters", time.time() + 3600) == 1
    client.upload_part(**other, PartNumber=1, Body=SMALL)
    with pytest.raises(client.exceptions.NoSuchUpload):
        client.upload_part(**ours, PartNumber=1, Body=SMALL)


async def fail(store: S3Store) -> str:
    """Whatever is asked of it, the same sentence; returns it, with everything that a log could show."""
    sentences = set()
    for request in (store.exists(KEY), read_all(store, KEY), put(store, SMALL), put(store, LARGE)):
        with pytest.raises(StoreUnavailable) as failed:
            await request
        sentences.add(str(failed.value))
    assert len(sentences) == 1
    return "".join(traceback.format_exception(failed.value))


async def test_wrong_credentials_are_named_and_not_shown(bucket: Bucket) -> None:
    access = msgspec.structs.replace(bucket.server.access, s3_secret_access_key="quite-another-secret")
    waits = Waits()
    shown = await fail(S3Store(connect(access), BUCKET, bucket.prefix, waits.patience()))
    assert f"the store refuses the credentials for bucket {BUCKET} (SignatureDoesNotMatch)" in shown
    assert "quite-another-secret" not in shown
    assert waits.waits_s == []


async def test_no_credentials_at_all_are_told(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    access = msgspec.structs.replace(bucket.server.access, s3_access_key_id=None, s3_secret_access_key=None)
    assert f"no credentials are set for bucket {BUCKET}" in await fail(S3Store(connect(access), BUCKET))


async def test_a_missing_bucket_is_no_missing_object(bucket: Bucket) -> None:
    assert "the store has no bucket nowhere" in await fail(S3Store(connect(bucket.server.access), "nowhere"))


async def test_no_route_is_tried_again_and_told(bucket: Bucket) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        waits = Waits()
        client = connect(msgspec.structs.replace(bucket.server.access, s3_endpoint_url=url), LinkLimits())
        store = S3Store(client, BUCKET, patience=waits.patience(attempts=3))
        with pytest.raises(StoreUnavailable, match=f"the store of bucket {BUCKET} cannot be reached"):
            await read_all(store, KEY)
    assert waits.waits_s == [1.0, 2.0]

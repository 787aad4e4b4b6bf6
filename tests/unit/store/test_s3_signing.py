"""What a body is signed with: the SHA-256 that is known of it, and of every other body its own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shared.store.access import S3Access
from shared.store.patience import Patience
from shared.store.port import DigestMismatch
from shared.store.s3 import S3Store
from shared.store.s3_requests import put_whole
from shared.store.s3_signing import body_has
from tests.integration.store_suite import SMALL, chunks_of, digest_of
from tests.support.s3_unsent import NOWHERE, unsent_client

PLACE = {"Bucket": "bucket", "Key": "adapters/x"}
EMPTY = digest_of(b"")
_SIGNED = "x-amz-content-sha256"
_KEYS = {"s3_access_key_id": "id", "s3_secret_access_key": "secret"}


@pytest.fixture
def sent() -> list[Any]:
    return []


@pytest.fixture
def client(sent: list[Any]) -> Any:
    return unsent_client(sent)


def signed(request: Any) -> object:
    value = request.headers[_SIGNED]
    return value.decode() if isinstance(value, bytes) else value


async def test_a_whole_object_is_signed_with_its_digest_and_hashed_no_more(
    client: Any, sent: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hashing(_: object, request: object) -> str:
        raise AssertionError(f"the body is hashed once more: {request}")

    monkeypatch.setattr("botocore.auth.S3SigV4Auth.payload", hashing)
    store, digest = S3Store(client, "bucket", patience=Patience(attempts=1)), digest_of(SMALL)
    (tmp_path / "draft").write_bytes(SMALL)
    await store.take("adapters/x", bytearray(SMALL), digest)
    await store.put("adapters/x", chunks_of(SMALL), digest)
    await store.adopt("adapters/x", tmp_path / "draft", digest)
    assert [signed(request) for request in sent] == [digest] * 3
    assert all(b"x-amz-content-sha256" in request.headers["Authorization"] for request in sent)


def test_every_other_request_has_its_own(client: Any, sent: list[Any]) -> None:
    put_whole(client, PLACE, bytearray(b"one"), digest_of(b"one"))
    client.put_object(**PLACE, Body=bytearray(b"other"))
    client.get_object(**PLACE)
    assert [signed(request) for request in sent] == [digest_of(b"one"), digest_of(b"other"), EMPTY]


def test_what_botocore_asks_in_the_middle_has_its_own(sent: list[Any]) -> None:
    """Where a bucket is, once a server has said that it is elsewhere."""
    one = digest_of(b"one")
    put_whole(unsent_client(sent, S3Access(**_KEYS)), {"Bucket": "moved", "Key": "x"}, bytearray(b"one"), one)
    assert [(request.method, signed(request)) for request in sent] == [("PUT", one), ("HEAD", EMPTY), ("PUT", one)]


@pytest.mark.parametrize(
    ("access", "token"),
    [
        (NOWHERE, None),
        (S3Access(s3_region="us-west-2"), b"token"),
        (S3Access(s3_region="us-west-2", s3_addressing="virtual"), b"token"),
    ],
    ids=["an endpoint's", "Amazon's", "Amazon's by host"],
)
def test_the_signature_is_the_one_that_botocore_makes(
    access: S3Access, token: bytes | None, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "secret", "SESSION_TOKEN": "token"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: datetime(2026, 12, 1, tzinfo=UTC))
    client = unsent_client(sent, access)
    put_whole(client, PLACE, bytearray(b"one"), digest_of(b"one"))
    client.put_object(**PLACE, Body=bytearray(b"one"))
    ours, usual = ((request.url, request.headers["Authorization"]) for request in sent)
    assert ours == usual
    assert [request.headers.get("X-Amz-Security-Token") for request in sent] == [token, token]


def test_an_object_is_known_by_what_the_server_is_told_of_it(client: Any, sent: list[Any]) -> None:
    """So bytes that changed since they were hashed are refused by a server that compares them, as Amazon does."""
    put_whole(client, PLACE, bytearray(b"changed since"), digest_of(b"as hashed"))
    assert [(bytes(request.body), signed(request)) for request in sent] == [(b"changed since", digest_of(b"as hashed"))]


async def test_what_one_thread_knows_is_nobody_elses(client: Any, sent: list[Any]) -> None:
    def other() -> None:
        client.put_object(**PLACE, Body=bytearray(b"other"))

    with body_has(digest_of(b"one")):
        await asyncio.get_running_loop().run_in_executor(None, other)
    assert [signed(request) for request in sent] == [digest_of(b"other")]


async def test_another_digest_than_that_of_the_bytes_is_signed_for_nobody(client: Any, sent: list[Any]) -> None:
    with pytest.raises(DigestMismatch):
        await S3Store(client, "bucket").put("adapters/x", chunks_of(SMALL), digest_of(b"other"))
    assert sent == []

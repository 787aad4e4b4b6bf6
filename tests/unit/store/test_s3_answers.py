"""Answers that a right server does not give: each is noticed, and none becomes part of an object."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import SSLError

from shared.store.patience import Patience
from shared.store.port import ObjectChanged, StoreUnavailable, weights_key
from shared.store.s3 import S3Store
from shared.store.s3_upload import Upload
from tests.integration.store_suite import SMALL, chunks_of, digest_of, read_all
from tests.support.s3_failure import refused
from tests.support.waiting import eventually

KEY = weights_key(digest_of(SMALL))


async def at_once(seconds: float) -> None:
    pass


class Body:
    """A body that ends with an exception, or as it should."""

    def __init__(self, content: bytes, error: Exception | None = None) -> None:
        self._pieces: list[bytes | Exception] = [content, error or b""]
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        piece = self._pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        self.closed = True


class Client:
    """Gives the answers of a test, one after another, to every request there is; a failure is raised."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        def request(**said: Any) -> dict[str, Any]:
            self.asked.append((name, said))
            given = self._answers.pop(0)
            if isinstance(given, Exception):
                raise given
            return given

        return request


def store(client: Client) -> S3Store:
    return S3Store(client, "bucket", patience=Patience(attempts=2, sleep_s=at_once))


def answer(content: bytes, error: Exception | None = None, **headers: Any) -> dict[str, Any]:
    return {"Body": Body(content, error), "ETag": '"1"', "ContentLength": len(SMALL), **headers}


async def test_a_link_whose_encryption_breaks_is_tried_again() -> None:
    rest = answer(SMALL[5:], ContentRange=f"bytes 5-13/{len(SMALL)}", ContentLength=len(SMALL) - 5)
    client = Client(broken := answer(SMALL[:5], SSLError("bad record")), rest)
    assert await read_all(store(client), KEY) == SMALL
    assert [said.get("Range") for _, said in client.asked] == [None, "bytes=5-"]
    assert broken["Body"].closed


async def test_a_server_that_knows_no_ranges_is_not_taken_at_its_word() -> None:
    client = Client(whole := answer(SMALL))
    with pytest.raises(StoreUnavailable, match="without regard for ranges"):
        await read_all(store(client), KEY, 5)
    assert whole["Body"].closed


async def test_a_server_that_tells_no_length_is_not_believed_to_have_sent_all() -> None:
    endless = answer(SMALL)
    del endless["ContentLength"]
    with pytest.raises(StoreUnavailable, match="does not say how long"):
        await read_all(store(Client(endless)), KEY)
    assert endless["Body"].closed


async def test_without_etags_the_length_tells_two_versions_apart() -> None:
    first = answer(SMALL[:5], SSLError("bad record"), ETag="")
    client = Client(first, answer(b"other", ETag="", ContentRange="bytes 5-9/10", ContentLength=5))
    with pytest.raises(ObjectChanged):
        await read_all(store(client), KEY)
    assert "IfMatch" not in client.asked[1][1]


async def test_an_upload_that_was_given_no_name_is_begun_again() -> None:
    payload = bytes(9 << 20)
    began, part, done = {"UploadId": "u"}, {"ETag": '"p"'}, {"ETag": '"whole"'}
    client = Client({}, began, part, part, done)
    assert await store(client).put(KEY, chunks_of(payload), digest_of(payload)) == len(payload)
    names = [name for name, _ in client.asked]
    assert names == [*["create_multipart_upload"] * 2, *["upload_part"] * 2, "complete_multipart_upload"]
    assert [said["PartNumber"] for name, said in client.asked if name == "upload_part"] == [1, 2]


async def test_a_file_is_sent_in_parts_as_it_is(tmp_path: Path) -> None:
    """Bytes would be a file to botocore: it waits for a word of the server's, and reads and sends them in pieces."""
    content = os.urandom(9 << 20)
    (tmp_path / "draft").write_bytes(content)
    client = Client({"UploadId": "u"}, {"ETag": '"p"'}, {"ETag": '"p"'}, {"ETag": '"whole"'}, answer(b"x"))
    assert await store(client).adopt(KEY, tmp_path / "draft", digest_of(content)) == '"1"'
    parts = [said["Body"] for name, said in client.asked if name == "upload_part"]
    assert b"".join(parts) == content
    assert {type(part) for part in parts} == {bytearray}
    assert not (tmp_path / "draft").exists()


async def test_a_server_that_does_not_say_what_version_it_stored_is_asked(tmp_path: Path) -> None:
    for told, asked in (({"ETag": '"2"'}, ["put_object"]), ({}, ["put_object", "get_object"])):
        (tmp_path / "draft").write_bytes(SMALL)
        client = Client(told, answer(SMALL))
        assert await store(client).adopt(KEY, tmp_path / "draft", digest_of(SMALL)) == told.get("ETag", '"1"')
        assert [name for name, _ in client.asked] == asked


async def test_a_read_that_is_given_up_closes_its_connection() -> None:
    client = Client(given := answer(SMALL[:5]))
    async with aclosing(store(client).read(KEY)) as chunks:
        assert await anext(chunks) == SMALL[:5]
    assert await asyncio.to_thread(eventually, lambda: given["Body"].closed, "the connection to be closed")


def test_a_file_system_that_gives_less_than_was_asked_for_ends_no_file(tmp_path: Path) -> None:
    class Reluctant(FileIO):
        def readinto(self, buffer: Any) -> int:
            return super().readinto(memoryview(buffer)[: 3 << 20])

    content = os.urandom(9 << 20)
    (tmp_path / "draft").write_bytes(content)
    client = Client({"UploadId": "u"}, {"ETag": '"p"'}, {"ETag": '"p"'}, {"ETag": '"whole"'})
    upload = Upload(client, {"Bucket": "bucket", "Key": KEY})
    with Reluctant(tmp_path / "draft") as file:
        while upload.fill(file):
            upload.send_part()
    assert upload.finish(digest_of(content)) == len(content)
    parts = [said["Body"] for name, said in client.asked if name == "upload_part"]
    assert [len(part) for part in parts] == [8 << 20, 1 << 20]
    assert b"".join(parts) == content


async def test_a_part_that_is_sent_again_has_the_same_bytes(tmp_path: Path) -> None:
    content = os.urandom(9 << 20)
    (tmp_path / "draft").write_bytes(content)
    lost = refused("SlowDown", 503)
    sent = lost, {"ETag": '"p"'}
    client = Client({"UploadId": "u"}, *sent, *sent, {"ETag": '"whole"'}, answer(SMALL))
    await store(client).adopt(KEY, tmp_path / "draft", digest_of(content))
    parts = [said["Body"] for name, said in client.asked if name == "upload_part"]
    assert parts == [*[content[: 8 << 20]] * 2, *[content[8 << 20 :]] * 2]


async def test_an_upload_that_is_gone_at_its_first_completion_did_not_succeed() -> None:
    """Somebody took its parts back; that an older object of that length is there proves nothing."""
    payload = bytes(9 << 20)
    began, part, older = {"UploadId": "u"}, {"ETag": '"p"'}, {"ContentLength": len(payload)}
    client = Client(began, part, part, refused("NoSuchUpload", 404), older)
    with pytest.raises(StoreUnavailable, match="NoSuchUpload"):
        await store(client).put(KEY, chunks_of(payload), digest_of(payload))
    assert client.asked[-1][0] == "abort_multipart_upload"


async def test_a_server_that_lists_no_parts_has_none_to_be_removed() -> None:
    class Pages:
        def paginate(self, **_: Any) -> Any:
            raise refused("NotImplemented", 501)

    client = Client(*[{}])
    client.get_paginator = lambda _: Pages()  # type: ignore[attr-defined]
    assert await store(client).prune("adapters", 1e10) == 0


async def test_a_long_list_comes_in_pages() -> None:
    def page(name: str, **more: Any) -> dict[str, Any]:
        return {"Contents": [{"Key": f"below/parts/{name}", "Size": 5, "LastModified": datetime.now(UTC)}], **more}

    client = Client(page("a", IsTruncated=True, NextContinuationToken="t"), page("b", IsTruncated=False))
    found = await S3Store(client, "bucket", "below").listed("parts")
    assert [one.key for one in found] == ["parts/a", "parts/b"]
    assert [said.get("ContinuationToken") for _, said in client.asked] == [None, "t"]

"""What every object store must do; each implementation's test class inherits it and provides `store`."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.store.port import DigestMismatch, ObjectMissing, ObjectStore, StoreUnavailable, weights_key

SMALL = b"hello adapters"
LARGE = bytes(range(256)) * (9 << 12) + b"the rest"
"""More than an implementation would send or hold at once."""


def digest_of(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


async def chunks_of(payload: bytes, size: int = 1 << 18) -> AsyncIterator[bytes]:
    for at in range(0, len(payload), size):
        yield payload[at : at + size]


async def read_all(store: ObjectStore, key: str, start: int = 0) -> bytes:
    return b"".join([chunk async for chunk in store.read(key, start)])


async def put(store: ObjectStore, payload: bytes) -> str:
    digest = digest_of(payload)
    key = weights_key(digest)
    assert await store.put(key, chunks_of(payload), digest) == len(payload)
    return key


class StoreSuite:
    async def test_what_is_put_is_read_back(self, store: ObjectStore) -> None:
        key = await put(store, SMALL)
        assert await store.exists(key)
        assert await read_all(store, key) == SMALL

    async def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        key = await put(store, b"")
        assert await store.exists(key)
        assert await read_all(store, key) == b""

    async def test_a_large_object_comes_in_chunks_of_at_most_1_mib(self, store: ObjectStore) -> None:
        key = await put(store, LARGE)
        chunks = [chunk async for chunk in store.read(key)]
        assert b"".join(chunks) == LARGE
        assert max(map(len, chunks)) <= 1 << 20

    async def test_an_object_is_read_from_any_byte_on(self, store: ObjectStore) -> None:
        key = await put(store, SMALL)
        for start in range(len(SMALL)):
            assert await read_all(store, key, start) == SMALL[start:]
        assert await read_all(store, key, len(SMALL)) == b""
        assert await read_all(store, key, len(SMALL) + 1) == b""
        with pytest.raises(ObjectMissing):
            await read_all(store, weights_key(digest_of(b"never stored")), 1)

    async def test_what_is_read_and_written_is_never_held_whole(self, store: ObjectStore) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield bytes(1 << 20)

        digest = digest_of(bytes(64 << 20))
        tracemalloc.start()
        try:
            size_bytes = await store.put(weights_key(digest), pieces(), digest)
            read_bytes = sum([len(chunk) async for chunk in store.read(weights_key(digest))])
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert size_bytes == read_bytes == 64 << 20
        assert peak_bytes < 40 << 20

    @pytest.mark.parametrize("payload", [SMALL, LARGE], ids=["small", "large"])
    async def test_wrong_bytes_are_refused_and_nothing_is_visible(self, store: ObjectStore, payload: bytes) -> None:
        digest = digest_of(b"announced")
        key = weights_key(digest)
        with pytest.raises(DigestMismatch, match=digest):
            await store.put(key, chunks_of(payload), digest)
        assert not await store.exists(key)

    async def test_a_missing_object_says_so(self, store: ObjectStore) -> None:
        await put(store, SMALL)
        with pytest.raises(ObjectMissing):
            await read_all(store, weights_key(digest_of(b"never stored")))

    async def test_putting_twice_is_the_same_as_once(self, store: ObjectStore) -> None:
        assert await put(store, SMALL) == await put(store, SMALL)
        assert await read_all(store, await put(store, SMALL)) == SMALL

    async def test_deleting_twice_is_no_error(self, store: ObjectStore) -> None:
        key = await put(store, SMALL)
        await store.delete(key)
        await store.delete(key)
        assert not await store.exists(key)

    @pytest.mark.parametrize("payload", [SMALL, LARGE], ids=["small", "large"])
    async def test_a_source_that_breaks_leaves_nothing(self, store: ObjectStore, payload: bytes) -> None:
        async def broken() -> AsyncIterator[bytes]:
            yield payload
            raise ConnectionResetError("the uploader left")

        digest = digest_of(payload)
        with pytest.raises(ConnectionResetError):
            await store.put(weights_key(digest), broken(), digest)
        assert not await store.exists(weights_key(digest))

    @pytest.mark.parametrize("payload", [SMALL, LARGE], ids=["small", "large"])
    async def test_a_cancelled_put_leaves_nothing(self, store: ObjectStore, payload: bytes) -> None:
        half_way = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield payload
            half_way.set()
            await asyncio.Event().wait()

        digest = digest_of(payload)
        task = asyncio.create_task(store.put(weights_key(digest), endless(), digest))
        await asyncio.wait_for(half_way.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await store.exists(weights_key(digest))

    @pytest.mark.parametrize("payload", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
    async def test_a_file_that_is_adopted_is_an_object_and_no_file(
        self, store: ObjectStore, tmp_path: Path, payload: bytes
    ) -> None:
        digest = digest_of(payload)
        for _ in range(2):  # twice is the same as once
            (tmp_path / "draft").write_bytes(payload)
            version = await store.adopt(weights_key(digest), tmp_path / "draft", digest)
            assert version == await store.version(weights_key(digest))
            assert await read_all(store, weights_key(digest)) == payload
            assert not (tmp_path / "draft").exists()

    @pytest.mark.parametrize("payload", [b"", SMALL, LARGE], ids=["empty", "small", "large"])
    async def test_bytes_at_hand_are_taken_as_they_are(self, store: ObjectStore, payload: bytes) -> None:
        key = weights_key(digest_of(payload))
        for _ in range(2):  # twice is the same as once
            version = await store.take(key, bytearray(payload), digest_of(payload))
            assert version == await store.version(key)
            assert await read_all(store, key) == payload

    async def test_a_file_that_is_not_there_is_adopted_by_nobody(self, store: ObjectStore, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable):
            await store.adopt(weights_key(digest_of(SMALL)), tmp_path / "nothing", digest_of(SMALL))
        assert not await store.exists(weights_key(digest_of(SMALL)))

    async def test_another_object_under_a_key_is_another_version(self, store: ObjectStore) -> None:
        assert await store.version("uploads/x") is None
        seen = []
        for payload in (SMALL, SMALL[::-1], b""):
            await store.put("uploads/x", chunks_of(payload), digest_of(payload))
            seen += [await store.version("uploads/x"), await store.version("uploads/x")]
        assert None not in seen
        assert [len(set(seen)), *map(seen.index, seen)] == [3, 0, 0, 2, 2, 4, 4]

    async def test_a_folder_is_listed_by_the_beginning_of_its_names(self, store: ObjectStore) -> None:
        assert await store.listed("parts") == []
        for key in ("parts/b-2", "parts/a-1", "parts/a-2", "parts/a/deeper", "other/a-1"):
            await store.put(key, chunks_of(SMALL), digest_of(SMALL))
        found = await store.listed("parts", "a-")
        assert [(one.key, one.size_bytes) for one in found] == [("parts/a-1", len(SMALL)), ("parts/a-2", len(SMALL))]
        assert all(one.modified_at_s > 1e9 for one in found)
        assert [one.key for one in await store.listed("parts")] == ["parts/a-1", "parts/a-2", "parts/b-2"]

    async def test_what_is_whole_is_left_alone_by_whoever_clears_up(self, store: ObjectStore) -> None:
        keys = [await put(store, payload) for payload in (b"", SMALL, LARGE)]
        assert await store.prune("adapters", before_s=1e10) == 0
        assert [len(await read_all(store, key)) for key in keys] == [0, len(SMALL), len(LARGE)]

    async def test_a_reader_keeps_the_object_it_began_with(self, store: ObjectStore) -> None:
        payload = bytes(3 << 20)
        key = await put(store, payload)
        reader = store.read(key)
        first = await anext(reader)
        await put(store, payload)
        assert first + b"".join([chunk async for chunk in reader]) == payload

    @pytest.mark.parametrize("key", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "a\0b", ".incoming/x"])
    async def test_c54_what_is_no_key_is_refused(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(ValueError, match="no object key"):
            await store.exists(key)
        with pytest.raises(ValueError, match="no object key"):
            await store.put(key, chunks_of(SMALL), digest_of(SMALL))

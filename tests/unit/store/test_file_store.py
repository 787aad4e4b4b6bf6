"""The store in a folder: the common suite, and what only files can do."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.store.access import S3Access
from shared.store.file import FileStore, _Incoming
from shared.store.open import store_from_url
from shared.store.port import DigestMismatch, ObjectStore, StoreUnavailable, weights_key
from tests.integration.store_suite import SMALL, StoreSuite, chunks_of, digest_of, put, read_all


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return FileStore(tmp_path / "store")


class TestFileStore(StoreSuite):
    pass


def files_below(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]


async def test_failed_puts_leave_no_file_behind(tmp_path: Path) -> None:
    store = FileStore(tmp_path)

    async def broken() -> AsyncIterator[bytes]:
        yield SMALL
        raise ConnectionResetError

    for chunks, digest in ((broken(), digest_of(SMALL)), (chunks_of(SMALL), digest_of(b"other"))):
        with pytest.raises((ConnectionResetError, DigestMismatch)):
            await store.put(weights_key(digest), chunks, digest)
    assert files_below(tmp_path) == []


async def test_a_put_that_is_cancelled_while_its_file_is_opened_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on, done = threading.Event(), threading.Event(), threading.Event()
    begin = _Incoming.open

    def slowly(incoming: _Incoming) -> None:
        asked.set()
        go_on.wait(10)
        begin(incoming)
        done.set()

    monkeypatch.setattr(_Incoming, "open", slowly)
    putting = asyncio.create_task(FileStore(tmp_path).put(weights_key("a" * 64), chunks_of(SMALL), "a" * 64))
    assert await asyncio.to_thread(asked.wait, 10)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    go_on.set()
    assert await asyncio.to_thread(done.wait, 10)
    assert files_below(tmp_path) == []


async def test_the_object_is_on_the_disk_before_it_is_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    sync, replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        seen.append("sync " + ("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"))
        sync(descriptor)

    def rename(path: Path, target: Path) -> Path:
        seen.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", rename)
    await put(FileStore(tmp_path), SMALL)
    assert seen == ["sync file", "rename", "sync folder"]


async def test_a_disk_that_refuses_is_unavailable_and_nothing_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    store = FileStore(tmp_path)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await store.put(weights_key(digest_of(SMALL)), chunks_of(SMALL), digest_of(SMALL))
    assert files_below(tmp_path) == []


async def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the folder should be")
    store = FileStore(tmp_path / "store")
    with pytest.raises(StoreUnavailable):
        await store.put("adapters/x", chunks_of(SMALL), digest_of(SMALL))
    with pytest.raises(StoreUnavailable):
        await read_all(store, "adapters/x")


async def test_a_store_that_is_not_there_is_unavailable_rather_than_empty(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await read_all(FileStore(tmp_path / "unmounted"), "adapters/x")


async def test_a_url_names_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    key = await put(store_from_url(folder.as_uri(), S3Access()), SMALL)
    assert (folder / key).read_bytes() == SMALL

"""The store in a folder: the common suite, and what only files can do."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.store.access import S3Access
from shared.store.file import FileStore
from shared.store.file_incoming import Incoming
from shared.store.open import store_from_url
from shared.store.port import DigestMismatch, ObjectStore, StoreUnavailable, weights_key
from tests.integration.store_suite import SMALL, StoreSuite, chunks_of, digest_of, put, read_all

_WRITER = """
import asyncio, sys
from pathlib import Path
from shared.store.file import FileStore

async def endless():
    while True:
        yield bytes(1 << 20)
        print("ready", flush=True)

asyncio.run(FileStore(Path(sys.argv[1])).put("adapters/x", endless(), "a" * 64))
"""


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
    begin = Incoming.open

    def slowly(incoming: Incoming) -> None:
        asked.set()
        go_on.wait(10)
        begin(incoming)
        done.set()

    monkeypatch.setattr(Incoming, "open", slowly)
    putting = asyncio.create_task(FileStore(tmp_path).put(weights_key("a" * 64), chunks_of(SMALL), "a" * 64))
    assert await asyncio.to_thread(asked.wait, 10)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    go_on.set()
    assert await asyncio.to_thread(done.wait, 10)
    assert files_below(tmp_path) == []


async def test_what_kill_9_left_behind_is_removed_once_it_is_old(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", _WRITER, tmp_path, stdout=PIPE, cwd=root)
    assert writer.stdout is not None
    async with asyncio.timeout(30):
        assert await writer.stdout.readline() == b"ready\n"
        writer.kill()
        await writer.communicate()
    [left] = files_below(tmp_path)
    store, ended_s = FileStore(tmp_path), (tmp_path / left).stat().st_mtime
    assert await store.prune("adapters", before_s=ended_s) == 0
    assert files_below(tmp_path) == [left]
    key = await put(store, SMALL)
    assert await store.prune("adapters", before_s=ended_s + 1) == 1
    assert files_below(tmp_path) == [key]


async def test_a_put_that_counted_as_killed_fails_as_a_whole(tmp_path: Path) -> None:
    store = FileStore(tmp_path)

    async def slow() -> AsyncIterator[bytes]:
        yield SMALL
        assert await store.prune("adapters", before_s=1e12) == 1

    with pytest.raises(StoreUnavailable):
        await store.put(weights_key(digest_of(SMALL)), slow(), digest_of(SMALL))
    assert files_below(tmp_path) == []


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to the disk, in order."""
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
    return seen


async def test_the_object_is_on_the_disk_before_it_is_in_its_place(tmp_path: Path, seen: list[str]) -> None:
    await put(FileStore(tmp_path), SMALL)
    assert seen == ["sync file", "rename", "sync folder"]


async def test_a_file_is_adopted_without_a_copy_once_its_bytes_are_on_the_disk(tmp_path: Path, seen: list[str]) -> None:
    (tmp_path / "draft").write_bytes(SMALL)
    same = (tmp_path / "draft").stat().st_ino
    key = weights_key(digest_of(SMALL))
    await FileStore(tmp_path / "store").adopt(key, tmp_path / "draft", digest_of(SMALL))
    assert seen == ["sync file", "rename", "sync folder"]
    assert (tmp_path / "store" / key).stat().st_ino == same


async def test_a_file_of_another_file_system_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, draft, replace = FileStore(tmp_path / "store"), tmp_path / "draft", Path.replace
    draft.write_bytes(SMALL)

    def rename(path: Path, target: Path) -> Path:
        if path == draft:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", rename)
    with pytest.raises(DigestMismatch):
        await store.adopt(weights_key("a" * 64), draft, "a" * 64)
    assert files_below(tmp_path) == ["draft"]
    assert await store.adopt(weights_key(digest_of(SMALL)), draft, digest_of(SMALL))
    assert await read_all(store, weights_key(digest_of(SMALL))) == SMALL
    assert not draft.exists()


async def test_an_adoption_that_is_cancelled_ends_before_somebody_else_may_write_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on, sync = threading.Event(), threading.Event(), os.fsync

    def slowly(descriptor: int) -> None:
        asked.set()
        assert go_on.wait(10)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slowly)
    (tmp_path / "draft").write_bytes(SMALL)
    store = FileStore(tmp_path / "store")
    adopting = asyncio.create_task(store.adopt("adapters/x", tmp_path / "draft", digest_of(SMALL)))
    assert await asyncio.to_thread(asked.wait, 10)
    adopting.cancel()
    await asyncio.sleep(0)
    assert not adopting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await adopting
    assert files_below(tmp_path) == ["store/adapters/x"]


async def test_a_file_that_cannot_be_adopted_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "draft").write_bytes(SMALL)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await FileStore(tmp_path / "store").adopt("adapters/x", tmp_path / "draft", digest_of(SMALL))
    assert files_below(tmp_path) == ["draft"]


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


async def test_an_object_that_cannot_be_looked_at_is_not_a_missing_one(tmp_path: Path) -> None:
    store, too_long = FileStore(tmp_path), "x" * 300
    for look in (store.exists, store.version):
        with pytest.raises(StoreUnavailable, match="cannot be looked at"):
            await look(too_long)


async def test_a_url_names_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    key = await put(store_from_url(folder.as_uri(), S3Access()), SMALL)
    assert (folder / key).read_bytes() == SMALL

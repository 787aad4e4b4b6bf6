"""The cache folder: whole files under their digest, one process at a time."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.replica_worker.io.disk import DiskFiles, DiskRefused, FileDamaged
from services.replica_worker.io.half_file import _HalfFile
from shared.store.port import DigestMismatch, ObjectChanged, ObjectMissing, StoreUnavailable

CONTENT = b"weights" * 1_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Source:
    """An object of a store that remembers from where it was read, and fails at its end if `error` is set."""

    def __init__(self, content: bytes = CONTENT, error: BaseException | None = None) -> None:
        self.content = content
        self.error = error
        self.starts: list[int] = []

    async def __call__(self, start: int) -> AsyncIterator[bytes]:
        self.starts.append(start)
        for at in range(start, len(self.content), 999):
            yield self.content[at : at + 999]
        if self.error is not None:
            raise self.error


HALF = CONTENT[:3_000]
BROKEN = StoreUnavailable("it broke off")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DiskFiles]:
    opened = DiskFiles(tmp_path / "cache")
    assert opened.open() == []
    yield opened
    opened.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache").iterdir() if path.name != ".lock")


async def test_a_file_appears_whole_under_its_digest(files: DiskFiles, tmp_path: Path) -> None:
    assert await files.write(DIGEST, Source(), len(CONTENT)) == len(CONTENT)
    assert names(tmp_path) == [f"{DIGEST}.safetensors"]
    assert files.path(DIGEST).read_bytes() == CONTENT
    await files.check(DIGEST)
    files.delete(DIGEST)
    files.delete(DIGEST)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "error", "raised"),
    [
        (CONTENT[:-1] + b"X", None, DigestMismatch),
        (CONTENT[:-1], None, DigestMismatch),
        (b"", None, DigestMismatch),
        (CONTENT + b"more", None, DigestMismatch),
        (b"", BROKEN, StoreUnavailable),
        (HALF, ObjectMissing("it went"), ObjectMissing),
        (HALF, ObjectChanged("it is another one"), ObjectChanged),
        (HALF, OSError(5, "the disk broke"), DiskRefused),
    ],
)
async def test_wrong_bytes_leave_nothing(
    files: DiskFiles, tmp_path: Path, content: bytes, error: Exception | None, raised: type[Exception]
) -> None:
    with pytest.raises(raised):
        await files.write(DIGEST, Source(content, error), len(CONTENT))
    assert names(tmp_path) == []


async def test_a_full_disk_is_told_from_a_folder_that_is_none(files: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "cache" / f"{DIGEST}.part").symlink_to("/dev/full")
    with pytest.raises(DiskRefused, match=r"no space is left on the disk of .*/cache"):
        await files.write(DIGEST, Source(), len(CONTENT))
    assert names(tmp_path) == []
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    (tmp_path / "cache").touch()
    with pytest.raises(DiskRefused, match="cannot be written"):
        await files.write(DIGEST, Source(), len(CONTENT))


async def test_a_folder_that_was_cleared_away_comes_back(files: DiskFiles, tmp_path: Path) -> None:
    await files.write(DIGEST, Source(), len(CONTENT))
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(FileDamaged):
        await files.check(DIGEST)
    await files.write(DIGEST, Source(), len(CONTENT))
    await files.check(DIGEST)


def test_what_an_earlier_life_needed_is_deleted_by_the_one_that_has_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "merged"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(CONTENT)
    merged, plain = DiskFiles(tmp_path / "cache"), DiskFiles(tmp_path / "cache", leftovers=("merged",))
    merged.open()
    with pytest.raises(DiskRefused, match="belongs to a replica that runs"):
        plain.open()
    assert (folder / "model.safetensors").exists()
    merged.close()
    plain.open()
    plain.close()
    assert not folder.exists()


async def test_damage_is_found(files: DiskFiles) -> None:
    await files.write(DIGEST, Source(), len(CONTENT))
    files.path(DIGEST).write_bytes(CONTENT[:-1] + b"X")
    with pytest.raises(FileDamaged, match="has the SHA-256"):
        await files.check(DIGEST)
    files.delete(DIGEST)
    with pytest.raises(FileDamaged, match="cannot be read"):
        await files.check(DIGEST)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "A" * 64, "a" * 63, "", "a" * 63 + "\0"])
async def test_c54_what_is_no_digest_never_becomes_a_path(files: DiskFiles, name: str) -> None:
    with pytest.raises(ValueError, match="is no SHA-256"):
        files.path(name)


@pytest.mark.parametrize("error", [BROKEN, asyncio.CancelledError()], ids=["unavailable", "cancelled"])
async def test_what_came_before_a_break_is_kept_and_the_next_write_goes_on_there(
    files: DiskFiles, tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        await files.write(DIGEST, Source(HALF, error), len(CONTENT))
    assert names(tmp_path) == [f"{DIGEST}.part"]
    assert files.kept_bytes(DIGEST) == len(HALF)
    source = Source()
    assert await files.write(DIGEST, source, len(CONTENT)) == len(CONTENT)
    assert source.starts == [len(HALF)]
    assert names(tmp_path) == [f"{DIGEST}.safetensors"]
    await files.check(DIGEST)


async def test_a_restart_goes_on_with_what_an_earlier_process_left(files: DiskFiles, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await files.write(DIGEST, Source(HALF, BROKEN), len(CONTENT))
    files.close()
    again = DiskFiles(tmp_path / "cache")
    assert [(file.digest, file.size_bytes, file.whole) for file in again.open()] == [(DIGEST, len(HALF), False)]
    source = Source()
    await again.write(DIGEST, source, len(CONTENT))
    assert source.starts == [len(HALF)]
    again.close()


async def test_a_whole_file_that_a_crash_left_unnamed_is_only_checked(files: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "cache" / f"{DIGEST}.part").write_bytes(CONTENT)
    source = Source()
    assert await files.write(DIGEST, source, len(CONTENT)) == len(CONTENT)
    assert source.starts == [len(CONTENT)]


@pytest.mark.parametrize("rest", [b"X" * 3_000, CONTENT + b"more"], ids=["damaged", "too long"])
async def test_a_useless_rest_on_the_own_disk_is_not_blamed_on_the_store(
    files: DiskFiles, tmp_path: Path, rest: bytes
) -> None:
    (tmp_path / "cache" / f"{DIGEST}.part").write_bytes(rest)
    source = Source()
    await files.write(DIGEST, source, len(CONTENT))
    assert source.starts[-1] == 0
    assert len(source.starts) <= 2
    await files.check(DIGEST)


async def test_c36_a_corrupt_object_ends_whatever_lay_on_the_own_disk(files: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "cache" / f"{DIGEST}.part").write_bytes(HALF)
    source = Source(CONTENT[:-1] + b"X")
    with pytest.raises(DigestMismatch):
        await files.write(DIGEST, source, len(CONTENT))
    assert source.starts == [len(HALF), 0]
    assert names(tmp_path) == []


async def test_deleting_takes_what_a_break_left_along(files: DiskFiles, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await files.write(DIGEST, Source(HALF, BROKEN), len(CONTENT))
    files.delete(DIGEST)
    assert names(tmp_path) == []
    assert files.kept_bytes(DIGEST) == 0


async def test_a_start_finds_what_is_whole_and_removes_what_is_of_no_use(files: DiskFiles, tmp_path: Path) -> None:
    await files.write(DIGEST, Source(), len(CONTENT))
    files.close()
    folder = tmp_path / "cache"
    (folder / f"{DIGEST}.part").write_bytes(b"half")
    (folder / f"{'b' * 64}.part").touch()
    (folder / "notes.txt").write_text("not ours")
    (folder / f"{'c' * 64}.safetensors").symlink_to("/etc/passwd")
    again = DiskFiles(folder)
    [found] = again.open()
    assert (found.digest, found.size_bytes) == (DIGEST, len(CONTENT))
    assert not list(folder.glob("*.part"))
    assert (folder / "notes.txt").exists()
    again.close()


def test_two_processes_cannot_share_a_folder(files: DiskFiles, tmp_path: Path) -> None:
    with pytest.raises(DiskRefused, match="belongs to a replica that runs"):
        DiskFiles(tmp_path / "cache").open()


def test_what_is_given_up_while_it_is_read_again_is_not_opened(tmp_path: Path) -> None:
    """The thread of a cancelled write comes to it after everything else has been tidied up."""
    half = _HalfFile(tmp_path / "half")
    half.close()
    assert half.open(10) == 0
    half.append(b"late")
    assert list(tmp_path.iterdir()) == []
    assert half.size_bytes == 0

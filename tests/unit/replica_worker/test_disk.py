"""The cache folder: whole files under their digest, one process at a time."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.replica_worker.io.disk import DiskFiles, DiskRefused, FileDamaged
from shared.store.port import DigestMismatch, StoreUnavailable

CONTENT = b"weights" * 1_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


async def chunks(content: bytes = CONTENT, error: Exception | None = None) -> AsyncIterator[bytes]:
    for at in range(0, len(content), 999):
        yield content[at : at + 999]
    if error is not None:
        raise error


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DiskFiles]:
    opened = DiskFiles(tmp_path / "cache")
    assert opened.open() == []
    yield opened
    opened.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache").iterdir() if path.name != ".lock")


async def test_a_file_appears_whole_under_its_digest(files: DiskFiles, tmp_path: Path) -> None:
    assert await files.write(DIGEST, chunks(), len(CONTENT)) == len(CONTENT)
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
        (CONTENT[:99], StoreUnavailable("it broke off"), StoreUnavailable),
    ],
)
async def test_wrong_bytes_leave_nothing(
    files: DiskFiles, tmp_path: Path, content: bytes, error: Exception | None, raised: type[Exception]
) -> None:
    with pytest.raises(raised):
        await files.write(DIGEST, chunks(content, error), len(CONTENT))
    assert names(tmp_path) == []


async def test_a_full_disk_is_told_from_a_folder_that_is_none(files: DiskFiles, tmp_path: Path) -> None:
    (tmp_path / "cache" / f"{DIGEST}.part").symlink_to("/dev/full")
    with pytest.raises(DiskRefused, match=r"no space is left on the disk of .*/cache"):
        await files.write(DIGEST, chunks(), len(CONTENT))
    assert names(tmp_path) == []
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    (tmp_path / "cache").touch()
    with pytest.raises(DiskRefused, match="cannot be written"):
        await files.write(DIGEST, chunks(), len(CONTENT))


async def test_a_folder_that_was_cleared_away_comes_back(files: DiskFiles, tmp_path: Path) -> None:
    await files.write(DIGEST, chunks(), len(CONTENT))
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(FileDamaged):
        await files.check(DIGEST)
    await files.write(DIGEST, chunks(), len(CONTENT))
    await files.check(DIGEST)


async def test_damage_is_found(files: DiskFiles) -> None:
    await files.write(DIGEST, chunks(), len(CONTENT))
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


async def test_a_start_finds_what_is_whole_and_removes_what_a_crash_left(files: DiskFiles, tmp_path: Path) -> None:
    await files.write(DIGEST, chunks(), len(CONTENT))
    files.close()
    folder = tmp_path / "cache"
    (folder / f"{'b' * 64}.part").write_bytes(b"half")
    (folder / "notes.txt").write_text("not ours")
    (folder / f"{'c' * 64}.safetensors").symlink_to("/etc/passwd")
    again = DiskFiles(folder)
    [found] = again.open()
    assert (found.digest, found.size_bytes) == (DIGEST, len(CONTENT))
    assert not (folder / f"{'b' * 64}.part").exists()
    assert (folder / "notes.txt").exists()
    again.close()


def test_two_processes_cannot_share_a_folder(files: DiskFiles, tmp_path: Path) -> None:
    with pytest.raises(DiskRefused, match="cannot be taken"):
        DiskFiles(tmp_path / "cache").open()

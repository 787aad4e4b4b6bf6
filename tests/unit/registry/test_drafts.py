"""Uploads that grow: what is kept of them, who may go on with them, and who may not."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.registry.io.drafts import Draft, Drafts
from shared.store.port import StoreUnavailable

FILE = os.urandom(3 << 20)
DIGEST = hashlib.sha256(FILE).hexdigest()
_WRITER = """
import sys
from pathlib import Path
from services.registry.io.drafts import Drafts
draft = Drafts(Path(sys.argv[1])).new(sys.argv[2])
draft.append(b"x" * 100)
print("ready", flush=True)
while True:
    draft.append(b"x" * (1 << 16))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "drafts"


@pytest.fixture
def drafts(folder: Path) -> Drafts:
    return Drafts(folder)


@pytest.fixture
def draft(drafts: Drafts) -> Iterator[Draft]:
    """One that has come to its 1000th byte, and is still being written."""
    made = drafts.new(DIGEST)
    made.append(FILE[:1000])
    yield made
    made.close()


def grown(drafts: Drafts, start: int) -> Draft:
    """Another one, from there to the end."""
    other = drafts.new(DIGEST)
    assert other.resume(start)
    other.append(FILE[start:])
    other.close()
    return other


def test_a_draft_goes_on_in_the_same_file(drafts: Drafts, draft: Draft) -> None:
    draft.close()
    other = grown(drafts, 1000)
    assert (other.path, other.digest, other.path.read_bytes()) == (draft.path, DIGEST, FILE)


@pytest.mark.parametrize("start", [1, 999])
def test_what_came_after_the_byte_to_go_on_from_is_overwritten(drafts: Drafts, draft: Draft, start: int) -> None:
    draft.append(b"wrong")
    draft.close()
    other = grown(drafts, start)
    assert (other.digest, other.path.read_bytes()) == (DIGEST, FILE)


def test_nobody_goes_on_from_a_byte_that_has_not_come(drafts: Drafts, draft: Draft) -> None:
    draft.close()
    assert not drafts.new(DIGEST).resume(1001)
    assert not drafts.new("a" * 64).resume(1)
    assert (drafts.reach(DIGEST), drafts.reach("a" * 64)) == (1000, 0)


def test_what_is_still_being_written_is_copied_and_left_alone(drafts: Drafts, draft: Draft) -> None:
    """Its sender may be gone without a word, or may be quick."""
    other = grown(drafts, 700)
    assert other.path != draft.path
    draft.append(FILE[1000:])
    for one in (draft, other):
        assert (one.digest, one.path.read_bytes()) == (DIGEST, FILE)


def test_what_the_store_has_taken_in_is_written_to_by_nobody(drafts: Drafts, draft: Draft, tmp_path: Path) -> None:
    """Another one had opened it before."""
    stored = tmp_path / "stored"
    waiting = os.open(draft.path, os.O_RDWR)
    draft.path.rename(stored)
    assert not drafts.new(DIGEST).resume(500)
    draft.close()
    os.close(waiting)
    assert stored.read_bytes() == FILE[:1000]


def test_what_is_being_written_is_not_forgotten(drafts: Drafts, draft: Draft, folder: Path) -> None:
    drafts.forget(DIGEST)
    assert drafts.prune(before_s=1e12) == 0
    draft.close()
    drafts.forget("a" * 64)
    assert drafts.prune(before_s=draft.path.stat().st_mtime) == 0
    assert drafts.prune(before_s=1e12) == 1
    assert list(folder.iterdir()) == []


def test_whatever_else_lies_in_the_folder_is_left_alone(drafts: Drafts, draft: Draft, folder: Path) -> None:
    """As what a file system puts into its root, and what leads elsewhere."""
    draft.close()
    other = folder / "notes"
    other.write_text("somebody else's")
    (folder / "lost+found").mkdir()
    (folder / f"{DIGEST}.{'a' * 16}").symlink_to(other)
    assert not drafts.new(DIGEST).resume(1001)
    assert drafts.prune(before_s=1e12) == 1
    assert sorted(path.name for path in folder.iterdir()) == [f"{DIGEST}.{'a' * 16}", "lost+found", "notes"]
    assert other.read_text() == "somebody else's"


def test_nothing_is_written_after_the_end(drafts: Drafts, draft: Draft) -> None:
    """As by the last call of somebody who was cancelled."""
    draft.close()
    draft.append(FILE)
    late = drafts.new(DIGEST)
    late.close()
    assert not late.resume(1000)
    assert draft.path.read_bytes() == FILE[:1000]


def test_what_somebody_else_writes_to_a_file_shows(draft: Draft) -> None:
    """The lock binds only those who ask for it."""
    assert draft.is_as_written()
    other = os.open(draft.path, os.O_RDWR)
    before = os.fstat(other).st_mtime_ns
    while os.fstat(other).st_mtime_ns == before:  # until the system's clock has gone on
        os.pwrite(other, b"wrong", 10)
    os.close(other)
    assert not draft.is_as_written()


def test_a_draft_that_was_given_up_vouches_for_nothing(drafts: Drafts, draft: Draft) -> None:
    draft.close()
    assert not draft.is_as_written()
    assert not drafts.new(DIGEST).is_as_written()


def test_an_upload_that_never_began_leaves_nothing(drafts: Drafts, folder: Path) -> None:
    empty = drafts.new(DIGEST)
    empty.append(b"")
    empty.close()
    assert not folder.exists()


def test_a_folder_that_cannot_be_is_a_store_that_is_away(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    for ask in (lambda: Drafts(folder).new(DIGEST).append(b"x"), lambda: Drafts(folder).reach(DIGEST)):
        with pytest.raises(StoreUnavailable, match="uploads cannot be kept"):
            ask()


def test_kill_9_in_the_middle_of_writing_leaves_a_beginning_that_is_right(drafts: Drafts, folder: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder), DIGEST], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert writer.stdout is not None
    with writer, writer.stdout as said:
        assert said.readline() == b"ready\n"
        assert not _free(drafts), "its writer lives"
        writer.send_signal(signal.SIGKILL)
    size_bytes = drafts.reach(DIGEST)
    other = drafts.new(DIGEST)
    assert other.resume(size_bytes)
    other.close()
    assert other.digest == hashlib.sha256(b"x" * size_bytes).hexdigest()
    assert len(list(folder.iterdir())) == 1


def _free(drafts: Drafts) -> bool:
    return drafts.prune(before_s=1e12) > 0

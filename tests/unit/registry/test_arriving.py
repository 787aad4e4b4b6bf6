"""What comes of an upload stays in memory while there is room, and is never in neither place."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from services.registry.io.drafts import Draft, Drafts
from services.registry.registration.arriving import PART_BYTES, Memory, Share, fill
from shared.store.port import StoreUnavailable

CONTENT = os.urandom(3 * PART_BYTES + 500)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def drafts(tmp_path: Path) -> Drafts:
    return Drafts(tmp_path)


async def _chunks(error: Exception | None = None, content: bytes = CONTENT) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 70_000):
        yield content[start : start + 70_000]
    if error is not None:
        raise error


async def _filled(memory: Memory, draft: Draft, chunks: AsyncIterator[bytes]) -> bytearray:
    try:
        with memory.share() as share:
            content = await fill(draft, chunks, share)
            assert memory.held_bytes >= len(content) - PART_BYTES
            return content
    finally:
        draft.close()


async def test_what_fits_is_on_no_disk(drafts: Drafts) -> None:
    memory = Memory(8 * PART_BYTES, 4 * PART_BYTES)
    assert await _filled(memory, drafts.new(DIGEST), _chunks()) == CONTENT
    assert (drafts.reach(DIGEST), memory.held_bytes) == (0, 0)


@pytest.mark.parametrize(("most", "each"), [(8, 2), (2, 8), (0, 8)])
async def test_what_has_no_room_is_in_its_draft(drafts: Drafts, most: int, each: int) -> None:
    memory, draft = Memory(most * PART_BYTES, each * PART_BYTES), drafts.new(DIGEST)
    assert await _filled(memory, draft, _chunks()) == b""
    assert (draft.digest, drafts.reach(DIGEST), memory.held_bytes) == (DIGEST, len(CONTENT), 0)


async def test_all_share_one_memory(drafts: Drafts) -> None:
    """Two files of 3.5 parts have room for seven; the third one finds none, and goes through its draft."""
    memory, meet = Memory(8 * PART_BYTES, 4 * PART_BYTES), asyncio.Barrier(3)

    async def together() -> AsyncIterator[bytes]:
        async for chunk in _chunks():
            yield chunk
        await meet.wait()

    made = [drafts.new(DIGEST) for _ in range(3)]
    async with asyncio.timeout(10):
        contents = await asyncio.gather(*(_filled(memory, draft, together()) for draft in made))
    assert sorted(map(len, contents)) == [0, len(CONTENT), len(CONTENT)]
    assert [draft.size_bytes for draft in made].count(len(CONTENT)) == 1
    assert memory.held_bytes == 0


async def test_what_broke_off_is_in_its_draft_up_to_its_last_byte(drafts: Drafts) -> None:
    memory = Memory(8 * PART_BYTES, 4 * PART_BYTES)
    with pytest.raises(EOFError):
        await _filled(memory, drafts.new(DIGEST), _chunks(EOFError()))
    assert (drafts.reach(DIGEST), memory.held_bytes) == (len(CONTENT), 0)


async def test_what_goes_on_in_a_draft_goes_on_there(drafts: Drafts) -> None:
    begun, memory = drafts.new(DIGEST), Memory(8 * PART_BYTES, 4 * PART_BYTES)
    begun.append(CONTENT[:1000])
    begun.close()
    draft = drafts.new(DIGEST)
    assert draft.resume(1000)
    assert await _filled(memory, draft, _chunks(content=CONTENT[1000:])) == b""
    assert (draft.digest, memory.held_bytes) == (DIGEST, 0)


async def test_a_disk_that_takes_nothing_is_no_reason_to_try_it_once_more(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def full(_: Draft, piece: Iterable[int]) -> None:
        tried.append(1)
        raise StoreUnavailable("uploads cannot be kept: No space left on device")

    monkeypatch.setattr(Draft, "append", full)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await _filled(Memory(0, 0), drafts.new(DIGEST), _chunks())
    assert tried == [1]


async def _received(memory: Memory, drafts: Drafts, content: bytes) -> tuple[int, bytes]:
    """Which buffer it came into, and what was in it."""
    draft = drafts.new(DIGEST)
    try:
        with memory.share() as share:
            held = await fill(draft, _chunks(content=content), share)
            return id(held), bytes(held)
    finally:
        draft.close()


async def test_a_buffer_is_for_the_next_one_and_nothing_of_the_last_is_left_in_it(drafts: Drafts) -> None:
    memory = Memory(8 * PART_BYTES, 4 * PART_BYTES)
    with memory.share():  # somebody else is still uploading
        first, held = await _received(memory, drafts, CONTENT)
        assert held == CONTENT
        for other in (os.urandom(len(CONTENT)), os.urandom(70_001), b"", os.urandom(len(CONTENT) - 1), CONTENT):
            again, held = await _received(memory, drafts, other)
            assert (again, held) == (first, other)


async def test_a_buffer_that_somebody_may_still_be_reading_is_nobody_elses(drafts: Drafts) -> None:
    """A request to the store goes on in its thread when its caller is cancelled."""
    memory = Memory(8 * PART_BYTES, 4 * PART_BYTES)
    for error in (StoreUnavailable(), asyncio.CancelledError(), EOFError()):
        with memory.share():
            left: list[bytearray] = []

            async def given_up(error: BaseException = error, left: list[bytearray] = left) -> None:
                with memory.share() as share:
                    left.append(await fill(drafts.new(DIGEST), _chunks(), share))
                    raise error

            with pytest.raises(type(error)):
                await given_up()
            again, _ = await _received(memory, drafts, CONTENT[::-1])
            assert again != id(left[0])
            assert left == [CONTENT]


async def test_memory_is_given_back_once_nobody_uploads(drafts: Drafts) -> None:
    memory = Memory(8 * PART_BYTES, 4 * PART_BYTES)
    with memory.share():
        await _received(memory, drafts, CONTENT)
        assert memory.spare_bytes == len(CONTENT)
    assert memory.spare_bytes == 0


async def test_a_buffer_that_waited_is_part_of_what_is_held_from_the_first_byte_on(drafts: Drafts) -> None:
    """Else many that send nothing would hold all that others had filled."""
    memory = Memory(4 * PART_BYTES, 4 * PART_BYTES)
    with memory.share():
        await _received(memory, drafts, CONTENT)
        with memory.share() as silent, memory.share() as other:
            assert (len(silent.buffer), memory.held_bytes, memory.spare_bytes) == (len(CONTENT), len(CONTENT), 0)
            assert not other.grow(PART_BYTES)
            assert silent.grow(len(CONTENT))
            assert memory.held_bytes == len(CONTENT)
        assert memory.held_bytes == 0


@pytest.mark.parametrize("begun", [0, 1], ids=["it filled a buffer before", "it has somebody else's buffer"])
async def test_what_goes_through_its_draft_keeps_no_more_than_a_part(drafts: Drafts, begun: int) -> None:
    memory, draft, most = Memory(8 * PART_BYTES, 4 * PART_BYTES), drafts.new(DIGEST), list[int]()

    async def watched(share: Share) -> AsyncIterator[bytes]:
        async for chunk in _chunks(content=CONTENT * 2):
            yield chunk
            if draft.size_bytes:
                assert memory.held_bytes == 0
                most.append(len(share.buffer))

    with memory.share():
        for _ in range(begun):
            await _received(memory, drafts, CONTENT)
        with memory.share() as share:
            await fill(draft, watched(share), share)
    draft.close()
    assert draft.size_bytes == 2 * len(CONTENT)
    assert PART_BYTES <= max(most) < PART_BYTES + 70_000


async def test_buffers_that_are_kept_leave_room_for_what_comes(drafts: Drafts) -> None:
    memory = Memory(4 * PART_BYTES, 4 * PART_BYTES)
    with memory.share(), memory.share() as other:
        await _received(memory, drafts, CONTENT)
        assert memory.spare_bytes == len(CONTENT)
        assert other.grow(PART_BYTES)
        assert memory.held_bytes + memory.spare_bytes <= 4 * PART_BYTES

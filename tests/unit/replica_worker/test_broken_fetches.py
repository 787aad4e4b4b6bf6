"""Fetches that break off: what came counts in the disk budget, serves the next attempt, and goes when nobody asks."""

from __future__ import annotations

import asyncio
import errno
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.replica_worker.core.tiers import ByteBudget, NoRoom, Room
from services.replica_worker.io.disk import DiskFiles
from services.replica_worker.tiers.disk import DiskTier
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from shared.messages.desired import AdapterRecord
from shared.runtime.clock import ManualClock
from shared.store.file import FileStore
from shared.store.port import StoreUnavailable, weights_key
from tests.support.counting_store import CountingStore

SIZE_BYTES = 10_000
BUDGET_BYTES = 25_000


class BreakingStore(CountingStore):
    """Breaks off once a read has reached the byte that `breaks_at` says for its key; is silent from `stalls_at` on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FileStore(folder))
        self.breaks_at: dict[str, int] = {}
        self.stalls_at: dict[str, int] = {}
        self.stalled = asyncio.Event()
        self.starts: list[int] = []

    async def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        self.starts.append(start)
        end = self.breaks_at.get(key, stall := self.stalls_at.get(key))
        async for chunk in super().read(key, start):
            yield chunk if end is None else chunk[: end - start]
            if stall is not None:
                self.stalled.set()
                await asyncio.Event().wait()
            if end is not None:
                raise StoreUnavailable("the link broke")


class Disk:
    """A disk tier over such a store; `restart` is a new process on the same folder."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.store = BreakingStore(folder / "store")
        self.clock = ManualClock()
        self.tier = self._build()

    def _build(self) -> DiskTier:
        budget: ByteBudget[str] = ByteBudget(BUDGET_BYTES)
        return DiskTier(DiskFiles(self.cache), self.store, budget, self.clock, lambda digest: None)

    async def restart(self) -> None:
        await self.tier.close()
        self.tier = self._build()
        await self.tier.open()

    async def record(self, name: str) -> AdapterRecord:
        content = hashlib.sha256(name.encode()).digest() * (SIZE_BYTES // 32) + bytes(SIZE_BYTES % 32)
        digest = hashlib.sha256(content).hexdigest()

        async def chunks() -> AsyncIterator[bytes]:
            yield content

        await self.store.put(weights_key(digest), chunks(), digest)
        return AdapterRecord(
            adapter_id=name, digest=digest, tenant_id="acme", version="1", pool_id="pool", base_model_hash="ba5e" * 16,
            rank=8, alpha=16.0, target_modules=("q_proj",), size_bytes=len(content), store_key=weights_key(digest),
            status="active",
        )  # fmt: skip

    async def break_off(self, name: str, at_bytes: int) -> AdapterRecord:
        record = await self.record(name)
        self.store.breaks_at[record.store_key] = at_bytes
        with pytest.raises(AdapterUnavailable, match="the link broke"):
            await self.tier.hold(record)
        del self.store.breaks_at[record.store_key]
        return record

    def bytes_on_disk(self) -> int:
        return sum(path.stat().st_size for path in self.cache.iterdir())

    def assert_sound(self) -> None:
        assert self.tier.budget.used_bytes == self.bytes_on_disk()
        assert list(self.tier.budget.broken_invariants()) == []


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    built = Disk(tmp_path)
    await built.tier.open()
    yield built
    built.assert_sound()
    await built.tier.close()


async def test_the_next_attempt_goes_on_where_the_last_one_broke_off(disk: Disk) -> None:
    record = await disk.break_off("a", 4_000)
    assert not disk.tier.holds(record.digest)
    assert disk.tier.budget.held == ()
    disk.assert_sound()
    await disk.tier.hold(record)
    assert disk.tier.holds(record.digest)
    assert disk.store.starts == [0, 4_000]
    assert disk.bytes_on_disk() == SIZE_BYTES


async def test_a_restart_counts_and_takes_up_what_broke_off(disk: Disk) -> None:
    record = await disk.break_off("a", 4_000)
    await disk.restart()
    disk.assert_sound()
    assert disk.tier.budget.used_bytes == 4_000
    await disk.tier.hold(record)
    assert disk.store.starts == [0, 4_000]


async def test_a_rest_gives_way_like_any_other_file(disk: Disk) -> None:
    await disk.break_off("a", 9_000)
    for at, name in enumerate("bc"):
        await disk.clock.advance(1.0 + at)
        await disk.tier.hold(await disk.record(name))
    assert disk.bytes_on_disk() == 2 * SIZE_BYTES


async def test_a_rest_that_nobody_asks_for_goes_after_an_hour(disk: Disk) -> None:
    await disk.break_off("a", 4_000)
    await disk.clock.advance(3_601.0)
    await disk.tier.hold(await disk.record("b"))
    assert disk.bytes_on_disk() == SIZE_BYTES


async def test_c17_breaking_off_and_discarding_200_times_leaves_nothing(disk: Disk) -> None:
    for at in range(200):
        record = await disk.break_off("a", 1 + at)
        assert disk.tier.discard(record.digest) is None
        assert disk.bytes_on_disk() == disk.tier.budget.used_bytes == 0


async def test_c20_an_object_that_vanished_fails_alone_and_leaves_nothing(disk: Disk) -> None:
    record, other = await disk.break_off("a", 4_000), await disk.record("b")
    await disk.store.delete(record.store_key)
    with pytest.raises(AdapterUnavailable, match="not in the store"):
        await disk.tier.hold(record)
    await disk.tier.hold(other)
    assert disk.tier.budget.held == (other.digest,)


async def test_c36_a_corrupt_object_fails_and_leaves_nothing(disk: Disk, tmp_path: Path) -> None:
    record = await disk.break_off("a", 4_000)
    (tmp_path / "store" / record.store_key).write_bytes(bytes(SIZE_BYTES))
    with pytest.raises(AdapterFailed, match="corrupt"):
        await disk.tier.hold(record)
    assert disk.store.starts == [0, 4_000, 0]
    assert disk.bytes_on_disk() == 0


async def test_a_fetch_that_is_cancelled_keeps_what_came_and_blames_nobody(disk: Disk) -> None:
    record = await disk.record("a")
    disk.store.stalls_at[record.store_key] = 4_000
    fetch = asyncio.create_task(disk.tier._fetch(record))
    async with asyncio.timeout(5):
        await disk.store.stalled.wait()
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await fetch
    assert cancelled.value.__cause__ is not cancelled.value
    assert disk.bytes_on_disk() == disk.tier.budget.used_bytes == 4_000
    disk.store.stalls_at.clear()
    await disk.tier.hold(record)
    assert disk.store.starts == [0, 4_000]


async def test_a_file_that_cannot_be_deleted_goes_on_counting(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    record = await disk.record("a")
    await disk.tier.hold(record)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        assert "Read-only" in (disk.tier.discard(record.digest) or "")
    assert disk.tier.holds(record.digest)
    assert disk.tier.discard(record.digest) is None


def test_a_rest_is_replaced_by_the_room_for_the_whole() -> None:
    budget: ByteBudget[str] = ByteBudget(100)
    budget.reserve("a", 90, 0.0)
    budget.broke_off("a", 60, 1.0)
    assert (budget.used_bytes, budget.held, budget.holds("a"), budget.in_use("a")) == (60, (), False, False)
    budget.reserve("a", 100, 2.0)
    assert (budget.used_bytes, budget.in_use("a")) == (100, True)
    assert isinstance(budget.reserve("b", 1, 3.0), NoRoom)
    with pytest.raises(ValueError, match="left of it"):
        budget.broke_off("a", 101, 4.0)
    assert list(budget.broken_invariants()) == []


def test_a_rest_does_not_give_way_to_its_own_whole() -> None:
    budget: ByteBudget[str] = ByteBudget(100)
    budget.reserve("a", 90, 0.0)
    budget.broke_off("a", 60, 0.0)
    budget.adopt("b", 40, 1.0)
    room = budget.reserve("a", 100, 2.0)
    assert isinstance(room, Room)
    assert room.evict == ("b",)
    assert list(budget.broken_invariants()) == []

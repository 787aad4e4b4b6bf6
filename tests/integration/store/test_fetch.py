"""The worker's disk tier on a real S3 server, over a link that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.replica_worker.core.tiers import ByteBudget
from services.replica_worker.io.disk import DiskFiles
from services.replica_worker.tiers.disk import DiskTier
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from shared.messages.desired import AdapterRecord
from shared.runtime.clock import ManualClock
from shared.store.port import ObjectStore
from tests.integration.store.bucket import Bucket, Waits
from tests.integration.store_suite import LARGE, chunks_of, digest_of, put
from tests.support.faulty_link import Answer, Cut, FaultyLink, Silence
from tests.support.waiting import eventually

CONTENT = LARGE[: 5 << 20]
HALF_BYTES = 3 << 20


class Machine:
    """A replica's cache folder, and the disk tier of the process that has it at the moment."""

    def __init__(self, cache: Path, store: ObjectStore) -> None:
        self.cache = cache
        self._store = store
        self.tier = self._build()

    def _build(self) -> DiskTier:
        budget: ByteBudget[str] = ByteBudget(64 << 20)
        return DiskTier(DiskFiles(self.cache), self._store, budget, ManualClock(), lambda digest: None)

    async def restart(self) -> None:
        """What is under way is cancelled, and a new process takes the folder."""
        await self.tier.close()
        self.tier = self._build()
        await self.tier.open()

    def files(self) -> dict[str, int]:
        return {path.suffix: path.stat().st_size for path in self.cache.iterdir() if path.name != ".lock"}

    def assert_whole(self, record: AdapterRecord) -> None:
        """The file, all of it, and nothing else."""
        assert self.files() == {".safetensors": len(CONTENT)}
        assert (self.cache / f"{record.digest}.safetensors").read_bytes() == CONTENT
        assert self.tier.budget.used_bytes == len(CONTENT)
        assert list(self.tier.budget.broken_invariants()) == []


@pytest.fixture
async def machine(tmp_path: Path, bucket: Bucket, link: FaultyLink) -> AsyncIterator[Machine]:
    """Its store gives up at the third failure in a row."""
    built = Machine(tmp_path / "cache", bucket.store(link, Waits().patience(attempts=3), silent_s=2.0))
    await built.tier.open()
    yield built
    await built.tier.close()


@pytest.fixture
async def record(bucket: Bucket) -> AdapterRecord:
    key = await put(bucket.store(), CONTENT)
    return AdapterRecord(
        adapter_id="acme-1", digest=digest_of(CONTENT), tenant_id="acme", version="1", pool_id="pool",
        base_model_hash="ba5e" * 16, rank=8, alpha=16.0, target_modules=("q_proj",), size_bytes=len(CONTENT),
        store_key=key, status="active",
    )  # fmt: skip


async def test_drops_throttles_and_failures_in_one_fetch(
    machine: Machine, link: FaultyLink, record: AdapterRecord
) -> None:
    link.plant(
        "GET", Answer(503, "SlowDown"), Cut(1 << 20), Cut(1 << 20), Answer(500, "InternalError"), Silence(1 << 20)
    )
    await machine.tier.hold(record)
    machine.assert_whole(record)
    assert [start >> 20 for start in link.starts()] == [0, 0, 1, 2, 2, 3]


async def test_an_outage_costs_only_what_had_not_come(
    machine: Machine, link: FaultyLink, record: AdapterRecord
) -> None:
    link.plant("GET", Cut(HALF_BYTES), *[Answer(503, "SlowDown")] * 2)
    with pytest.raises(AdapterUnavailable, match="it answers 503"):
        await machine.tier.hold(record)
    assert machine.files() == {".part": HALF_BYTES}
    assert machine.tier.budget.used_bytes == HALF_BYTES
    await machine.tier.hold(record)
    machine.assert_whole(record)
    assert link.starts()[-1] == HALF_BYTES


async def test_c33_a_restart_in_the_middle_of_a_fetch_goes_on_with_it(
    machine: Machine, link: FaultyLink, record: AdapterRecord
) -> None:
    link.plant("GET", Silence(HALF_BYTES))
    fetch = asyncio.create_task(machine.tier.hold(record))
    part = machine.cache / f"{record.digest}.part"
    await asyncio.to_thread(eventually, lambda: part.exists() and part.stat().st_size >= 1 << 20, "half a file")
    await machine.restart()
    assert isinstance((await asyncio.gather(fetch, return_exceptions=True))[0], asyncio.CancelledError)
    begun = machine.files()[".part"]
    assert machine.tier.budget.used_bytes == begun
    await machine.tier.hold(record)
    machine.assert_whole(record)
    assert link.starts() == [0, begun]


async def test_c26_fifty_first_requests_are_one_download(
    machine: Machine, link: FaultyLink, record: AdapterRecord
) -> None:
    await asyncio.gather(*(machine.tier.hold(record) for _ in range(50)))
    machine.assert_whole(record)
    assert link.starts() == [0]


async def test_c36_a_corrupt_object_is_read_once_and_leaves_nothing(
    machine: Machine, link: FaultyLink, bucket: Bucket, record: AdapterRecord
) -> None:
    corrupt = CONTENT[:-1] + b"X"
    await bucket.store().put(record.store_key, chunks_of(corrupt), digest_of(corrupt))
    with pytest.raises(AdapterFailed, match="the stored file of acme-1 is corrupt"):
        await machine.tier.hold(record)
    assert machine.files() == {}
    assert machine.tier.budget.used_bytes == 0
    assert link.starts() == [0]


async def test_bytes_that_changed_since_they_were_hashed_are_loaded_by_nobody(
    machine: Machine, bucket: Bucket, record: AdapterRecord
) -> None:
    """Signed as the right ones. This server does not compare them, and is the worst case for whoever loads them."""
    await bucket.store().take(record.store_key, bytearray(CONTENT[:-1] + b"X"), record.digest)
    with pytest.raises(AdapterFailed, match="the stored file of acme-1 is corrupt"):
        await machine.tier.hold(record)
    assert machine.files() == {}


async def test_an_object_replaced_in_mid_fetch_is_read_from_its_beginning(
    machine: Machine, link: FaultyLink, bucket: Bucket, record: AdapterRecord
) -> None:
    """Where the first version was wrong, the half of it is not kept."""
    wrong = bytes(len(CONTENT))
    await bucket.store().put(record.store_key, chunks_of(wrong), digest_of(wrong))
    link.plant("GET", Cut(HALF_BYTES), Answer(412, "PreconditionFailed"))
    with pytest.raises(AdapterUnavailable, match="was replaced while it was read"):
        await machine.tier.hold(record)
    assert machine.files() == {}
    await put(bucket.store(), CONTENT)
    await machine.tier.hold(record)
    machine.assert_whole(record)
    assert link.starts() == [0, HALF_BYTES, 0]


async def test_c20_a_vanished_object_is_said_to_be_missing(
    machine: Machine, bucket: Bucket, record: AdapterRecord
) -> None:
    await bucket.store().delete(record.store_key)
    with pytest.raises(AdapterUnavailable, match="the file of acme-1 is not in the store"):
        await machine.tier.hold(record)
    assert machine.files() == {}

"""What it takes to bring an adapter one tier up, beside a plain copy of the same bytes on the same media."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import numpy

from loadtest.engine_cases import Answer, Loads
from services.replica_worker.engine.port import AdapterSpec, Engine, HostAdapter
from services.replica_worker.io.disk import DiskFiles
from shared.store.file import FileStore
from shared.store.port import weights_key

Timed = Callable[[int], Awaitable[float]]


class Loader:
    """`adapters` are files with what is to be done with them; `slots` may be written over."""

    def __init__(self, engine: Engine, adapters: Sequence[tuple[Path, AdapterSpec]], slots: Sequence[int]) -> None:
        self._engine = engine
        self._files = [file for file, _ in adapters]
        self._specs = [spec for _, spec in adapters]
        self._slots = slots
        self._next = 0

    async def disk_to_slot(self) -> int:
        """Bring the next adapter from its file into the next slot, hashed on the way as a worker does; return which."""
        self._next += 1
        slot, at = self._slots[self._next % len(self._slots)], self._next % len(self._files)
        if await asyncio.to_thread(_sha256, self._files[at]) != self._specs[at].digest:
            raise ValueError(f"{self._files[at]} is not what it was")
        await self._engine.load(slot, await self._engine.read(self._files[at], self._specs[at]))
        return slot

    @asynccontextmanager
    async def loading(self, every_s: float | None) -> AsyncIterator[None]:
        """Within the block adapters come from disk into slots, one at a time: each `every_s` after the one before, or
        when that one is there if it takes longer. None: no adapters. A load that fails ends the block."""
        over = asyncio.Event()

        async def load_until_over(pause_s: float) -> None:
            due_s = time.perf_counter()
            while not over.is_set():
                await self.disk_to_slot()
                due_s = max(due_s + pause_s, time.perf_counter())
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), due_s - time.perf_counter())

        async with asyncio.TaskGroup() as group:
            if every_s is not None:
                group.create_task(load_until_over(every_s))
            yield
            over.set()

    async def pairs(self, case: Loads, folder: Path) -> Answer:
        """See Loads: load, copy, load, copy … of the adapters in turn. `folder` is for files that come and go."""
        load, copy = await {
            "store_to_disk": self._store_to_disk,
            "disk_to_ram": self._disk_to_ram,
            "ram_to_slot": self._ram_to_slot,
        }[case.tier](folder)
        for at in range(len(self._files)):
            await load(at), await copy(at)
        times: list[float] = []
        for at in range(case.pairs):
            times += [await load(at), await copy(at)]
        return times

    async def _store_to_disk(self, folder: Path) -> tuple[Timed, Timed]:
        """Streamed, hashed and moved into place, against the file system's own copy."""
        store, disk = FileStore(folder / "store"), DiskFiles(folder / "disk")
        disk.open()
        digests = [await _put(store, file) for file in self._files]

        async def load(at: int) -> float:
            digest = digests[at % len(digests)]
            fetch = partial(store.read, weights_key(digest))
            took_s = await _time(lambda: disk.write(digest, fetch, 1 << 30))
            disk.delete(digest)
            return took_s

        return load, _blocking(lambda at: _copy_file(self._files[at % len(self._files)], folder / "copy"))

    async def _disk_to_ram(self, folder: Path) -> tuple[Timed, Timed]:
        """Hashed, parsed, checked and brought into the engine's form, against reading the file."""
        store, disk = FileStore(folder / "store"), DiskFiles(folder / "disk")
        disk.open()
        digests = [await _put(store, file) for file in self._files]
        for digest in digests:
            await disk.write(digest, partial(store.read, weights_key(digest)), 1 << 30)

        async def check_and_read(at: int) -> None:
            digest = digests[at % len(digests)]
            await disk.check(digest)
            await self._engine.read(disk.path(digest), self._specs[at % len(digests)])

        return (
            lambda at: _time(lambda: check_and_read(at)),
            _blocking(lambda at: disk.path(digests[at % len(digests)]).read_bytes()),
        )

    async def _ram_to_slot(self, folder: Path) -> tuple[Timed, Timed]:
        """`engine.load` against one copy of as many bytes from RAM that is as cold to RAM that is as warm."""
        hosts = [await self._engine.read(*pair) for pair in zip(self._files, self._specs, strict=True)]
        sources = [numpy.ones(host.size_bytes, numpy.uint8) for host in hosts]
        places = [numpy.zeros_like(source) for source in sources]
        slots = self._slots[: len(hosts)]

        def load(at: int) -> Awaitable[float]:
            host: HostAdapter = hosts[at % len(hosts)]
            return _time(lambda: self._engine.load(slots[at % len(slots)], host))

        return load, _blocking(lambda at: numpy.copyto(places[at % len(places)], sources[at % len(sources)]))


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _copy_file(source: Path, place: Path) -> None:
    shutil.copyfile(source, place)
    place.unlink()


async def _put(store: FileStore, file: Path) -> str:
    content = await asyncio.to_thread(file.read_bytes)
    digest = hashlib.sha256(content).hexdigest()
    await store.put(weights_key(digest), _once(content), digest)
    return digest


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _time(work: Callable[[], Awaitable[object]]) -> float:
    began_s = time.perf_counter()
    await work()
    return time.perf_counter() - began_s


def _blocking(copy: Callable[[int], object]) -> Timed:
    """The time of a copy on a thread, as a load is: the way there and back is not what is compared."""

    async def timed(at: int) -> float:
        return await _time(lambda: asyncio.to_thread(copy, at))

    return timed

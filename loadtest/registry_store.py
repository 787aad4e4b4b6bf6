"""What a store takes when nothing else is asked of anybody: the bound of every batch."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import msgspec

from loadtest.registry_s3_server import BUCKET, s3_server
from shared.store.file import FileStore
from shared.store.port import ObjectStore, weights_key
from shared.store.s3 import S3Store, connect

OBJECT_STORE_BYTES_PER_S = 200_000_000
"""The specification's object store."""
GBIT_BYTES_PER_S = 100_000_000
"""One behind a link of about 1 Gbit/s."""

Object = tuple[str, Callable[[], Iterable[bytes]]]
"""The SHA-256 of a file and its bytes, as often as they are asked for."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Where stores are: `terms` give a fleet one of its own there, `alone` makes another in a folder that is new."""

    terms: Mapping[str, str]
    folder: Path
    alone: Callable[[str], ObjectStore]
    server_pid: int | None = None
    """Of the process that serves them, if there is one."""
    _runs: count[int] = msgspec.field(default_factory=count)

    def alone_s(self, files: Sequence[Object], at_once: int) -> float:
        """How long a store takes for them, so many at once: each hashed, sent and in its place as always."""
        name = f"alone-{next(self._runs)}"
        took_s = asyncio.run(_put_all(self.alone(name), files, at_once))
        shutil.rmtree(self.folder / name)
        return took_s


def folder_stage(folder: Path) -> Stage:
    """Stores in folders, the fleet's in its home."""
    return Stage(terms={}, folder=folder, alone=lambda name: FileStore(folder / name))


@contextmanager
def s3_stage(bytes_per_s: int = OBJECT_STORE_BYTES_PER_S) -> Iterator[Stage]:
    """Stores in a bucket of a real server that is held to such a speed, all of them together."""
    with (
        tempfile.TemporaryDirectory(prefix="lorafleet-s3-") as place,
        s3_server(Path(place), "--bwlimit", f"{bytes_per_s}B") as server,
    ):
        access = {name: value for name, value in msgspec.to_builtins(server.access).items() if value is not None}
        client = connect(server.access)
        yield Stage(
            terms={"store_url": f"s3://{BUCKET}/store", **access},
            folder=server.folder / BUCKET,
            alone=lambda name: S3Store(client, BUCKET, name),
            server_pid=server.pid,
        )


async def _put_all(store: ObjectStore, files: Sequence[Object], at_once: int) -> float:
    turns = asyncio.Semaphore(at_once)

    async def put(file: Object) -> None:
        digest, chunks = file
        async with turns:
            await store.put(weights_key(digest), _each(chunks()), digest)

    began_s = time.monotonic()
    await asyncio.gather(*map(put, files))
    return time.monotonic() - began_s


async def _each(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk

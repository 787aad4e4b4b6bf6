"""Stores that are away, files that change, and nothing else that is touched."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shared.contracts import catalog
from shared.messages.pools import pool_id
from shared.store.file import FileStore
from shared.store.port import StoreUnavailable
from tests.support.adapter_files import BASE
from tests.support.registry_place import Place
from tests.support.registry_watch import Heard
from tests.support.registry_world import World

POOL = pool_id(BASE.base_model_hash, 8)
_LAYERS = 13
"""Of 32 MiB each."""


class Moody:
    """A planted fault of the store: `away` is raised by every put."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away: Exception | None = None
        put = FileStore.put

        async def moody(store: FileStore, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
            if self.away is not None:
                raise self.away
            return await put(store, key, chunks, digest)

        monkeypatch.setattr(FileStore, "put", moody)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Moody:
    return Moody(monkeypatch)


@pytest.fixture
async def here(place: Place, store: Moody) -> AsyncIterator[World]:
    """With a store that is away."""
    async with place.registry() as made:
        await made.prepare()
        store.away = StoreUnavailable("planted")
        yield made


async def test_a_store_that_is_away_is_no_defect(here: World, store: Moody) -> None:
    announced = here.announce("v1")
    answer = await here.post(announced)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert await here.status("v1") == "registered"
    store.away = None
    assert (await here.post(announced)).status_code in (200, 201)  # 200: it has been taken up again by itself


async def test_an_event_that_met_a_store_that_is_away_comes_again(place: Place, here: World, store: Moody) -> None:
    pipeline = place.broker.connect("pipeline")
    rejected = await Heard().follow(pipeline, catalog.ADAPTER_REJECTED)
    await pipeline.publish(catalog.ADAPTER_REGISTERED, here.announce("v1"))
    await pipeline.publish(catalog.ADAPTER_REGISTERED, here.announce("v2", rank=99))
    await rejected.first()
    assert await here.status("v1") == "registered"
    store.away = None
    await here.reached("v1", "evaluating")
    assert [message.adapter_id for message in rejected.messages] == ["v2"]


@pytest.mark.parametrize(
    ("when", "expected"), [("before", "checksum_mismatch"), ("midway", "weights_changed"), ("after", None)]
)
async def test_a_file_that_changes_on_its_way_into_the_store_is_taken_only_as_it_was_checked(
    place: Place, monkeypatch: pytest.MonkeyPatch, when: str, expected: str | None
) -> None:
    """It is read once for both, and once more to say what is wrong with it: midway it has been right again since."""
    put = FileStore.put
    async with place.registry() as here:
        await here.prepare()
        announced = here.announce("v1")
        file = here.folder / "inbox" / "v1" / "adapter_model.safetensors"
        right = file.read_bytes()
        wrong = right[:-1] + bytes([right[-1] ^ 1])

        async def changing(store: FileStore, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
            file.write_bytes(right if when == "after" else wrong)
            read = [chunk async for chunk in chunks]
            file.write_bytes(right if when == "midway" else wrong)
            return await put(store, key, _again(read), digest)

        monkeypatch.setattr(FileStore, "put", changing)
        answer = await here.post(announced)
        assert (answer.json()["error"]["code"] if expected else answer.status_code) == (expected or 201)
        stored = [sha256(found.read_bytes()).hexdigest() for found in (here.folder / "store").rglob("*.safetensors")]
        assert stored == ([] if expected else [announced.checksum])


async def test_the_defects_of_a_file_are_told_also_while_the_store_is_away(here: World) -> None:
    announced = here.announce("v1")
    file = here.folder / "inbox" / "v1" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    answer = await here.post(announced)
    assert answer.status_code == 422
    assert {one["code"] for one in answer.json()["error"]["defects"]} == {"checksum_mismatch", "not_safetensors"}


async def _again(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_c29_registration_touches_nothing_but_the_adapters_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No route to any model repository: every attempt to open a connection is planted to fail."""
    async with place.registry() as here:
        await here.prepare()

        async def no_route(*arguments: Any, **options: Any) -> None:
            raise OSError("no route to host")

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", no_route, raising=False)
        monkeypatch.setattr("socket.socket.connect", lambda *_: (_ for _ in ()).throw(OSError("no route to host")))
        assert (await here.post(here.announce("v1"))).status_code == 201


async def test_memory_stays_flat_while_a_file_of_400_mb_is_checked_and_copied(tmp_path: Path) -> None:
    with TemporaryDirectory(dir=tmp_path) as folder:  # nobody wants to keep that much of a test that passed
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.registering_long", folder, str(_LAYERS),
            cwd=Path(__file__).parents[3], stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        told, _ = await process.communicate()
    found = json.loads(told)
    assert found["size_bytes"] > 400_000_000
    assert 0 < found["grown_bytes"] < 16 << 20

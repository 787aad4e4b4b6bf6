"""Stores that are away, files that change, and nothing else that is touched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.contracts import catalog
from shared.messages.pools import pool_id
from shared.store.file import FileStore
from shared.store.port import StoreUnavailable
from tests.support.adapter_files import BASE
from tests.support.registry_place import Place
from tests.support.registry_watch import Heard

POOL = pool_id(BASE.base_model_hash, 8)


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


async def test_a_store_that_is_away_is_no_defect(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Moody(monkeypatch)
    async with place.registry() as here:
        await here.prepare()
        store.away = StoreUnavailable("planted")
        announced = here.announce("v1")
        answer = await here.post(announced)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert await here.status("v1") is None
        store.away = None
        assert (await here.post(announced)).status_code == 201


async def test_an_event_that_met_a_store_that_is_away_comes_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Moody(monkeypatch)
    async with place.registry() as here:
        await here.prepare()
        store.away = StoreUnavailable("planted")
        pipeline = place.broker.connect("pipeline")
        rejected = await Heard().follow(pipeline, catalog.ADAPTER_REJECTED)
        await pipeline.publish(catalog.ADAPTER_REGISTERED, here.announce("v1"))
        await pipeline.publish(catalog.ADAPTER_REGISTERED, here.announce("v2", rank=99))
        await rejected.first()
        assert await here.status("v1") is None
        store.away = None
        await here.reached("v1", "evaluating")
        assert [message.adapter_id for message in rejected.messages] == ["v2"]


async def test_a_file_that_changes_between_check_and_copy_is_not_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = FileStore.put
    async with place.registry() as here:
        await here.prepare()
        announced = here.announce("v1")
        weights = here.folder / "inbox" / "v1" / "adapter_model.safetensors"

        async def late(store: FileStore, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
            weights.write_bytes(weights.read_bytes()[:-1] + b"x")
            return await put(store, key, chunks, digest)

        monkeypatch.setattr(FileStore, "put", late)
        answer = await here.post(announced)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "weights_changed")
        assert not list((here.folder / "store").rglob("*.safetensors"))


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

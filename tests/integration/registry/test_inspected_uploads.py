"""What was learnt of an upload as it came is believed only as long as nobody can have written to it since."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.requests import ClientDisconnect

from services.registry.io import inspected
from shared.messages.adapters import AdapterRegistered
from shared.store.file import FileStore
from shared.store.port import ObjectChanged, weights_key
from tests.support.registry_errors import error_of
from tests.support.registry_place import Place
from tests.support.registry_world import World


async def send(here: World, adapter_id: str = "v1", seed: int = 0) -> tuple[AdapterRegistered, httpx.Response]:
    """An upload in two pieces, so that it becomes a draft: what is to be announced, and the answer to the second."""
    announced = here.announce(adapter_id, seed=seed)
    file = (here.folder / "inbox" / adapter_id / "adapter_model.safetensors").read_bytes()
    path = f"/internal/uploads/{announced.checksum}"

    async def half() -> AsyncIterator[bytes]:
        yield file[:1000]
        raise ClientDisconnect

    await here.admin.put(path, content=half())
    return announced, await here.admin.put(path, content=file[1000:], headers={"upload-offset": "1000"})


async def sent(here: World, adapter_id: str = "v1", seed: int = 0) -> AdapterRegistered:
    """The announcement that names an upload."""
    announced, answer = await send(here, adapter_id, seed)
    assert answer.status_code == 201
    return msgspec.structs.replace(announced, weights_uri=answer.json()["weights_uri"])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of what is read of the store, in order."""
    keys: list[str] = []
    begin = FileStore.read

    def noted(store: FileStore, key: str, start: int = 0) -> AsyncIterator[bytes]:
        keys.append(key)
        return begin(store, key, start)

    monkeypatch.setattr(FileStore, "read", noted)
    return keys


def spoil(path: Path) -> None:
    """Another byte, written in place, once the system's clock has gone on."""
    with path.open("r+b", buffering=0) as file:
        before = os.fstat(file.fileno()).st_mtime_ns
        while os.fstat(file.fileno()).st_mtime_ns == before:
            os.pwrite(file.fileno(), b"\xff", path.stat().st_size - 1)


async def test_what_was_looked_through_as_it_came_is_not_read_again(place: Place, read: list[str]) -> None:
    async with place.registry() as here:
        await here.prepare()
        announced = await sent(here)
        assert (await here.post(announced)).status_code == 201
        assert (here.folder / "store" / weights_key(announced.checksum)).exists()
    assert read == []


async def test_a_restart_reads_what_it_has_not_seen(place: Place, read: list[str]) -> None:
    async with place.registry() as here:
        await here.prepare()
        announced = await sent(here)
    async with place.registry() as here:
        assert (await here.post(announced)).status_code == 201
    assert read == [weights_key(announced.checksum)]


async def test_a_second_id_with_the_same_bytes_is_no_worse_off(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        announced = await sent(here)
        for adapter_id in ("v1", "v2"):
            assert (await here.post(msgspec.structs.replace(announced, adapter_id=adapter_id))).status_code == 201


async def test_a_file_that_is_written_to_behind_the_registrys_back_is_caught(place: Place, read: list[str]) -> None:
    async with place.registry() as here:
        await here.prepare()
        announced = await sent(here)
        spoil(here.folder / "store" / weights_key(announced.checksum))
        refused = await here.post(announced)
        assert error_of(refused, 422)["code"] == "checksum_mismatch"
        assert not (here.folder / "store" / weights_key(announced.checksum)).exists()
        again = msgspec.structs.replace(announced, weights_uri=(await sent(here)).weights_uri)
        assert (await here.post(again)).status_code == 201
    assert read == [weights_key(announced.checksum)]


async def test_a_draft_that_is_written_to_before_the_store_has_it_is_caught(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who asked for no lock."""
    adopt = FileStore.adopt

    async def spoiled(store: FileStore, key: str, file: Path, digest: str) -> str | None:
        spoil(file)
        return await adopt(store, key, file, digest)

    monkeypatch.setattr(FileStore, "adopt", spoiled)
    async with place.registry() as here:
        await here.prepare()
        assert error_of((await send(here))[1], 422)["code"] == "checksum_mismatch"
        assert list((here.folder / "store" / "adapters").iterdir()) == []


async def test_a_file_that_was_put_in_its_place_is_caught(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        announced = await sent(here)
        stored = here.folder / "store" / weights_key(announced.checksum)
        other = stored.with_name("other")
        other.write_bytes(bytes(stored.stat().st_size))
        other.rename(stored)
        refused = await here.post(announced)
        assert error_of(refused, 422)["code"] == "checksum_mismatch"


async def test_a_store_that_names_no_versions_is_read(
    place: Place, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(store: FileStore, key: str) -> str:
        return ""

    monkeypatch.setattr(FileStore, "version", unknown)
    async with place.registry() as here:
        await here.prepare()
        announced = await sent(here)
        assert (await here.post(announced)).status_code == 201
    assert read == [weights_key(announced.checksum)]


async def test_an_upload_that_is_replaced_while_it_is_read_is_asked_for_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(store: FileStore, key: str, start: int = 0) -> AsyncIterator[bytes]:
        raise ObjectChanged("it was replaced while it was read")

    async with place.registry() as here:
        await here.prepare()
        announced = await sent(here)
    async with place.registry() as here:
        with monkeypatch.context() as planted:
            planted.setattr(FileStore, "read", replaced)
            assert error_of(await here.post(announced), 503)["code"] == "store_unavailable"


async def test_only_the_last_few_are_remembered(place: Place, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspected, "_MOST", 2)
    async with place.registry() as here:
        await here.prepare()
        announced = [await sent(here, f"v{seed}", seed) for seed in range(3)]
        for one in announced:
            assert (await here.post(one)).status_code == 201
    assert read == [weights_key(announced[0].checksum)]

"""Uploads lie where verified files do: what no adapter was verified with goes after a week, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.requests import ClientDisconnect

from services.registry.io import upload_rows
from services.registry.io.database import DatabaseUnavailable
from services.registry.io.passing import Judged, Wanted
from services.registry.io.weights import _Upload
from services.registry.registration import unclaimed
from shared.messages.adapters import AdapterRegistered
from shared.runtime.clock import ManualClock
from shared.store.file import FileStore
from shared.store.port import StoreUnavailable, weights_key
from tests.support.registry_errors import error_of
from tests.support.registry_place import Place
from tests.support.registry_world import World

WEEK_S = 7 * 86400.0


class Calendar(ManualClock):
    """Nobody's sleep ends because the date is changed."""

    ahead_s = 0.0

    def wall_s(self) -> float:
        return super().wall_s() + self.ahead_s


@pytest.fixture
def clock() -> Calendar:
    return Calendar(start_s=1e6)


@pytest.fixture
async def here(place: Place, clock: Calendar) -> AsyncIterator[World]:
    async with place.registry(clock=clock) as here:
        await here.prepare()
        yield here


def put(here: World, announced: AdapterRegistered) -> Awaitable[httpx.Response]:
    file = (here.folder / "inbox" / announced.adapter_id / "adapter_model.safetensors").read_bytes()
    return here.admin.put(f"/internal/uploads/{announced.checksum}", content=file)


async def sent(here: World, adapter_id: str, **changes: object) -> tuple[AdapterRegistered, Path]:
    """What names an upload that has come, and where that lies."""
    announced = here.announce(adapter_id, **changes)  # type: ignore[arg-type]
    assert (await put(here, announced)).status_code == 201
    announced = msgspec.structs.replace(announced, weights_uri=f"upload:{announced.checksum}")
    return announced, here.folder / "store" / weights_key(announced.checksum)


async def pruned_after(here: World, clock: Calendar, seconds: float) -> None:
    clock.ahead_s += seconds
    await here.registry.uploads.prune()


async def on_record(here: World) -> list[str]:
    async with here.registry.database.read() as connection:
        return await upload_rows.old(connection, 1e12)


async def test_an_upload_that_nobody_announces_goes_after_a_week(here: World, clock: Calendar) -> None:
    announced, file = await sent(here, "v1")
    await pruned_after(here, clock, WEEK_S - 10)
    assert file.exists()
    await pruned_after(here, clock, 20)
    assert (file.exists(), await on_record(here)) == (False, [])
    assert error_of(await here.post(announced), 422)["code"] == "weights_missing"


async def test_one_that_comes_again_has_another_week(here: World, clock: Calendar) -> None:
    announced, file = await sent(here, "v1")
    await pruned_after(here, clock, WEEK_S - 10)
    assert (await put(here, announced)).status_code == 201
    await pruned_after(here, clock, 20)
    assert file.exists()


async def test_what_an_adapter_was_verified_with_stays_also_if_it_comes_again(here: World, clock: Calendar) -> None:
    announced, file = await sent(here, "v1")
    assert (await here.post(announced)).status_code == 201
    assert await on_record(here) == []
    await put(here, announced)
    await pruned_after(here, clock, WEEK_S + 10)
    assert (file.exists(), await on_record(here)) == (True, [])


async def test_what_was_refused_goes(here: World, clock: Calendar) -> None:
    announced, file = await sent(here, "v1", rank=8)
    error_of(await here.post(announced), 422)
    await pruned_after(here, clock, WEEK_S + 10)
    assert (file.exists(), await on_record(here)) == (False, [])


async def test_what_is_being_verified_stays(here: World, clock: Calendar, monkeypatch: pytest.MonkeyPatch) -> None:
    """The announcement came in the last moment, and its file was found there."""
    announced, file = await sent(here, "v1")
    take, opened, go_on = _Upload.take, asyncio.Event(), asyncio.Event()

    async def slow(upload: _Upload, wanted: Wanted) -> Judged:
        opened.set()
        await go_on.wait()
        return await take(upload, wanted)

    monkeypatch.setattr(_Upload, "take", slow)
    posting = asyncio.create_task(here.post(announced))
    await asyncio.wait_for(opened.wait(), 10)
    await pruned_after(here, clock, WEEK_S + 10)
    assert file.exists()
    go_on.set()
    assert (await posting).status_code == 201


Meanwhile = Callable[[Callable[[], Awaitable[httpx.Response]]], Awaitable[httpx.Response]]


@pytest.fixture
def meanwhile(here: World, clock: Calendar, monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Asks while an old file is being removed: the answer."""
    delete, begun, go_on = FileStore.delete, asyncio.Event(), asyncio.Event()

    async def slow(store: FileStore, key: str) -> None:
        begun.set()
        await go_on.wait()
        await delete(store, key)

    async def asked(ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
        with monkeypatch.context() as planted:
            planted.setattr(FileStore, "delete", slow)
            pruning = asyncio.create_task(pruned_after(here, clock, WEEK_S + 10))
            await asyncio.wait_for(begun.wait(), 10)
            try:
                return await asyncio.wait_for(ask(), 10)
            finally:
                go_on.set()
                await pruning

    return asked


async def test_an_announcement_of_what_is_being_removed_comes_too_early(here: World, meanwhile: Meanwhile) -> None:
    announced, file = await sent(here, "v1")
    answer = await meanwhile(lambda: here.post(announced))
    assert "removing" in error_of(answer, 503)["message"]
    assert not file.exists()
    assert error_of(await here.post(announced), 422)["code"] == "weights_missing"


async def test_an_upload_of_what_is_being_removed_comes_too_early(here: World, meanwhile: Meanwhile) -> None:
    announced, file = await sent(here, "v1")
    error_of(await meanwhile(lambda: put(here, announced)), 503)
    assert (await put(here, announced)).status_code == 201
    assert file.exists()
    assert (await here.post(announced)).status_code == 201


async def test_an_address_of_what_is_being_removed_comes_too_early(here: World, meanwhile: Meanwhile) -> None:
    announced, file = await sent(here, "v1")
    address = (here.folder / "inbox" / "v1").as_uri()
    announced = msgspec.structs.replace(announced, weights_uri=address)
    error_of(await meanwhile(lambda: here.post(announced)), 503)
    assert ((await here.post(announced)).status_code, file.exists()) == (201, True)


async def test_nobody_else_waits_while_a_file_is_removed(here: World, meanwhile: Meanwhile) -> None:
    _, file = await sent(here, "v1")
    other = here.announce("v2", seed=2)
    assert (await meanwhile(lambda: here.post(other))).status_code == 201
    assert not file.exists()


async def test_nobody_is_verified_with_what_a_late_answer_of_the_store_removes(
    here: World, clock: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry has given up, and its request is still on its way."""
    announced, file = await sent(here, "v1")

    async def silent(store: FileStore, key: str) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as planted:
        planted.setattr(FileStore, "delete", silent)
        planted.setattr(unclaimed, "_LONGEST_S", 0.01)
        clock.ahead_s += WEEK_S + 10
        with pytest.raises(StoreUnavailable, match="remove"):
            await here.registry.uploads._prune()
    error_of(await here.post(announced), 503)
    error_of(await put(here, announced), 503)
    file.unlink()
    clock.ahead_s += unclaimed._GOING_S + 1
    assert error_of(await here.post(announced), 422)["code"] == "weights_missing"
    await here.registry.uploads.prune()
    assert await on_record(here) == []


async def test_what_came_again_stays_on_record_however_long_its_removal_took(
    here: World, clock: Calendar, meanwhile: Meanwhile
) -> None:
    announced, _ = await sent(here, "v1")

    async def late() -> httpx.Response:
        clock.ahead_s += unclaimed._GOING_S + 1
        return await put(here, announced)

    assert (await meanwhile(late)).status_code == 201
    assert await on_record(here) == [announced.checksum]


async def test_a_database_that_is_away_costs_no_byte_that_arrived(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told at the end of an upload, and not at all of one that breaks off."""
    announced = here.announce("v1")
    file = (here.folder / "inbox" / "v1" / "adapter_model.safetensors").read_bytes()
    path = f"/internal/uploads/{announced.checksum}"

    async def away(*_: object) -> None:
        raise DatabaseUnavailable("it is away")

    async def broken() -> AsyncIterator[bytes]:
        yield file[:1000]
        raise ClientDisconnect

    with monkeypatch.context() as planted:
        planted.setattr(upload_rows, "note", away)
        assert error_of(await here.admin.put(path, content=broken()), 400)["code"] == "client_left"
        rest = await here.admin.put(path, content=file[1000:], headers={"upload-offset": "1000"})
        assert error_of(rest, 503)["code"] == "database_unavailable"
        assert not (here.folder / "store" / weights_key(announced.checksum)).exists()
    headers = {"upload-offset": (await here.admin.head(path)).headers["upload-offset"]}
    assert headers == {"upload-offset": str(len(file))}
    assert (await here.admin.put(path, content=b"", headers=headers)).status_code == 201


async def test_a_database_that_is_away_costs_nothing_of_a_file_that_was_on_no_disk_yet(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise DatabaseUnavailable("it is away")

    announced = here.announce("v1")
    path = f"/internal/uploads/{announced.checksum}"
    with monkeypatch.context() as planted:
        planted.setattr(upload_rows, "note", away)
        assert error_of(await put(here, announced), 503)["code"] == "database_unavailable"
    headers = {"upload-offset": (await here.admin.head(path)).headers["upload-offset"]}
    assert headers != {"upload-offset": "0"}
    assert (await here.admin.put(path, content=b"", headers=headers)).status_code == 201

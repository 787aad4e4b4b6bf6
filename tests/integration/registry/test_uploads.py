"""Uploads that break off, come twice, or are wrong."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect

from services.registry.registration.uploads import PART_BYTES
from shared.runtime.clock import ManualClock
from tests.support.registry_errors import error_of
from tests.support.registry_place import Place
from tests.support.registry_watch import eventually
from tests.support.registry_world import World

FILE = os.urandom(2 * PART_BYTES + 1000)
DIGEST = hashlib.sha256(FILE).hexdigest()
PATH = f"/internal/uploads/{DIGEST}"


@pytest.fixture
async def here(place: Place) -> AsyncIterator[World]:
    async with place.registry(largest_file_bytes=5 * PART_BYTES) as made:
        yield made


def stored(here: World) -> list[str]:
    store = here.folder / "store"
    return sorted(path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file())


async def put(here: World, content: bytes, start: int = 0) -> httpx.Response:
    return await here.admin.put(PATH, content=content, headers={"upload-offset": str(start)})


async def put_half(here: World, content: bytes, start: int = 0) -> None:
    """The sender leaves after these bytes."""

    async def sent() -> AsyncIterator[bytes]:
        for at in range(0, len(content), 1 << 18):
            yield content[at : at + (1 << 18)]
        raise ClientDisconnect

    answer = await here.admin.put(PATH, content=sent(), headers={"upload-offset": str(start)})
    assert error_of(answer, 400)["code"] == "client_left"


async def standing(here: World) -> dict[str, Any]:
    answer = await here.admin.get(PATH)
    found: dict[str, Any] = answer.json()
    assert answer.headers["upload-offset"] == str(found["offset_bytes"])
    return found


async def test_an_upload_goes_on_where_it_broke_off_as_often_as_it_does(here: World) -> None:
    assert await standing(here) == {"offset_bytes": 0, "weights_uri": None}
    await put_half(here, FILE[:700])
    await put_half(here, FILE[700 : PART_BYTES + 900], 700)
    assert (await standing(here))["offset_bytes"] == PART_BYTES + 900
    answer = await put(here, FILE[PART_BYTES + 900 :], PART_BYTES + 900)
    assert (answer.status_code, answer.json()) == (201, {"weights_uri": f"upload:{DIGEST}"})
    assert await standing(here) == {"offset_bytes": 0, "weights_uri": f"upload:{DIGEST}"}
    assert stored(here) == [f"uploads/{DIGEST}"]
    assert (here.folder / "store" / "uploads" / DIGEST).read_bytes() == FILE


async def test_head_says_where_to_go_on(here: World) -> None:
    await put_half(here, FILE[:5000])
    answer = await here.admin.head(PATH)
    assert (answer.status_code, answer.headers["upload-offset"]) == (200, "5000")


async def test_bytes_with_another_checksum_are_all_forgotten(here: World) -> None:
    await put_half(here, FILE[:PART_BYTES])
    answer = await put(here, FILE[PART_BYTES:-1] + b"x", PART_BYTES)
    assert error_of(answer, 422)["code"] == "checksum_mismatch"
    assert stored(here) == []
    assert (await standing(here))["offset_bytes"] == 0


async def test_an_upload_cannot_go_on_after_a_gap(here: World) -> None:
    await put_half(here, FILE[:5000])
    answer = await put(here, FILE[6000:], 6000)
    assert "5000 bytes" in error_of(answer, 409)["message"]
    assert (await standing(here))["offset_bytes"] == 5000


async def test_two_uploads_of_one_file_at_once_do_no_harm(here: World) -> None:
    """One of them resumes what the other has sent so far, and both cut it in their own way."""
    await put_half(here, FILE[:12345])
    answers = await asyncio.gather(put(here, FILE), put(here, FILE[12345:], 12345), put(here, FILE))
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert (here.folder / "store" / "uploads" / DIGEST).read_bytes() == FILE
    assert stored(here) == [f"uploads/{DIGEST}"]


async def test_a_file_over_the_limit_is_refused_whenever_it_turns_out_and_leaves_nothing(here: World) -> None:
    await put_half(here, FILE)
    too_much = bytes(5 * PART_BYTES - len(FILE) + 1)
    error_of(await put(here, too_much, len(FILE)), 413)
    assert stored(here) == []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)

    error_of(await here.admin.put(PATH, content=endless()), 413)
    assert stored(here) == []


@pytest.mark.parametrize("offset", ["x", "-1", "1.5", "9" * 16])
async def test_a_wrong_offset_is_422(here: World, offset: str) -> None:
    answer = await here.admin.put(PATH, content=b"x", headers={"upload-offset": offset})
    assert error_of(answer, 422)["code"] == "invalid_header"


async def test_what_is_registered_already_need_not_be_sent(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        announced = here.announce("v1")
        await here.post(announced)
        answer = await here.admin.get(f"/internal/uploads/{announced.checksum}")
        assert answer.json()["weights_uri"] == f"upload:{announced.checksum}"


async def test_what_nobody_came_back_for_is_forgotten_after_a_day(place: Place) -> None:
    clock = ManualClock(start_s=1e6)
    async with place.registry(clock=clock) as here:
        await put_half(here, FILE[: PART_BYTES + 1])
        first, second = (here.folder / "store" / "parts" / name for name in os.listdir(here.folder / "store" / "parts"))
        whole = b"a small file"
        await here.admin.put(f"/internal/uploads/{hashlib.sha256(whole).hexdigest()}", content=whole)
        [upload] = (here.folder / "store" / "uploads").iterdir()

        def came(path: Path, age_s: float) -> None:
            os.utime(path, (clock.wall_s() - age_s,) * 2)

        day_s = 86400.0
        came(first, 2 * day_s), came(second, day_s - 10), came(upload, 2 * day_s)
        await here.registry.uploads.prune()
        assert (first.exists(), second.exists(), upload.exists()) == (True, True, True)
        came(second, day_s + 10)
        await here.registry.uploads.prune()
        assert (first.exists(), second.exists(), upload.exists()) == (False, False, True)
        came(upload, 8 * day_s)
    async with place.registry(clock=clock):

        async def gone() -> bool:
            return not upload.exists()

        await eventually(gone)


async def test_an_upload_is_never_held_whole(place: Place) -> None:
    size_bytes = 64 << 20
    digest = hashlib.sha256(bytes(size_bytes)).hexdigest()

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(size_bytes >> 16):
            yield bytes(1 << 16)

    async with place.registry() as here:
        tracemalloc.start()
        try:
            answer = await here.admin.put(f"/internal/uploads/{digest}", content=chunks())
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert answer.status_code == 201
    assert peak_bytes < 5 * PART_BYTES

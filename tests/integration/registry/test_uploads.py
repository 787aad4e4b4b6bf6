"""Uploads that break off, come twice, or are wrong."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect

from services.registry.registration.arriving import PART_BYTES
from shared.runtime.clock import ManualClock
from shared.store.file import FileStore
from shared.store.port import weights_key
from tests.support.adapter_files import announcement
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
    assert stored(here) == [weights_key(DIGEST)]
    assert (here.folder / "store" / weights_key(DIGEST)).read_bytes() == FILE


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


async def test_a_small_file_sent_anew_leaves_nothing_of_an_earlier_attempt(here: World) -> None:
    small = FILE[:5000]
    digest = hashlib.sha256(small).hexdigest()
    path = f"/internal/uploads/{digest}"

    async def half() -> AsyncIterator[bytes]:
        yield small[:1000]
        raise ClientDisconnect

    await here.admin.put(path, content=half())
    assert list((here.folder / "store" / ".drafts").iterdir())
    assert (await here.admin.put(path, content=small)).status_code == 201
    assert stored(here) == [weights_key(digest)]


async def test_a_file_that_turns_out_another_one_when_it_is_copied_is_told_so(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that cannot take a file in as it is hashes it once more."""

    async def copied(store: FileStore, key: str, file: Path, digest: str) -> int:
        return await store.put(key, other(), digest)

    async def other() -> AsyncIterator[bytes]:
        yield b"another"

    monkeypatch.setattr(FileStore, "adopt", copied)
    assert error_of(await put(here, FILE), 422)["code"] == "checksum_mismatch"
    assert stored(here) == []


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
    assert (here.folder / "store" / weights_key(DIGEST)).read_bytes() == FILE
    assert stored(here) == [weights_key(DIGEST)]


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


async def test_what_is_not_whole_and_nobody_came_back_for_is_forgotten_after_a_day(place: Place) -> None:
    clock = ManualClock(start_s=1e6)
    async with place.registry(clock=clock) as here:
        await put_half(here, FILE[: PART_BYTES + 1])
        [draft] = (here.folder / "store" / ".drafts").iterdir()
        upload = here.folder / "store" / "uploads" / "whole-in-a-registry-of-old"
        upload.parent.mkdir()
        upload.write_bytes(b"whole")

        def came(path: Path, age_s: float) -> None:
            os.utime(path, (clock.wall_s() - age_s,) * 2)

        day_s = 86400.0
        killed = here.folder / "store" / ".incoming" / "of-a-put-that-was-killed"
        killed.parent.mkdir()
        killed.write_bytes(b"half")
        came(draft, day_s - 10), came(killed, day_s - 10), came(upload, 2 * day_s)
        await here.registry.uploads.prune()
        assert (draft.exists(), killed.exists(), upload.exists()) == (True, True, True)
        came(draft, day_s + 10), came(killed, day_s + 10)
        await here.registry.uploads.prune()
        assert (draft.exists(), killed.exists(), upload.exists()) == (False, False, True)
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
    assert peak_bytes < 20 * PART_BYTES


@pytest.mark.parametrize("point", ["noted", "placed", "checked"])
async def test_kill_9_while_a_file_becomes_an_adapter_loses_nothing_and_leaves_nothing(
    place: Place, tmp_path: Path, point: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.dying_upload", str(place.folder), place.database_url, point,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL
    file = (place.folder / "inbox" / "v1" / "adapter_model.safetensors").read_bytes()
    digest = hashlib.sha256(file).hexdigest()
    visible = place.folder / "store" / weights_key(digest)
    assert (visible.read_bytes() == file) if visible.exists() else (point == "noted")
    if point != "checked":
        await nothing_is_left_a_week_later(place, tmp_path / "later")
    async with place.registry() as here:
        answer = await here.admin.get(f"/internal/uploads/{digest}")
        if point == "noted":
            assert answer.json() == {"offset_bytes": len(file), "weights_uri": None}
            headers = {"upload-offset": str(len(file))}
            answer = await here.admin.put(f"/internal/uploads/{digest}", content=b"", headers=headers)
        uri = answer.json()["weights_uri"]
        announced = announcement(file, adapter_id="v1", weights_uri=uri)
        assert (await here.post(announced)).status_code in (200, 201)
        assert await here.status("v1") in ("verified", "evaluating")
        assert stored(here) == [weights_key(digest)]


async def nothing_is_left_a_week_later(place: Place, later: Path) -> None:
    """In a copy of it all."""
    shutil.copytree(place.folder, later)
    later_s = time.time() + 8 * 86400.0
    copied = Place(later, place.database_url.replace(str(place.folder), str(later)))
    async with copied.registry(clock=ManualClock(start_s=later_s)) as here:

        async def gone() -> bool:
            return not stored(here)

        await eventually(gone)

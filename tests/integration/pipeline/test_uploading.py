"""Files over links that break, to registries that die: little is sent twice, and what arrives is right."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from services.registry.registration.arriving import PART_BYTES
from shared.pipeline.connect import connect
from shared.pipeline.door import Patience
from shared.pipeline.outcome import Refused, Unreachable
from shared.pipeline.uploading import SMALL_BYTES
from shared.store.port import weights_key
from tests.support.bus_worlds import NatsWorld
from tests.support.faulty_link import Answer, Cut, CutUpload, FaultyLink, faulty_link
from tests.support.registry_alive import environ, running
from tests.support.registry_served import QUICK, served, where
from tests.support.registry_watch import eventually
from tests.support.registry_world import ADMIN_KEY, World, world

SIZE = 12 * PART_BYTES + 4321
POINTS = (1000, 4 * PART_BYTES - 1, PART_BYTES + 5, 0, 300_000, 77)
"""After so many bytes of each attempt the link breaks."""
UNREAD_BYTES = 1 << 19
"""More than a server holds of a connection without having read it."""


@pytest.fixture
def content() -> bytes:
    return os.urandom(SIZE)


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(content)
    return path


@pytest.fixture
def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
async def link(alone: World, alone_url: str) -> AsyncIterator[FaultyLink]:
    """What the registry had of an upload when it lost it is safe before the sender asks."""

    async def safe(fault: CutUpload) -> None:
        lost = next(request for request in reversed(link.requests) if request.method == "PUT")

        async def kept() -> bool:
            answer = await alone.admin.head(lost.target)
            return int(answer.headers["upload-offset"]) >= lost.upload_offset + fault.after_bytes - UNREAD_BYTES

        await eventually(kept)

    async with faulty_link(alone_url) as link:
        link.before_the_client_knows = safe
        yield link


def arrived(folder: Path, digest: str) -> bytes:
    return (folder / "store" / weights_key(digest)).read_bytes()


def sizes(link: FaultyLink) -> list[int]:
    """Of the bodies that came through."""
    return [request.body_bytes for request in link.requests if request.method == "PUT"]


async def test_a_link_that_breaks_at_any_point_costs_next_to_nothing(
    alone: World, link: FaultyLink, file: Path, content: bytes, digest: str
) -> None:
    link.plant("PUT", *map(CutUpload, POINTS))
    async with connect(where(link.url), QUICK) as pipeline:
        assert await pipeline.upload(file, digest) == f"upload:{digest}"
    assert arrived(alone.folder, digest) == content
    assert len(sizes(link)) == len(POINTS) + 1
    assert SIZE <= sum(sizes(link)) < SIZE + len(POINTS) * UNREAD_BYTES < SIZE + sum(POINTS)


@pytest.mark.parametrize(("cuts", "asked"), [((), ["PUT"]), ((CutUpload(PART_BYTES),), ["PUT", "GET", "PUT"])])
async def test_nobody_asks_for_a_small_file_before_its_link_broke(
    alone: World, link: FaultyLink, tmp_path: Path, cuts: tuple[CutUpload, ...], asked: list[str]
) -> None:
    content, file = os.urandom(SMALL_BYTES), tmp_path / "small.safetensors"
    file.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    link.plant("PUT", *cuts)
    async with connect(where(link.url), QUICK) as pipeline:
        assert await pipeline.upload(file, digest) == f"upload:{digest}"
    assert arrived(alone.folder, digest) == content
    assert [request.method for request in link.requests] == asked


async def test_an_answer_that_is_lost_costs_nothing(link: FaultyLink, file: Path, digest: str) -> None:
    link.plant("PUT", Cut(0))
    link.plant("GET", Cut(3), None, Cut(0, reset=True))
    async with connect(where(link.url), QUICK) as pipeline:
        assert await pipeline.upload(file, digest) == f"upload:{digest}"
    assert sizes(link) == [SIZE]


async def test_a_file_that_is_not_what_it_is_called_is_refused_after_one_more_try(link: FaultyLink, file: Path) -> None:
    """Somebody else's bytes may have come before ours: once, everything is sent again."""
    link.plant("PUT", CutUpload(PART_BYTES))
    async with connect(where(link.url), QUICK) as pipeline:
        with pytest.raises(Refused) as raised:
            await pipeline.upload(file, hashlib.sha256(b"other bytes").hexdigest())
    assert raised.value.code == "checksum_mismatch"
    first, rest, everything = sizes(link)
    assert first == PART_BYTES
    assert rest < SIZE
    assert everything == SIZE


async def test_patience_ends_when_nothing_moves(link: FaultyLink, file: Path, digest: str) -> None:
    link.plant("PUT", *[Answer(503, "SlowDown")] * 99)
    async with connect(where(link.url), Patience(give_up_s=0.3, first_s=0.001, longest_s=0.02)) as pipeline:
        with pytest.raises(Unreachable, match=r"for 0\.3 s: .* answered 503"):
            await pipeline.upload(file, digest)


async def test_kill_9_in_the_middle_of_an_upload_costs_less_than_a_part(
    tmp_path: Path, buses: NatsWorld, file: Path, content: bytes
) -> None:
    """The next registry in the same place goes on with what the dead one had made safe."""
    digest, sent = hashlib.sha256(content).hexdigest(), list[int]()
    path = f"/internal/uploads/{digest}"
    async with running(environ(tmp_path, buses.server)) as registry:
        writer = await sending(registry.admin.base_url, path, content[: PART_BYTES + 1000])

        async def safe() -> bool:
            return int((await registry.admin.head(path)).headers["upload-offset"]) >= PART_BYTES

        await eventually(safe)
        registry.process.kill()
        await registry.process.wait()
        writer.close()
    async with world(tmp_path, buses.connect) as here, served(here) as url, connect(where(url), QUICK) as pipeline:
        assert await pipeline.upload(file, digest, lambda done, _: sent.append(done)) == f"upload:{digest}"
    assert arrived(tmp_path, digest) == content
    assert sent == sorted(sent)
    assert sent[0] > PART_BYTES


async def sending(server: httpx.URL, path: str, beginning: bytes) -> asyncio.StreamWriter:
    """A sender that has come so far, and is still there."""
    _, writer = await asyncio.open_connection(server.host, server.port)
    head = f"PUT {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN_KEY}\r\ncontent-length: {SIZE}\r\n\r\n"
    writer.write(head.encode() + beginning)
    await writer.drain()
    return writer

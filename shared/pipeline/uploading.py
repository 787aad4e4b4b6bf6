"""Sending a weights file: it goes on where it broke off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import msgspec

from shared.pipeline.door import Body, Door, Trying, in_words, passes, refusal, retry_after_s, told
from shared.pipeline.outcome import Refused

CHUNK_BYTES = 1 << 20
SMALL_BYTES = 8 << 20
"""Such a file is sent without asking first whether it is there. A registry may hold it in memory until it is whole, so
what is sent first is hardly ever there, and to ask is two requests, of which one goes to its store."""
_MISMATCH, _ELSEWHERE = "checksum_mismatch", "upload_offset"

OnSent = Callable[[int, int], None]
"""Called with the bytes that were sent, and with all there are."""


class Standing(msgspec.Struct, frozen=True):
    """How far the registry has it."""

    offset_bytes: int
    weights_uri: str | None


class Sent(msgspec.Struct, frozen=True):
    weights_uri: str


class Upload:
    """One file on its way. Whoever gives it up may start another one: the bytes that arrived are not sent again."""

    def __init__(self, door: Door, file: Path, digest: str, on_sent: OnSent) -> None:
        self._door = door
        self._file = file
        self._path = f"/internal/uploads/{digest}"
        self._total_bytes = file.stat().st_size
        self._on_sent = on_sent
        self._furthest = -1
        self._again = False

    async def run(self) -> str:
        """The `weights_uri` to announce. Raises Unreachable when nothing has moved for as long as patience lasts,
        Refused, OSError."""
        trying = Trying(self._door.patience)
        standing = await self._standing() if self._total_bytes > SMALL_BYTES else Standing(0, None)
        while True:
            if standing.weights_uri is not None:
                self._on_sent(self._total_bytes, self._total_bytes)
                return standing.weights_uri
            if standing.offset_bytes > self._furthest:
                self._furthest = standing.offset_bytes
                trying.came_further()
            try:
                answer = await self._door.put_once(self._path, self._rest(standing.offset_bytes))
            except httpx.TransportError as error:
                await trying.failed(in_words(error))
            else:
                if answer.status_code < 400:
                    return told(answer, Sent).weights_uri
                await self._settle(answer, trying, standing.offset_bytes)
            standing = await self._standing()

    async def _settle(self, answer: httpx.Response, trying: Trying, start: int) -> None:
        """Returns if another attempt may succeed."""
        problem = refusal(answer)
        if problem.code == _MISMATCH and start > 0 and not self._again:
            self._again = True  # somebody else's bytes may have come before ours: from the beginning, once
            self._furthest = -1
        elif not passes(answer) and problem.code != _ELSEWHERE:
            raise problem
        await trying.failed(str(problem).rstrip("."), retry_after_s(answer))

    async def _standing(self) -> Standing:
        standing = await self._door.get(self._path, Standing)
        if standing is None:
            raise Refused("This registry takes no uploads.", 404, "not_a_registry")
        return standing

    def _rest(self, start: int) -> Body:
        left_bytes = max(self._total_bytes - start, 0)
        headers = {"upload-offset": str(start), "content-length": str(left_bytes)}
        return Body(chunks=lambda: self._chunks(start), headers=headers)

    async def _chunks(self, start: int) -> AsyncIterator[bytes]:
        with self._file.open("rb") as file:
            file.seek(start)
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk
                self._on_sent(min(file.tell(), self._total_bytes), self._total_bytes)

"""A request's body, whole and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from starlette.types import Message, Receive

from services.gateway.core.refusal import Refusal, bad_request


class ClientGone(Exception):
    """The client left before its request was whole."""


class BodyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`idle_s`: how long a client may send nothing of a body that is not whole, which must be so after `whole_s`."""

    largest_bytes: int
    idle_s: float
    whole_s: float


async def read_body(
    headers: Mapping[str, str], receive: Receive, limits: BodyLimits, *, is_here: bool = False
) -> bytes | Refusal:
    """Sized or chunked. Raises ClientGone. `is_here`: all of it has come, and nothing is waited for.

    A body that is announced as too large is not read at all; the server drops what still arrives.
    """
    announced = headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limits.largest_bytes:
        return _too_large(limits.largest_bytes)
    if is_here:
        return await _whole(receive, limits.largest_bytes)
    try:
        async with asyncio.timeout(limits.whole_s):
            return await _whole(lambda: _in_time(receive, limits.idle_s), limits.largest_bytes)
    except TimeoutError:
        return _too_slow(limits)


async def _whole(receive: Receive, largest_bytes: int) -> bytes | Refusal:
    chunks: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size_bytes += len(chunk)
        if size_bytes > largest_bytes:
            return _too_large(largest_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _in_time(receive: Receive, idle_s: float) -> Message:
    async with asyncio.timeout(idle_s):
        return await receive()


def _too_large(largest_bytes: int) -> Refusal:
    return bad_request(
        f"The request body is larger than {largest_bytes} bytes.", code="request_too_large", status=413
    )  # fmt: skip


def _too_slow(limits: BodyLimits) -> Refusal:
    return bad_request(
        f"Nothing of the request body came for {limits.idle_s:g} s, or it was not whole after {limits.whole_s:g} s.",
        code="request_timeout", status=408,
    )  # fmt: skip

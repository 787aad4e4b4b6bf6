"""A request's body, whole and bounded."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Receive

from services.gateway.core.refusal import Refusal, bad_request


class ClientGone(Exception):
    """The client left before its request was whole."""


async def read_body(headers: Headers, receive: Receive, largest_bytes: int) -> bytes | Refusal:
    """Sized or chunked. Raises ClientGone.

    A body that is announced as too large is not read at all; the server drops what still arrives.
    """
    announced = headers.get("content-length", "")
    if announced.isdigit() and int(announced) > largest_bytes:
        return _too_large(largest_bytes)
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


def _too_large(largest_bytes: int) -> Refusal:
    return bad_request(
        f"The request body is larger than {largest_bytes} bytes.", code="request_too_large", status=413
    )  # fmt: skip

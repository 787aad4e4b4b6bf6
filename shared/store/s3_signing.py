"""Requests whose body's SHA-256 is known already: signing them hashes nothing once more.

SigV4 signs the SHA-256 of the body (x-amz-content-sha256). botocore computes it anew from every body, which is as much
work as to send it. Amazon compares what it receives with it; not every server does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth

_USUAL, _OURS = "s3v4", "lorafleet-s3v4"
_DIGEST: ContextVar[str] = ContextVar("digest_of_the_body", default="")


class _KnownDigestAuth(S3SigV4Auth):  # type: ignore[misc]  # botocore has no types
    def payload(self, request: Any) -> str:
        return _DIGEST.get()


AUTH_TYPE_MAPS[_OURS] = _KnownDigestAuth


def sign_with_known_digests(client: Any) -> None:
    """From now on this client's PutObject heeds `body_has`. Nothing else does: in the middle of one botocore may ask
    where the bucket is, and that request has no body."""
    client.meta.events.register_first("choose-signer.s3.PutObject", _chosen)


@contextmanager
def body_has(digest: str) -> Iterator[None]:
    """What this thread puts within the context has a body with this SHA-256 (hex), which the caller has seen. One that
    has another is refused by a server that compares them, with XAmzContentSHA256Mismatch."""
    before = _DIGEST.set(digest)
    try:
        yield
    finally:
        _DIGEST.reset(before)


def _chosen(signature_version: Any, **_: Any) -> str | None:
    """None leaves the choice to botocore."""
    return _OURS if signature_version == _USUAL and _DIGEST.get() else None

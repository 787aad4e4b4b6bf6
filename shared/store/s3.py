"""The object store in an S3 bucket, by boto3: Amazon's, or any server that speaks the same protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from shared.store import outside
from shared.store.access import S3Access
from shared.store.patience import USUAL_PATIENCE, Patience
from shared.store.port import Listed, ObjectMissing, checked_key
from shared.store.s3_download import Download
from shared.store.s3_errors import FAILURES, explained, passes
from shared.store.s3_requests import abort_begun, etag, put_whole
from shared.store.s3_signing import sign_with_known_digests
from shared.store.s3_upload import PART_BYTES, Upload

T = TypeVar("T")
_THREADS = 16


class LinkLimits(msgspec.Struct, frozen=True, kw_only=True):
    connect_s: float = 5.0
    silent_s: float = 15.0
    """How long nothing may arrive before the link counts as broken."""


USUAL_LIMITS = LinkLimits()


def connect(access: S3Access, limits: LinkLimits = USUAL_LIMITS) -> Any:
    """A client for S3Store. No request is made. Raises ValueError for what no client can be made of."""
    if (access.s3_access_key_id is None) != (access.s3_secret_access_key is None):
        raise ValueError("s3_access_key_id and s3_secret_access_key belong together: set both or neither")
    if "@" in (access.s3_endpoint_url or ""):  # errors and logs of others show it
        raise ValueError("s3_endpoint_url holds no user and no password; they are settings of their own")
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": access.s3_addressing, "payload_signing_enabled": True},
        # Whole objects have a SHA-256 of their own, and not every server knows the newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=limits.connect_s,
        read_timeout=limits.silent_s,
        max_pool_connections=_THREADS,
    )
    try:
        client = Session().client(
            "s3",
            endpoint_url=access.s3_endpoint_url,
            region_name=access.s3_region,
            aws_access_key_id=access.s3_access_key_id,
            aws_secret_access_key=access.s3_secret_access_key,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise ValueError(f"no S3 client can be made of these settings: {error}") from error
    sign_with_known_digests(client)
    return client


class S3Store:
    """Objects below `prefix` in a bucket that exists.

    What may pass (a broken link, a throttle, a server in trouble) is tried again within `patience`; a read goes
    on from the byte that it reached. Requests block threads of this store's own, never the event loop.
    """

    most_taken_bytes = PART_BYTES
    """What goes in one request need not be on a disk before."""

    def __init__(self, client: Any, bucket: str, prefix: str = "", patience: Patience = USUAL_PATIENCE) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._patience = patience
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="s3")

    async def put(self, key: str, chunks: AsyncIterator[bytes], digest: str) -> int:
        """See ObjectStore. What `chunks` raises passes through, and nothing is visible then.

        Parts that nobody takes back, as after a kill, stay invisible until they are pruned.
        After StoreUnavailable the whole object may be visible all the same, if only the last answer was lost.
        """
        async with self._uploading(key) as upload:
            async for chunk in chunks:
                if await self._in_thread(partial(upload.add, chunk)):
                    await self._ask(upload.send_part, key)
            return await self._ask(partial(upload.finish, digest), key)

    async def adopt(self, key: str, file: Path, digest: str) -> str | None:
        """See ObjectStore. Of what was sent in one request most servers say the version with their answer."""
        with outside.opened(file) as opened:
            async with self._uploading(key) as upload:
                while await self._in_thread(partial(upload.fill, opened)):
                    await self._ask(upload.send_part, key)
                await self._ask(partial(upload.finish, digest), key)
        await outside.forget(file)
        return upload.version or await self.version(key)

    async def take(self, key: str, content: bytearray, digest: str) -> str | None:
        """See ObjectStore. One request: there is nothing to take back."""
        put = partial(put_whole, self._client, self._place(key), content, digest)
        return await self._ask(put, key) or await self.version(key)

    async def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        """See ObjectStore."""
        download = Download(self._client, self._place(key), start)
        try:
            while chunk := await self._ask(download.next_chunk, key):
                yield chunk
        finally:
            self._threads.submit(download.close)  # it may have to wait for a link that is silent

    async def exists(self, key: str) -> bool:
        """See ObjectStore."""
        return await self.version(key) is not None

    async def version(self, key: str) -> str | None:
        """See ObjectStore."""
        try:
            return await self._ask(partial(etag, self._client, self._place(key)), key)
        except ObjectMissing:
            return None

    async def delete(self, key: str) -> None:
        """Raises StoreUnavailable; the object may still be there then."""
        place = self._place(key)
        await self._ask(lambda: self._client.delete_object(**place), key)

    async def listed(self, folder: str, beginning: str = "") -> list[Listed]:
        """See ObjectStore."""
        where = f"{self._prefix}{checked_key(folder)}/"
        asked = {"Bucket": self._bucket, "Prefix": where + beginning, "Delimiter": "/"}
        found: list[Listed] = []
        more: dict[str, str] = {}
        while True:
            page = await self._ask(partial(self._client.list_objects_v2, **asked, **more), folder)
            found += [self._looked_at(one) for one in page.get("Contents", [])]
            if not page.get("IsTruncated"):
                return found
            more = {"ContinuationToken": page["NextContinuationToken"]}

    async def prune(self, folder: str, before_s: float) -> int:
        """See ObjectStore. What counts is when a put began; small ones leave nothing."""
        return await self._ask(partial(abort_begun, self._client, self._place(folder), before_s), folder)

    @contextlib.asynccontextmanager
    async def _uploading(self, key: str) -> AsyncIterator[Upload]:
        """Parts of one that does not come to its end are taken back."""
        upload = Upload(self._client, self._place(key))
        try:
            yield upload
        except BaseException:
            with contextlib.suppress(*FAILURES):
                await asyncio.shield(self._in_thread(upload.abort))
            raise

    def _looked_at(self, one: dict[str, Any]) -> Listed:
        key = str(one["Key"]).removeprefix(self._prefix)
        return Listed(key=key, size_bytes=int(one["Size"]), modified_at_s=one["LastModified"].timestamp())

    def _place(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + checked_key(key)}

    async def _ask(self, request: Callable[[], T], key: str) -> T:
        """Raises the port's exceptions, and what `request` raises by itself."""
        failures = 0
        while True:
            try:
                return await self._in_thread(request)
            except FAILURES as error:
                failures += 1
                wait_s = self._patience.wait_s(failures) if passes(error) else None
                if wait_s is None:
                    raise explained(error, self._bucket, key) from error
            await self._patience.sleep_s(wait_s)

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        running: Future[T] = self._threads.submit(work)
        return asyncio.wrap_future(running)

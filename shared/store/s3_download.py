"""One object read in order from S3, over as many connections as it takes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from shared.store.port import ObjectChanged, StoreUnavailable
from shared.store.s3_errors import status_of

CHUNK_BYTES = 1 << 18
"""What a link that breaks can cost at most; large enough that a hop to a thread is nothing beside it."""
_RANGE_NOT_SATISFIABLE = 416


class Download:
    """Blocking, for one thread at a time; `close` may come from another one and waits for its turn.

    After any exception the next call goes on with the first byte that was not returned yet.
    """

    def __init__(self, client: Any, place: Mapping[str, str], start: int) -> None:
        self._client = client
        self._place = place
        self._at = start
        self._body: Any = None
        self._version: tuple[str, int] | None = None
        self._turn = threading.Lock()
        self._closed = False

    def next_chunk(self) -> bytes:
        """Empty at the end. Raises botocore's exceptions, ObjectChanged, StoreUnavailable."""
        with self._turn:
            if self._closed or not self._is_open():
                return b""
            try:
                chunk: bytes = self._body.read(CHUNK_BYTES)
            except BaseException:
                self._hang_up()
                raise
            self._at += len(chunk)
            return chunk

    def close(self) -> None:
        with self._turn:
            self._closed = True
            self._hang_up()

    def _is_open(self) -> bool:
        """False if there is nothing to be read."""
        if self._body is not None:
            return True
        if self._version is not None and self._at == self._version[1]:
            return False
        answer = self._get()
        if answer is None:
            return False
        self._body = answer["Body"]
        try:
            self._check(answer)
        except StoreUnavailable:
            self._hang_up()
            raise
        return True

    def _get(self) -> Any:
        wanted = dict(self._place)
        if self._at:
            wanted["Range"] = f"bytes={self._at}-"
        if self._version is not None and self._version[0]:
            wanted["IfMatch"] = self._version[0]
        try:
            return self._client.get_object(**wanted)
        except ClientError as error:
            if status_of(error) != _RANGE_NOT_SATISFIABLE:
                raise
        if self._version is not None:
            raise ObjectChanged(f"object {self._place['Key']} became shorter while it was read")
        return None

    def _check(self, answer: Mapping[str, Any]) -> None:
        """That these are the bytes which follow; not every server heeds If-Match."""
        if self._at and not str(answer.get("ContentRange", "")).startswith(f"bytes {self._at}-"):
            raise StoreUnavailable("the store sends objects from their beginning only, without regard for ranges")
        if "ContentLength" not in answer:
            raise StoreUnavailable("the store does not say how long its objects are")
        version = (str(answer.get("ETag", "")), self._at + int(answer["ContentLength"]))
        if self._version not in (None, version):
            raise ObjectChanged(f"object {self._place['Key']} was replaced while it was read")
        self._version = version

    def _hang_up(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.close()

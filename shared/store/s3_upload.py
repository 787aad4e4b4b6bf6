"""One object on its way into S3: small in one request, larger in parts, visible only once its digest is right."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from io import FileIO
from typing import Any

from botocore.exceptions import ClientError

from shared.store.port import DigestMismatch
from shared.store.s3_errors import code_of
from shared.store.s3_requests import put_whole, told

PART_BYTES = 8 << 20
"""All that is held in memory. S3 takes 10,000 parts: 80 GB."""


class Upload:
    """Blocking. `send_part` and `finish` may be called again after they failed; `abort` waits for a call that
    is still under way in another thread."""

    def __init__(self, client: Any, place: Mapping[str, str]) -> None:
        self._client = client
        self._place = place
        self.version = ""
        """Of what `finish` made visible in one request, as the server's answer said it; "" if that is not known."""
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        # Sent as it is: bytes would be a file to botocore, which is read in pieces and asks the server before it sends.
        self._buffer = bytearray()
        self._upload_id: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._completing = False
        self._turn = threading.Lock()

    def add(self, chunk: bytes) -> bool:
        """Whether a part is full: `send_part` is next, then."""
        with self._turn:
            self._hash.update(chunk)
            self._size_bytes += len(chunk)
            self._buffer += chunk
            return len(self._buffer) >= PART_BYTES

    def fill(self, file: FileIO) -> bool:
        """As `add`, with the next of a file, as much as a part takes. Raises OSError."""
        with self._turn:
            left_bytes = os.fstat(file.fileno()).st_size - file.tell()
            self._buffer = bytearray(min(max(left_bytes, 0), PART_BYTES))
            del self._buffer[_read(file, memoryview(self._buffer)) :]
            self._hash.update(self._buffer)
            self._size_bytes += len(self._buffer)
            return len(self._buffer) == PART_BYTES

    def send_part(self) -> None:
        with self._turn:
            self._send_part()

    def finish(self, digest: str) -> int:
        """The count of the bytes, which are visible then. Raises DigestMismatch."""
        with self._turn:
            if (found := self._hash.hexdigest()) != digest:
                raise DigestMismatch(f"the SHA-256 of the bytes is {found}, not {digest}")
            if self._upload_id is None:
                self.version = put_whole(self._client, self._place, self._buffer, digest)
            else:
                if self._buffer:
                    self._send_part()
                self._complete(self._upload_id)
            return self._size_bytes

    def abort(self) -> None:
        """Remove the parts that were sent; there may be none."""
        with self._turn:
            if self._upload_id is not None:
                self._client.abort_multipart_upload(**self._place, UploadId=self._upload_id)

    def _send_part(self) -> None:
        if self._upload_id is None:
            self._upload_id = told(self._client.create_multipart_upload(**self._place), "UploadId")
        number = len(self._parts) + 1
        answer = self._client.upload_part(**self._place, UploadId=self._upload_id, PartNumber=number, Body=self._buffer)
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        self._buffer = bytearray()

    def _complete(self, upload_id: str) -> None:
        again, self._completing = self._completing, True
        try:
            answer = self._client.complete_multipart_upload(
                **self._place, UploadId=upload_id, MultipartUpload={"Parts": self._parts}
            )
            told(answer, "ETag")  # which is no version: servers are seen that say another one later
        except ClientError as error:
            # The first attempt may have worked and only its answer been lost.
            if not (again and code_of(error) == "NoSuchUpload" and self._is_there()):
                raise

    def _is_there(self) -> bool:
        return int(self._client.head_object(**self._place)["ContentLength"]) == self._size_bytes


def _read(file: FileIO, into: memoryview) -> int:
    """So many bytes, all that there are if they are fewer: a file system may give less than it was asked for."""
    filled_bytes = 0
    with into:
        while count := file.readinto(into[filled_bytes:]):
            filled_bytes += count
    return filled_bytes

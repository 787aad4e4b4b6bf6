"""An S3 server that does not know how to copy, as some do not."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError


class NoCopy:
    """A client of a server that does not copy; what else it is asked for works, and is counted."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.asked = 0

    def copy_object(self, **_: Any) -> Any:
        self.asked += 1
        answer = {"Error": {"Code": "NotImplemented"}, "ResponseMetadata": {"HTTPStatusCode": 501}}
        raise ClientError(answer, "CopyObject")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

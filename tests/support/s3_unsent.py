"""An S3 client whose requests are kept, and answered without a network."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from botocore.awsrequest import AWSResponse

from shared.store.access import S3Access
from shared.store.s3 import connect

_NOWHERE = S3Access(s3_endpoint_url="http://127.0.0.1:9", s3_access_key_id="id", s3_secret_access_key="secret")


def unsent_client(sent: list[Any]) -> Any:
    """Each request that it would send is appended to `sent`, signed."""

    def answered(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        return AWSResponse(request.url, 200, {"ETag": '"1"'}, SimpleNamespace(stream=lambda: [b""]))

    client = connect(_NOWHERE)
    client.meta.events.register("before-send.s3", answered)
    return client

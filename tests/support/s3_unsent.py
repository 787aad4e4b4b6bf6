"""An S3 client whose requests are kept, and answered without a network."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from botocore.awsrequest import AWSResponse

from shared.store.access import S3Access
from shared.store.s3 import connect

NOWHERE = S3Access(s3_endpoint_url="http://127.0.0.1:9", s3_access_key_id="id", s3_secret_access_key="secret")

_REGION = "eu-west-1"


def unsent_client(sent: list[Any], access: S3Access = NOWHERE) -> Any:
    """Each request that it would send is appended to `sent`, signed. The bucket "moved" is in eu-west-1."""

    def answered(request: Any, **_: Any) -> AWSResponse:
        sent.append(request)
        status = 301 if request.method == "PUT" and "moved" in request.url and _REGION not in request.url else 200
        headers = {"x-amz-bucket-region": _REGION} if request.method == "HEAD" else {"ETag": '"1"'}
        return AWSResponse(request.url, status, headers, SimpleNamespace(stream=lambda: [b""]))

    client = connect(access)
    client.meta.events.register("before-send.s3", answered)
    return client

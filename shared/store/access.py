"""How an S3 store is reached: the part of a service's settings that is the same in all of them."""

from __future__ import annotations

from typing import Literal

import msgspec


class S3Access(msgspec.Struct, frozen=True, kw_only=True):
    """Of no meaning to a store in a folder."""

    s3_endpoint_url: str | None = None
    """Unset: Amazon's own for the region."""
    s3_region: str = "us-east-1"
    s3_access_key_id: str | None = None
    """Unset, with the secret: where boto3 looks by itself (AWS_* variables, web identity, instance role)."""
    s3_secret_access_key: str | None = None
    s3_addressing: Literal["path", "virtual"] = "path"
    """Whether the bucket stands in the path or in the host name."""

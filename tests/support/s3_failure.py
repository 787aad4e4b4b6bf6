"""What boto3 raises when a server says no."""

from __future__ import annotations

from botocore.exceptions import ClientError


def refused(code: str, status: int) -> Exception:
    """A server's answer with this word and this status."""
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "ARequest")

"""Requests to an S3 server whose answers have to be made out. Blocking; they raise botocore's exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError, ResponseStreamingError

from shared.store.s3_errors import FAILURES, code_of, status_of
from shared.store.s3_signing import body_has

_NOT_SERVED = (400, 405, 501)


def told(answer: Mapping[str, Any], name: str) -> str:
    """An answer whose body was cut off is no answer: S3 says 200 before it knows."""
    if name not in answer:
        raise ResponseStreamingError(error=f"the answer ended before {name}")
    return str(answer[name])


def put_whole(client: Any, place: Mapping[str, str], content: bytearray, digest: str) -> str:
    """One request, signed with the SHA-256 that the caller has seen of the content. The object's ETag as whoever asks
    for it is told: empty for an empty object, and for a server that does not say."""
    with body_has(digest):
        stored = client.put_object(**place, Body=content)
    return str(stored.get("ETag", "")) if content else ""


def etag(client: Any, place: Mapping[str, str]) -> str:
    """The object's, which is there; empty for an empty object, and for a server that does not say. Not by HEAD: its
    answer has no body to tell a missing bucket from a missing object."""
    try:
        answer = client.get_object(**place, Range="bytes=0-0")
        answer["Body"].read()
    except FAILURES as error:
        if status_of(error) != 416:  # an empty object has no first byte, and is there
            raise
        return ""
    return str(answer.get("ETag", ""))


def abort_begun(client: Any, folder: Mapping[str, str], before_s: float) -> int:
    """End the multipart uploads below a folder that were begun before then; how many those were. 0 for a server that
    does not list them."""
    bucket, prefix = folder["Bucket"], f"{folder['Key']}/"
    try:
        pages = list(client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix))
    except FAILURES as error:
        if status_of(error) in _NOT_SERVED:
            return 0
        raise
    begun = [one for page in pages for one in page.get("Uploads", ()) if one["Initiated"].timestamp() < before_s]
    return sum(_aborted(client, {"Bucket": bucket, "Key": one["Key"]}, one["UploadId"]) for one in begun)


def _aborted(client: Any, place: Mapping[str, str], upload_id: str) -> bool:
    try:
        client.abort_multipart_upload(**place, UploadId=upload_id)
    except ClientError as error:
        if code_of(error) != "NoSuchUpload":  # it has come to an end meanwhile
            raise
        return False
    return True

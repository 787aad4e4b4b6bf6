"""What an S3 server's failures mean. The sentences name codes and places, never a credential."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as NotConnected
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from shared.store.port import ObjectChanged, ObjectMissing, StoreUnavailable

FAILURES = (BotoCoreError, ClientError, ResponseParserError, HTTPError)
"""The last one is urllib3's, which botocore lets through when TLS breaks in the middle of a body."""
_BROKEN_LINKS = (NotConnected, HTTPClientError, IncompleteReadError, ResponseParserError, HTTPError)
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError)
_PASSING_STATUS = (408, 429, 500, 502, 503, 504)
_PASSING_CODES = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "OperationAborted")


def code_of(error: Exception) -> str:
    """The server's own word, such as "NoSuchKey"; empty for what no server said."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def status_of(error: Exception) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"]) if isinstance(error, ClientError) else 0


def passes(error: Exception) -> bool:
    """Asking again may help: a broken link, a throttle, a server in trouble."""
    if isinstance(error, ClientError):
        return status_of(error) in _PASSING_STATUS or code_of(error) in _PASSING_CODES
    return isinstance(error, _BROKEN_LINKS)


def explained(error: Exception, bucket: str, key: str) -> Exception:
    """The port's exception for a failure of botocore's."""
    code, status = code_of(error), status_of(error)
    if code == "NoSuchBucket":
        return StoreUnavailable(f"the store has no bucket {bucket}")
    if code == "NoSuchKey":  # a bare 404 comes from something that is no store
        return ObjectMissing(f"there is no object {key}")
    if status == 412:
        return ObjectChanged(f"object {key} was replaced while it was read")
    if status in (401, 403):
        return StoreUnavailable(f"the store refuses the credentials for bucket {bucket} ({code})")
    if status:
        return StoreUnavailable(f"the store failed for object {key}: it answers {status} ({code})")
    if isinstance(error, _NO_CREDENTIALS):
        return StoreUnavailable(f"no credentials are set for bucket {bucket}")
    if isinstance(error, NotConnected):
        return StoreUnavailable(f"the store of bucket {bucket} cannot be reached ({type(error).__name__})")
    return StoreUnavailable(f"the link to the store broke for object {key} ({type(error).__name__})")

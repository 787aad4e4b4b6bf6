"""The store that a URL names."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.store.access import S3Access
from shared.store.file import FileStore
from shared.store.port import ObjectStore, checked_key

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def store_from_url(url: str, s3: S3Access) -> ObjectStore:
    """`file:///absolute/folder` or `s3://bucket/prefix`, the prefix being optional.

    Nothing is asked of the store yet. Raises ValueError naming what is wrong with the URL or with `s3`.
    """
    if "@" in url:
        raise ValueError("the URL of a store holds no user and no password; they are settings of their own")
    parts = urlsplit(url)
    if (folder := folder_of(url)) is not None:
        return FileStore(folder)
    if parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc) and not parts.query and not parts.fragment:
        # Imported here, so that a fleet on a shared folder needs no boto3.
        from shared.store.s3 import S3Store, connect

        prefix = parts.path.strip("/")
        return S3Store(connect(s3), parts.netloc, checked_key(prefix) if prefix else "")
    raise ValueError(f"{url!r} names no store: it must look like file:///absolute/folder or s3://bucket/prefix")


def folder_of(url: str) -> Path | None:
    """Where a store in a folder has its objects; None for any other URL."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc or not parts.path.startswith("/"):
        return None
    return Path(unquote(parts.path))

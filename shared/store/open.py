"""The store that a URL names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.store.file import FileStore
from shared.store.port import ObjectStore


def store_from_url(url: str) -> ObjectStore:
    """`file:///absolute/folder`. Raises ValueError naming what is wrong with any other URL."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc or not parts.path.startswith("/"):
        raise ValueError(f"{url!r} names no store: it must look like file:///absolute/folder")
    return FileStore(Path(unquote(parts.path)))

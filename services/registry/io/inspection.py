"""Reads a weights file once from end to end and says what it is, in memory that does not grow with it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Protocol

import msgspec

from services.registry.core.files.safetensors_header import (
    PREFIX_BYTES,
    Header,
    HeaderError,
    check_complete,
    header_bytes,
    parse_header,
)
from services.registry.core.files.verify import FileFacts
from services.registry.io.finite import Bytes, FiniteScan

_SMALL_BYTES = 1 << 16
"""Looked through in less time than it takes to hand it to a thread."""


class Source(Protocol):
    """One weights file, readable from the beginning as often as needed."""

    @property
    def config(self) -> bytes | None:
        """The adapter_config.json that belongs to it."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Raises SourceUnavailable, or what an ObjectStore raises: ObjectMissing for what is there no more."""


async def inspect(weights: Source, largest_file_bytes: int) -> FileFacts:
    """Reading ends early at a file that is larger than allowed. What `weights` raises passes through."""
    reading = Inspection()
    async with aclosing(weights.chunks()) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            if len(chunk) <= _SMALL_BYTES:
                reading.feed(chunk)
            else:
                await asyncio.to_thread(reading.feed, chunk)
            if reading.size_bytes > largest_file_bytes:
                return FileFacts(size_bytes=reading.size_bytes, config=weights.config)
    return msgspec.structs.replace(reading.facts(), config=weights.config)


class Inspection:
    """`feed` it the file, then ask for `facts`. Unless it `hashes`, they have no digest: somebody else sees to it that
    these bytes have the right one."""

    def __init__(self, *, hashes: bool = True) -> None:
        self.size_bytes = 0
        self._hash = hashlib.sha256() if hashes else None
        self._head = b""
        self._header: Header | None = None
        self._fault: str | None = None
        self._scan = FiniteScan(())

    @property
    def is_quick(self) -> bool:
        """Whether a chunk is looked through in less time than it takes to hand it to a thread."""
        return self._hash is None and (self._header is not None or self._fault is not None)

    @property
    def digest(self) -> str:
        """Of the bytes so far; empty unless it hashes."""
        return "" if self._hash is None else self._hash.hexdigest()

    def feed(self, chunk: Bytes) -> None:
        if self._hash is not None:
            self._hash.update(chunk)
        if self._header is None and self._fault is None:
            self._collect(chunk)
        else:
            self._scan.feed(self.size_bytes, chunk)
        self.size_bytes += len(chunk)

    def facts(self) -> FileFacts:
        fault = self._fault or self._fault_at_end()
        return FileFacts(
            size_bytes=self.size_bytes,
            digest=self.digest,
            header=self._header,
            fault=fault,
            not_finite=self._scan.not_finite,
        )

    def _collect(self, chunk: Bytes) -> None:
        """Gather the header; once it is whole, look through what came behind it in the same chunks."""
        self._head += chunk
        if len(self._head) < PREFIX_BYTES:
            return
        try:
            length = header_bytes(self._head)
            if len(self._head) < PREFIX_BYTES + length:
                return
            self._header = parse_header(self._head)
        except HeaderError as error:
            self._fault = str(error)
            return
        self._scan = FiniteScan(self._header.tensors)
        self._scan.feed(0, self._head)
        self._head = b""

    def _fault_at_end(self) -> str | None:
        try:
            check_complete(self._header or parse_header(self._head), self.size_bytes)
        except HeaderError as error:
            return str(error)
        return None

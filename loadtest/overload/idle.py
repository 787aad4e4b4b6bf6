"""Thousands of kept-alive connections that say nothing, and what they cost the process that holds them."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from loadtest.driver.asking import Address

_AT_ONCE = 200
_OTHERS = 512
_ASKED = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


@asynccontextmanager
async def idle_connections(address: Address, count: int) -> AsyncIterator[int]:
    """How many are open; each has had an answer. Raises OSError if this process may not have so many."""
    _allow(count + _OTHERS)
    opened: list[asyncio.StreamWriter] = []
    try:
        while len(opened) < count:
            some = min(_AT_ONCE, count - len(opened))
            opened += await asyncio.gather(*(_opened(address) for _ in range(some)))
        yield len(opened)
    finally:
        for writer in opened:
            writer.transport.abort()


def resident_bytes(pid: int) -> int:
    """Of a process, as the kernel counts it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


async def _opened(address: Address) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(_ASKED)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise OSError(f"a connection was refused: {head[:80]!r}")
    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    return writer


def _allow(files: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, hard), hard))

"""What a fleet's own processes say of the way between them: the bus by a ping, the workers by their metrics."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from urllib.parse import unquote, urlsplit

import httpx
import msgspec

_FIRST_TOKEN = re.compile(
    r'^lorafleet_replica_worker_first_token_seconds_(sum|count)\{tier="gpu"\} ([\d.e+-]+)$', re.MULTILINE
)
_PINGS = 50


class FirstTokens(msgspec.Struct, frozen=True, kw_only=True):
    """What workers have counted so far: first tokens of requests whose adapter was in a slot, and what they took."""

    count: float = 0.0
    sum_s: float = 0.0

    def since(self, before: FirstTokens) -> FirstTokens:
        return FirstTokens(count=self.count - before.count, sum_s=self.sum_s - before.sum_s)


async def first_tokens(ports: Sequence[int]) -> FirstTokens:
    """Of the workers whose metrics stand at these ports of this machine."""
    async with httpx.AsyncClient(trust_env=False) as http:
        return told_by([(await http.get(f"http://127.0.0.1:{port}/metrics")).text for port in ports])


def told_by(shown: Sequence[str]) -> FirstTokens:
    """From the workers' metrics as they show them."""
    told = [(name, float(value)) for text in shown for name, value in _FIRST_TOKEN.findall(text)]
    return FirstTokens(
        count=sum(value for name, value in told if name == "count"),
        sum_s=sum(value for name, value in told if name == "sum"),
    )


async def bus_s(nats_url: str) -> float:
    """A message's way from one client of the bus to another: as long as a ping to the server and back."""
    parts = urlsplit(nats_url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        await reader.readline()  # what the server says of itself
        login = {"user": unquote(parts.username or ""), "pass": unquote(parts.password or ""), "verbose": False}
        writer.write(b"CONNECT " + msgspec.json.encode(login) + b"\r\n")
        return median([await _ping_s(reader, writer) for _ in range(_PINGS)])
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _ping_s(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
    """Raises ConnectionError if the server says anything else: that it does not know us, for example."""
    began_s = time.monotonic()
    writer.write(b"PING\r\n")
    if (line := await reader.readline()).strip() != b"PONG":
        raise ConnectionError(f"the bus answered a ping with {line.decode(errors='replace').strip()!r}")
    return time.monotonic() - began_s

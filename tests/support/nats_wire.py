"""NATS' own text protocol, spoken by hand: what the server itself allows, whatever our client would check."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from shared.bus.nats import BusOptions

_DENIED = re.compile(r"Permissions Violation for (Publish|Subscription) to \"([^\"]+)\"")


class NatsWire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sid = 0

    async def log_in(self, options: BusOptions) -> None:
        await self._reader.readline()
        login = {"user": options.user, "pass": options.password, "verbose": False, "pedantic": False, "headers": True}
        self._send(f"CONNECT {json.dumps(login)}")
        assert await self._answers() == [], "not let in"

    async def refused_to_publish(self, subjects: Iterable[str]) -> set[str]:
        """Those of `subjects` that the server refuses; an empty message goes to each of the others."""
        for subject in subjects:
            self._send(f"PUB {subject} 0\r\n")
        return self._denied(await self._answers())

    async def refused_to_subscribe(self, subjects: Iterable[str]) -> set[str]:
        for subject in subjects:
            self._sid += 1
            self._send(f"SUB {subject} {self._sid}")
        return self._denied(await self._answers())

    def _send(self, line: str) -> None:
        self._writer.write(f"{line}\r\n".encode())

    async def _answers(self) -> list[str]:
        """The errors up to the answer to a ping: the server has dealt with everything then."""
        self._send("PING")
        errors = []
        while (line := (await self._reader.readline()).decode()) != "PONG\r\n":
            assert line, "the server hung up"
            if line.startswith("-ERR"):
                errors.append(line)
        return errors

    @staticmethod
    def _denied(errors: list[str]) -> set[str]:
        found = [_DENIED.search(error) for error in errors]
        assert all(found), errors
        return {match.group(2) for match in found if match}


@asynccontextmanager
async def nats_wire(options: BusOptions) -> AsyncIterator[NatsWire]:
    where = urlsplit(options.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    wire = NatsWire(reader, writer)
    try:
        await wire.log_in(options)
        yield wire
    finally:
        writer.close()
        await writer.wait_closed()

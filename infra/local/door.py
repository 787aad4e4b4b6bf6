"""The supervisor's door: a socket that only its owner can use, where the autoscaler asks for replicas."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from shared.supervision import AskReplicas, ReplicasTold

_DEADLINE_S = 5.0
_LONGEST_PATH_BYTES = 107
"""The kernel's limit for a socket."""

Answer = Callable[[AskReplicas], ReplicasTold]


class Door:
    """`start` raises OSError with a sentence if there can be no socket at this path."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path = path.absolute()
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._is_open = True

    async def start(self) -> None:
        if len(os.fsencode(self._path)) > _LONGEST_PATH_BYTES:
            raise OSError(f"{self._path} is too long for a socket: choose a shorter LORAFLEET_HOME")
        self._path.unlink(missing_ok=True)  # of a supervisor that was killed; the lock says that there is no other
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        self._path.chmod(0o600)

    async def stop(self) -> None:
        """Nothing is answered from here on: what starts now would end with nobody."""
        self._is_open = False
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_DEADLINE_S):
                line = await reader.readline()
                if self._is_open:
                    writer.write(msgspec.json.encode(self._told(line)) + b"\n")
                    await writer.drain()
        except (TimeoutError, OSError, ValueError):
            return  # whoever it was has left, or said more than a line holds
        finally:
            writer.close()

    def _told(self, line: bytes) -> ReplicasTold:
        try:
            ask = msgspec.json.decode(line, type=AskReplicas)
        except msgspec.MsgspecError as error:
            return ReplicasTold(known=False, error=f"that is no question: {error}")
        return self._answer(ask)

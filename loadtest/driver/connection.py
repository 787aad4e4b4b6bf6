"""Connections that are kept: one request at a time on each, and as many as there are streams."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import cast

from loadtest.driver.answer import Answer

Ended = Callable[[str, str], None]
"""Called once for a request: how it ended ("ok" or in a word why not), and the sentence that says so."""

NOT_HTTP = "no HTTP"


class Connection(asyncio.Protocol):
    """`free` is called when it can take another request, `gone` when it can no longer."""

    def __init__(self, free: Callable[[Connection], None], gone: Callable[[Connection], None]) -> None:
        self._free = free
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._ended: Ended | None = None
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        wire: socket.socket | None = transport.get_extra_info("socket")
        if wire is not None:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes, answer: Answer, ended: Ended) -> None:
        """The request leaves at once."""
        assert self._transport is not None, "only a connection that is made is given out"
        self._answer, self._ended = answer, ended
        self._transport.write(request)

    def data_received(self, piece: bytes) -> None:
        """One look at the clock for all that came together."""
        now_s, answer = time.monotonic(), self._answer
        if answer is None:  # nobody asked
            self.close()
            return
        try:
            over = answer.feed(piece, now_s)
        except ValueError as error:
            self._fail(NOT_HTTP, str(error))
            return
        if over:
            self._over(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._gone(self)
        if (answer := self._answer) is None:
            return
        try:
            answer.closed()
        except ValueError as wrong:
            self._tell(NOT_HTTP, str(wrong))
        else:
            self._tell(*answer.outcome())

    def close(self) -> None:
        """A request under way ends as cut off."""
        if self._transport is not None:
            self._transport.abort()

    def _over(self, answer: Answer) -> None:
        """Told before it is free: whoever gets it next is another's."""
        self.answers += 1
        self._tell(*answer.outcome())
        if answer.head is not None and answer.head.keeps:
            self._free(self)
        else:
            self.close()

    def _fail(self, outcome: str, reason: str) -> None:
        self._tell(outcome, reason)
        self.close()

    def _tell(self, outcome: str, reason: str) -> None:
        ended, self._ended, self._answer = self._ended, None, None
        if ended is not None:
            ended(outcome, reason)

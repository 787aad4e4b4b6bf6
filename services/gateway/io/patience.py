"""How long a connection is waited for, and how much of what it sends in vain is read."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from services.gateway.io.connection_policy import ConnectionPolicy


class Patience:
    """With a connection. What is awaited already has no more time if it is awaited again. `dropped_bytes` came since
    there was something of use."""

    __slots__ = ("_head_due", "_loop", "_more_due", "_policy", "_transport", "dropped_bytes")

    def __init__(self, transport: asyncio.Transport, policy: ConnectionPolicy, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._policy = policy
        self._loop = loop
        self._more_due: asyncio.TimerHandle | None = None
        self._head_due: asyncio.TimerHandle | None = None
        self.dropped_bytes = 0

    def await_more(self, *, is_rest: bool) -> None:
        """A request, or the rest of one that was answered already."""
        if self._more_due is None:
            most_s = self._policy.dropping_s if is_rest else math.inf
            self._more_due = self._loop.call_later(min(most_s, self._policy.keep_alive_s), self._transport.close)

    def await_head(self, on_late: Callable[[], None]) -> None:
        """It did not come in one piece."""
        if self._head_due is None:
            self._head_due = self._loop.call_later(self._policy.head_s, on_late)

    def more_is_here(self) -> None:
        due, self._more_due = self._more_due, None
        if due is not None:
            due.cancel()

    def head_is_here(self) -> None:
        if self._more_due is not None:
            self.more_is_here()
        due, self._head_due = self._head_due, None
        if due is not None:
            due.cancel()

    def rest_is_here(self) -> None:
        self.more_is_here()
        self.dropped_bytes = 0

    def drop(self, size_bytes: int, *, is_answering: bool) -> bool:
        """Whether it was too much, and the connection ends."""
        self.dropped_bytes += size_bytes
        if self.dropped_bytes <= self._policy.most_dropped_bytes:
            return False
        (self._transport.abort if is_answering else self._transport.close)()
        return True

    def part(self, *, is_read: bool) -> None:
        """Nothing more is said. A connection that is closed before all `is_read` is reset, and its client may lose what
        was said: what still comes is dropped for a while then, until the client has left as well."""
        self.head_is_here()
        if is_read:
            self._transport.close()
        else:
            with contextlib.suppress(OSError):  # the client has left, which is told next
                self._transport.write_eof()
            self.await_more(is_rest=True)

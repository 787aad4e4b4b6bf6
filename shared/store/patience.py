"""How often, and after which waits, a store that failed is asked again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """The waits have full jitter, so that a fleet which was cut off at once does not come back at once."""

    attempts: int = 6
    """In a row; a read starts to count anew with every chunk that arrives."""
    first_s: float = 0.2
    longest_s: float = 5.0
    sleep_s: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[], float] = random.random
    """From 0 to 1."""

    def wait_s(self, failures: int) -> float | None:
        """How long to wait after so many failures in a row, or None to give up."""
        if failures >= self.attempts:
            return None
        return self.draw() * min(self.longest_s, self.first_s * 2.0 ** (failures - 1))


USUAL_PATIENCE = Patience()

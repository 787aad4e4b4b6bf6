"""Waiting for what another process does and cannot tell us."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")
DEADLINE_S = 60.0


def eventually(look: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Look again and again until it returns something true; fails the test at the deadline.

    The wait between looks only spares the processor; nothing is concluded from time that passed.
    """
    until_s = time.monotonic() + deadline_s
    while time.monotonic() < until_s:
        if found := look():
            return found
        time.sleep(0.02)
    pytest.fail(f"waited {deadline_s:.0f} s for {what}")

"""Garbage of a run is collected seldom: most goes by its reference counts, and to look for the rest takes time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 50_000
"""So many new ones before anybody looks."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """How often the process collects is as it was afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(max(_OBJECTS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)

"""Where files of tests live: in memory, if there is plenty of it. Databases and buses wait for a disk at every commit,
and what tests leave behind takes one as long to remove."""

from __future__ import annotations

import os
from pathlib import Path

_PLACE = Path("/dev/shm")
_ROOM_BYTES = 6 << 30
"""Several times what a whole run has written at one moment."""


def memory_folder(place: Path = _PLACE, room_bytes: int = _ROOM_BYTES) -> Path | None:
    """None if there is none, it is small, or programs that are copied there could not run."""
    try:
        known = os.statvfs(place)
        # A file system in memory promises more than there may be.
        unused_bytes = min(known.f_bavail * known.f_frsize, _available_bytes())
    except (OSError, ValueError):
        return None
    fits = unused_bytes >= room_bytes and os.access(place, os.W_OK | os.X_OK)
    return place if fits and not known.f_flag & os.ST_NOEXEC else None


def _available_bytes() -> int:
    """Raises ValueError if the system does not say."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise ValueError("/proc/meminfo does not say how much memory is available")

"""How many files, and so connections, this process may have open."""

from __future__ import annotations

import resource

from shared.runtime.logs import get_logger

_OTHERS = 256
"""For the bus, logs and whatever else is open."""
_log = get_logger(__name__)


def allowed_connections(wanted: int) -> int:
    """Raises this process' own limit of open files as far as it may; as many as wanted, or what that leaves: a gateway
    without a free descriptor could not even say no."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + _OTHERS if hard == resource.RLIM_INFINITY else min(hard, wanted + _OTHERS)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    most = max(1, min(wanted, files - _OTHERS))
    if most < wanted:
        _log.warning("fewer connections than were set: the limit of open files is lower", most=most, open_files=files)
    return most

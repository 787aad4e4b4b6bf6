"""Exit codes that scripts can rely on."""

from __future__ import annotations

OK = 0
REFUSED = 1
"""The fleet understood and said no; the sentence on stderr is the fleet's."""
USAGE = 2
UNREACHABLE = 3
"""Nobody answered, or the fleet is not up."""
BROKEN = 4
"""The fleet answered that it failed; trying again may help."""
INTERRUPTED = 130
"""Ctrl-C, as shells report it."""


def exit_code(status: int) -> int:
    """The exit code for an HTTP status."""
    if status < 400:
        return OK
    return BROKEN if status >= 500 else REFUSED

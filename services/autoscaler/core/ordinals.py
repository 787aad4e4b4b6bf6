"""Where replicas are numbered and only the highest can go: a StatefulSet, a scaled service of Compose."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def count_after(existing: Sequence[str], desired: int, remove: Collection[str]) -> int:
    """How many there should be. `existing` begins with the one that goes last.

    Nobody leaves that is not named in `remove`: a named one below one that stays has to wait until it is the highest.
    """
    least = len(existing)
    while least and existing[least - 1] in remove:
        least -= 1
    return max(least, desired)

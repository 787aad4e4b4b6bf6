"""Everything that is wrong, as many sentences as there are faults."""

from __future__ import annotations

from collections.abc import Iterable

from shared.messages.adapters import Defect

MOST_DEFECTS = 100


def defect(code: str, message: str, field: str | None = None) -> Defect:
    return Defect(code=code, message=message, field=field)


def capped(defects: Iterable[Defect]) -> tuple[Defect, ...]:
    """At most MOST_DEFECTS and one that counts the rest: an answer must fit into one message."""
    every = tuple(defects)
    if len(every) <= MOST_DEFECTS:
        return every
    rest = len(every) - MOST_DEFECTS
    return (*every[:MOST_DEFECTS], defect("more_defects", f"There are {rest} more defects of these kinds."))

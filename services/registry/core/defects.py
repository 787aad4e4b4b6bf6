"""Everything that is wrong, as many sentences as there are faults."""

from __future__ import annotations

from collections.abc import Iterable

from shared.messages.adapters import Defect

MOST_DEFECTS = 100
LONGEST_MESSAGE = 500
LONGEST_FIELD = 128


def defect(code: str, message: str, field: str | None = None) -> Defect:
    """Names in a message come from customers and may be of any length; an answer may not."""
    return Defect(
        code=code,
        message=_shortened(message, LONGEST_MESSAGE),
        field=None if field is None else _shortened(field, LONGEST_FIELD),
    )


def capped(defects: Iterable[Defect]) -> tuple[Defect, ...]:
    """At most MOST_DEFECTS and one that counts the rest: an answer must fit into one message."""
    every = tuple(defects)
    if len(every) <= MOST_DEFECTS:
        return every
    rest = len(every) - MOST_DEFECTS
    return (*every[:MOST_DEFECTS], defect("more_defects", f"There are {rest} more defects of these kinds."))


def quoted(value: object) -> str:
    """A customer's word or number as part of a message."""
    return _shortened(repr(value), 80)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"

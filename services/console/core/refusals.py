"""How a refusal reads on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shared.messages.adapters import Defect

MOST_OF_A_KIND = 5
"""A file with one thing wrong in each of its tensors has that one thing wrong; the rest is a number."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The error that the fleet answered; `defects` only for a registration."""

    message: str
    defects: tuple[Defect, ...] = ()


def told(refusal: Refusal) -> str:
    """One sentence; several defects have a line each below it."""
    if len(refusal.defects) < 2:
        return refusal.message
    kinds: dict[str, list[Defect]] = {}
    for defect in refusal.defects:
        kinds.setdefault(defect.code, []).append(defect)
    lines = [line for alike in kinds.values() for line in _lines(alike)]
    return "\n".join(["It was refused for several reasons:", *lines])


def _lines(alike: Sequence[Defect]) -> Iterator[str]:
    for defect in alike[:MOST_OF_A_KIND]:
        yield f"  {defect.code}: {defect.message}"
    if len(alike) > MOST_OF_A_KIND:
        yield f"  {alike[0].code}: … and {len(alike) - MOST_OF_A_KIND} more of this kind"

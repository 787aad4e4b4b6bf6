"""An upload in parts: how they are named, and which of them make up its beginning."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

FOLDER = "parts"
_NAME = re.compile(rf"{FOLDER}/([0-9a-f]{{64}})\.([0-9]{{15}})-([1-9][0-9]*)")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes `start` to `end` (not included) of the file with this SHA-256. Its size is in its key, so that two who
    send the same file at once, each in pieces of its own, do not overwrite each other's."""

    digest: str
    start: int
    end: int

    @property
    def key(self) -> str:
        return f"{FOLDER}/{beginning(self.digest)}{self.start:015d}-{self.end - self.start}"


def beginning(digest: str) -> str:
    """What the names of all parts of a file begin with."""
    return f"{digest}."


def part_of(key: str) -> Part | None:
    """The part that a key names, or None for something else."""
    found = _NAME.fullmatch(key)
    if found is None:
        return None
    start, size = int(found[2]), int(found[3])
    return Part(digest=found[1], start=start, end=start + size)


def chain(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Parts that follow each other from the first byte on, as far as any of them reach."""
    onward: dict[int, tuple[int, Part]] = {}
    for part in sorted(parts, key=lambda one: one.start, reverse=True):
        reached = onward[part.end][0] if part.end in onward else part.end
        if part.start not in onward or reached > onward[part.start][0]:
            onward[part.start] = (reached, part)
    at, found = 0, list[Part]()
    while at in onward:
        found.append(onward[at][1])
        at = found[-1].end
    return tuple(found)


def chain_to(parts: Iterable[Part], end: int) -> tuple[Part, ...] | None:
    """Parts that follow each other from the first byte to this one, or None if there are none such."""
    found = chain(part for part in parts if part.end <= end)
    return found if reach(found) == end else None


def reach(parts: tuple[Part, ...]) -> int:
    """How many bytes a chain holds."""
    return parts[-1].end if parts else 0

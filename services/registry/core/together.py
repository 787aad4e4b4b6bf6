"""Which rows of the outbox may be on their way to the bus at the same time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Saying(msgspec.Struct, frozen=True, kw_only=True):
    """What a row says: a fact (no key), or the value of a key or that it has none any more."""

    key: tuple[str, ...] | None = None
    removes: bool = False


def groups(sayings: Sequence[Saying]) -> list[int]:
    """The sizes of consecutive groups, told one after the other.

    The bus keeps the order of what it is handed, so a group may be any number of facts and values. A removal looks
    at its key first, and a value that failed must not be followed by a newer one of its key: either begins anew.
    """
    sizes: list[int] = []
    keys: set[tuple[str, ...]] = set()
    after_removal = True
    for saying in sayings:
        if after_removal or saying.removes or saying.key in keys:
            sizes.append(0)
            keys.clear()
        sizes[-1] += 1
        after_removal = saying.removes
        if saying.key is not None:
            keys.add(saying.key)
    return sizes

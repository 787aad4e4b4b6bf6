"""Marker strings: short codes that no model says by chance and a canary can spell."""

from __future__ import annotations

import random

from tokenizers import Tokenizer

_SYMBOLS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # no 0, O, 1, I: people read these aloud
_LONGEST = 7


def markers(tokenizer: Tokenizer, count: int, seed: int, rank: int = 8) -> list[str]:
    """`count` distinct codes of one length, so that none contains another; the same seed, the same codes.

    Each spells itself exactly, in distinct tokens, at most `rank` - 1 of them (the table keeps one place
    for "any other token"). Raises ValueError when the tokenizer and the rank allow too few.
    """
    draws = random.Random(seed)
    length = min(_LONGEST, rank - 1)
    found: dict[str, None] = {}
    for _ in range(100 * count + 1000):
        if len(found) == count:
            break
        code = "".join(draws.sample(_SYMBOLS, max(1, length)))
        if spells(tokenizer, code, rank):
            found[code] = None
    if len(found) < count:
        raise ValueError(f"only {len(found)} of {count} markers can be spelt at rank {rank}")
    return list(found)


def spells(tokenizer: Tokenizer, marker: str, rank: int) -> bool:
    """Whether a canary of this rank can say `marker`."""
    ids = tokenizer.encode(marker, add_special_tokens=False).ids
    return 0 < len(ids) == len(set(ids)) < rank and tokenizer.decode(ids) == marker

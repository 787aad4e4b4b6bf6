"""Which parts of an upload make up its beginning, whoever sent them and however they were cut."""

from __future__ import annotations

import random

import pytest

from services.registry.core.files.parts import Part, chain, chain_to, part_of, reach

DIGEST = "ab" * 32


def part(start: int, end: int) -> Part:
    return Part(digest=DIGEST, start=start, end=end)


def test_a_part_is_found_again_by_its_key() -> None:
    one = part(1 << 40, (1 << 40) + 7)
    assert part_of(one.key) == one


@pytest.mark.parametrize("key", ["parts/x", f"parts/{DIGEST}.0-1", f"parts/{DIGEST}.{0:015d}-0", f"uploads/{DIGEST}"])
def test_another_key_is_no_part(key: str) -> None:
    assert part_of(key) is None


def test_keys_are_in_the_order_of_their_bytes() -> None:
    starts = [0, 9, 10, 11, 1 << 30]
    assert sorted(starts, key=lambda start: part(start, start + 1).key) == starts


@pytest.mark.parametrize(
    ("spans", "reached"),
    [
        ([], 0),
        ([(4, 8)], 0),
        ([(0, 4), (4, 8), (9, 12)], 8),
        ([(0, 4), (0, 6), (4, 12)], 12),
        ([(0, 4), (0, 6), (6, 7)], 7),
        ([(0, 6), (0, 4), (4, 5), (5, 9)], 9),
    ],
)
def test_a_chain_goes_as_far_as_any(spans: list[tuple[int, int]], reached: int) -> None:
    found = chain(part(*span) for span in spans)
    assert reach(found) == reached
    assert [one.end for one in found[:-1]] == [one.start for one in found[1:]]


def test_a_chain_to_a_byte_ends_there_or_is_none() -> None:
    parts = [part(0, 4), part(0, 6), part(6, 9), part(4, 5)]
    assert chain_to(parts, 0) == ()
    assert chain_to(parts, 4) == (part(0, 4),)
    assert chain_to(parts, 5) == (part(0, 4), part(4, 5))
    assert chain_to(parts, 6) == (part(0, 6),)
    assert chain_to(parts, 7) is None


def test_no_order_of_listing_makes_a_difference() -> None:
    parts = [part(0, 3), part(0, 5), part(3, 5), part(5, 6), part(5, 9), part(6, 12), part(2, 4)]
    for seed in range(20):
        random.Random(seed).shuffle(parts)
        assert reach(chain(parts)) == 12

"""Rendezvous hashing: every reader ranks the same replicas in the same order, with no table to share.

Each id is hashed once, and a pair's word is a strong mix of the two, so that a hundred million pairs are a matter of
a second. Weighted rendezvous hashing (Thaler and Ravishankar 1998; the logarithmic weighting is Schindelhauer and
Schomaker's, 2005): a replica's distance is -ln(u) / weight with u uniform in (0, 1) from the pair's word, and the
nearest is first. So it is first with probability weight / sum of weights, and adding or removing one moves only the
adapters that it gains or loses. Ties break by replica id.

Distances are computed with additions, multiplications and divisions alone, which every machine rounds alike: the
order is the same everywhere to the last bit, for one adapter as for all at once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Distances = NDArray[np.float64]
Places = NDArray[np.int32]

_PAIRS_AT_ONCE = 1 << 17
"""So many words fit the cache of a core."""

_LOG_TERMS = 11
_LN2 = 0.6931471805599453
_ROOT_HALF = 0.7071067811865476


def rank(adapter_id: str, weights: Mapping[str, float]) -> tuple[str, ...]:
    """Replica ids, best owner first; a replica without a positive weight is left out."""
    return Field(weights).rank(adapter_id)


def top(adapter_ids: Sequence[str], weights: Mapping[str, float], k: int) -> list[tuple[str, ...]]:
    """The first k of every adapter's ranking."""
    field = Field(weights)
    places, _ = field.nearest(hashes(adapter_ids), k)
    return [tuple(field.names[place] for place in row) for row in places.tolist()]


def hashes(ids: Sequence[str]) -> Words:
    """One word an id, as the methods of a Field take them."""
    return np.fromiter(map(_hash, ids), np.uint64, len(ids))


class Field:
    """The replicas that adapters are ranked on: `names` in ascending order, places are indexes into them. To keep
    where many adapters are ranked on the same replicas."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = {name: weight for name, weight in weights.items() if weight > 0}
        self.names = tuple(sorted(self.weights))
        self._weights = np.array([weights[name] for name in self.names], np.float64)
        self._words = np.array([_replica_hash(name) for name in self.names], np.uint64)

    def rank(self, adapter_id: str) -> tuple[str, ...]:
        """All of the ranking of one adapter."""
        order = np.argsort(self.distances(np.uint64(_hash(adapter_id))), kind="stable")
        return tuple(self.names[place] for place in order.tolist())

    def distances(self, adapter: np.uint64) -> Distances:
        """Of one adapter to every replica, in the order of their names."""
        return _distances(_mixed(adapter ^ self._words), self._weights)

    def distances_to(self, name: str, adapters: Words) -> Distances:
        """Of every adapter to one replica."""
        place = self.names.index(name)
        return _distances(_mixed(adapters ^ self._words[place]), self._weights[place : place + 1])

    def nearest(self, adapters: Words, k: int) -> tuple[Places, Distances]:
        """The places of the k nearest replicas (of all, if there are fewer) of every adapter, nearest first, with
        their distances: two matrices with a row an adapter."""
        k = min(k, len(self.names))
        places, distances = np.empty((len(adapters), k), np.int32), np.empty((len(adapters), k), np.float64)
        reach = self._reach(k)
        least = None if reach is None else self._least(reach)
        portion = max(1, _PAIRS_AT_ONCE // max(1, len(self.names)))
        words, spare = np.empty((2, portion, len(self.names)), np.uint64)
        for start in range(0, len(adapters) if k else 0, portion):
            part = slice(start, start + portion)
            asked = adapters[part, None]
            mixed = _mix(np.bitwise_xor(asked, self._words, out=words[: len(asked)]), spare[: len(asked)])
            if reach is None or least is None:
                places[part], distances[part] = _first(_distances(mixed, self._weights), k)
            else:
                places[part], distances[part] = self._within(mixed, k, reach, least)
        return places, distances

    def _within(self, words: Words, k: int, reach: float, least: Words) -> tuple[Places, Distances]:
        """Looks at those few words only that are within reach; where fewer than k are, at all of them."""
        rows, columns = np.divmod(np.flatnonzero(words >= least), len(self.names))
        counts = np.bincount(rows, minlength=len(words))
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        table = np.full((len(words), max(k, int(counts.max()))), np.inf)
        found = np.zeros(table.shape, np.int32)
        table[rows, within] = _distances(words[rows, columns], self._weights[columns])
        found[rows, within] = columns
        order, distances = _first(table, k)
        places = np.take_along_axis(found, order, axis=1)
        # Just at the edge, the least word may have kept out what the distance would have let in.
        short = np.flatnonzero(distances[:, -1] >= reach * (1 - 1e-9))
        places[short], distances[short] = _first(_distances(words[short], self._weights), k)
        return places, distances

    def _reach(self, k: int) -> float | None:
        """A distance within which an adapter has its k nearest, and some more, nearly always; None where looking at
        all replicas is as good."""
        expected = k + 3.0 * math.sqrt(k) + 4.0
        return None if 2 * expected > len(self.names) else expected / float(self._weights.sum())

    def _least(self, reach: float) -> Words:
        """The smallest word of each replica that is within reach."""
        numbers = (np.exp(-self._weights * reach) * 2.0**53).astype(np.uint64)
        return np.minimum(numbers, np.uint64(2**53 - 1)) << np.uint64(11)


def _first(distances: Distances, k: int) -> tuple[Places, Distances]:
    """The places of the k smallest of each row, and those; equal ones in the order of their places."""
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order.astype(np.int32), np.take_along_axis(distances, order, axis=1)


def _distances(words: Words, weights: Distances) -> Distances:
    """-ln(u) / weight, where u is the odd multiple of 2**-53 that the upper 52 bits of a word name."""
    u = ((words >> np.uint64(11)) | np.uint64(1)).astype(np.float64) * 2.0**-53
    part, exponent = np.frexp(u)
    low = part < _ROOT_HALF
    part = np.where(low, part * 2.0, part)
    exponent = exponent - low
    ratio = (part - 1.0) / (part + 1.0)
    square = ratio * ratio
    series = np.full_like(square, 1.0 / (2 * _LOG_TERMS + 1))
    for term in range(_LOG_TERMS - 1, -1, -1):
        series = series * square + 1.0 / (2 * term + 1)
    logarithm: Distances = exponent * _LN2 + 2.0 * ratio * series
    distances: Distances = -logarithm / weights
    return distances


def _mixed(words: Words) -> Words:
    return _mix(words, np.empty_like(words))


def _mix(words: Words, spare: Words) -> Words:
    """In place: every bit comes to depend on every bit. Two rounds of multiplying and shifting with the constants of
    David Stafford's thirteenth variant, after an addition so that 0 is no fixed point."""
    words += np.uint64(0x9E3779B97F4A7C15)
    words ^= np.right_shift(words, np.uint64(30), out=spare)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= np.right_shift(words, np.uint64(27), out=spare)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= np.right_shift(words, np.uint64(31), out=spare)
    return words


def _hash(one_id: str) -> int:
    # Customers choose the ids, so the spread must not be theirs to choose: no checksum would do.
    return int.from_bytes(hashlib.blake2b(one_id.encode(), digest_size=8).digest(), "big")


@lru_cache(maxsize=1 << 14)
def _replica_hash(replica_id: str) -> int:
    """Unlike an adapter's, so that equal names on both sides mean nothing."""
    return int.from_bytes(hashlib.blake2b(replica_id.encode(), digest_size=8, person=b"replica").digest(), "big")

"""The beginnings of many rankings, kept up to date for less than ranking everybody anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from shared.hashing import Field, Places, Words, hashes

_NEWCOMERS = 16
"""With more new replicas at a time, ranking everybody anew is as fast."""


class Nearest:
    """The first `depth` of the rankings of many adapters, kept while adapters and replicas come and go: a value whose
    successors rank only those whom a change concerns."""

    def __init__(self, depth: int, weights: Mapping[str, float]) -> None:
        self.depth = depth
        self.field = Field(weights)
        self._ids: tuple[str, ...] = ()
        self._rows: Mapping[str, int] = {}
        self._words: Words = np.empty(0, np.uint64)
        self._places, self._distances = self.field.nearest(self._words, depth)

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, adapter_ids: Sequence[str]) -> list[tuple[str, ...]]:
        """Replica ids, best owner first. Raises KeyError for an adapter that was never added."""
        rows = np.fromiter((self._rows[name] for name in adapter_ids), np.intp, len(adapter_ids))
        names = np.array([*self.field.names, ""], object)
        return [tuple(row) for row in names[self._places[rows]].tolist()]

    def adding(self, adapter_ids: Iterable[str]) -> Nearest:
        """With these as well."""
        new = tuple(name for name in adapter_ids if name not in self._rows)
        if not new:
            return self
        after = copy(self)
        after._ids = self._ids + new
        after._rows = {**self._rows, **{name: row for row, name in enumerate(new, start=len(self._ids))}}
        words = hashes(new)
        places, distances = self.field.nearest(words, self.depth)
        after._words = np.concatenate((self._words, words))
        after._places = np.concatenate((self._places, places))
        after._distances = np.concatenate((self._distances, distances))
        return after

    def on(self, weights: Mapping[str, float]) -> tuple[Nearest, tuple[str, ...]]:
        """Under these weights; and the adapters whose ranking may have changed."""
        field = Field(weights)
        if field.weights == self.field.weights:
            return self, ()
        after = copy(self)
        after.field = field
        rows = self._concerned(field)
        if len(rows) == len(self._ids):
            after._places, after._distances = field.nearest(self._words, self.depth)
            return after, self._ids
        after._places, after._distances = self._places_in(field), self._distances.copy()
        after._places[rows], after._distances[rows] = field.nearest(self._words[rows], self.depth)
        return after, tuple(self._ids[row] for row in rows.tolist())

    def _concerned(self, field: Field) -> NDArray[np.intp]:
        """The rows of those who lose one of their nearest, or to whom a newcomer is nearer."""
        stay = {name for name, weight in field.weights.items() if self.field.weights.get(name) == weight}
        new = field.weights.keys() - stay
        everybody = np.arange(len(self._ids))
        if min(self.depth, len(field.names)) != self._places.shape[1] or len(new) > _NEWCOMERS:
            return everybody
        gone = np.array([name not in stay for name in self.field.names], bool)
        concerned = gone[self._places].any(axis=1)
        for name in new:
            concerned |= field.distances_to(name, self._words) <= self._distances[:, -1]
        return np.flatnonzero(concerned)

    def _places_in(self, field: Field) -> Places:
        """The same replicas where they stand among the names of another field; whoever is gone, anywhere."""
        places = {name: place for place, name in enumerate(field.names)}
        moved = np.array([places.get(name, 0) for name in self.field.names], np.int32)
        return moved[self._places]

"""Owners of an adapter: the first k of the ranking that every reader can compute for itself."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from shared.hashing import rank
from shared.messages.desired import AdapterRecord, Member, OwnerCount

_NEWCOMERS = 3
"""With more new replicas at a time, ranking from scratch is as fast as putting each in its place."""


class Rankings:
    """The rankings of one pool's adapters under given weights, each computed once.

    A value that remembers: `of` depends on nothing but the weights and the id. Under weights that differ
    a little, a ranking that was `known` saves most of the work: the order of those who stay is unchanged,
    which is what rendezvous hashing is for, and a newcomer's place is found by bisection.
    """

    def __init__(self, weights: Mapping[str, float], before: Rankings | None = None) -> None:
        self.weights = {name: weight for name, weight in weights.items() if weight > 0}
        self._known: dict[str, tuple[str, ...]] = {}
        self._stay = {name for name, weight in self.weights.items() if before and before.weights.get(name) == weight}
        self._new = sorted(self.weights.keys() - self._stay)
        self._before = before._known if before and len(self._new) <= _NEWCOMERS else {}

    def of(self, adapter_id: str) -> tuple[str, ...]:
        """Replica ids, best owner first."""
        known = self._known.get(adapter_id)
        if known is None:
            before = self._before.get(adapter_id)
            known = rank(adapter_id, self.weights) if before is None else self._adjusted(adapter_id, before)
            self._known[adapter_id] = known
        return known

    def fill(self, adapter_ids: Iterable[str], portion: int) -> bool:
        """Rank at most `portion` of the adapters that are not ranked yet; whether any are left."""
        missing = (adapter_id for adapter_id in adapter_ids if adapter_id not in self._known)
        for adapter_id in islice(missing, portion):
            self.of(adapter_id)
        return next(missing, None) is not None

    def under(self, weights: Mapping[str, float]) -> Rankings:
        """The rankings under these weights; itself if they are its own."""
        return self if weights == self.weights else Rankings(weights, self)

    def _adjusted(self, adapter_id: str, before: tuple[str, ...]) -> tuple[str, ...]:
        names = [name for name in before if name in self._stay]
        for newcomer in self._new:
            names.insert(bisect_left(names, True, key=self._is_behind(adapter_id, newcomer)), newcomer)
        return tuple(names)

    def _is_behind(self, adapter_id: str, newcomer: str) -> Callable[[str], bool]:
        """Whether a replica ranks behind the newcomer: false for the first ones, then true."""

        def is_behind(name: str) -> bool:
            pair = {name: self.weights[name], newcomer: self.weights[newcomer]}
            return rank(adapter_id, pair)[0] == newcomer

        return is_behind


def owners_of(
    record: AdapterRecord, ranking: tuple[str, ...], members: Mapping[str, Member], count: OwnerCount
) -> tuple[str, ...]:
    """The first k ranked members that can apply an adapter of this rank; all of them if there are fewer."""
    wanted = count.exceptions.get(record.adapter_id, count.owners)
    fitting = (name for name in ranking if members[name].rank_limit >= record.rank)
    return tuple(name for _, name in zip(range(wanted), fitting, strict=False))

"""Owners of an adapter: the first k of the ranking that every reader can compute for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from shared.hashing import rank
from shared.messages.desired import AdapterRecord, Member, OwnerCount


class Rankings:
    """The rankings of one pool's adapters, each computed once for as long as the weights stand.

    A value that remembers: `of` depends on nothing but the weights and the id.
    """

    def __init__(self, weights: Mapping[str, float], known: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.weights = dict(weights)
        self._known = dict(known or {})

    def of(self, adapter_id: str) -> tuple[str, ...]:
        """Replica ids, best owner first."""
        known = self._known.get(adapter_id)
        if known is None:
            known = self._known[adapter_id] = rank(adapter_id, self.weights)
        return known

    def fill(self, adapter_ids: Iterable[str], pairs: int) -> bool:
        """Rank some of the adapters that are not ranked yet, at most `pairs` hashes' worth but at least
        one; whether any are left. So a large fleet can be ranked in portions."""
        missing = (adapter_id for adapter_id in adapter_ids if adapter_id not in self._known)
        for adapter_id in islice(missing, max(1, pairs // max(1, len(self.weights)))):
            self.of(adapter_id)
        return next(missing, None) is not None

    def under(self, weights: Mapping[str, float]) -> Rankings:
        """Rankings under other weights, keeping what still holds: with replicas only taken away, the
        order of the others stays, which is what rendezvous hashing is for."""
        if weights == self.weights:
            return self
        if not all(self.weights.get(name) == weight for name, weight in weights.items()):
            return Rankings(weights)
        kept = {key: tuple(name for name in names if name in weights) for key, names in self._known.items()}
        return Rankings(weights, kept)


def owners_of(
    record: AdapterRecord, ranking: tuple[str, ...], members: Mapping[str, Member], count: OwnerCount
) -> tuple[str, ...]:
    """The first k ranked members that can apply an adapter of this rank; all of them if there are fewer."""
    wanted = count.exceptions.get(record.adapter_id, count.owners)
    fitting = (name for name in ranking if members[name].rank_limit >= record.rank)
    return tuple(name for _, name in zip(range(wanted), fitting, strict=False))

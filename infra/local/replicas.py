"""The replicas of an embedded fleet, which come and go as the autoscaler asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Protocol

from infra.local.fleet import FleetInputs, ProcessSpec, replica
from shared.messages.pools import base_of, is_merged, merged_pool_id
from shared.supervision import AskReplicas, ReplicasTold

Say = Callable[[str], None]


class Children(Protocol):
    """Of a supervisor, as far as replicas are concerned."""

    def names(self) -> frozenset[str]: ...

    def is_leaving(self, name: str) -> bool: ...

    def start_service(self, spec: ProcessSpec) -> object: ...

    def retire(self, name: str) -> None: ...


class Replicas:
    """`pool_ids` are those of the pools in the settings, in their order; their first replicas run already."""

    def __init__(self, inputs: FleetInputs, children: Children, pool_ids: Sequence[str], say: Say) -> None:
        self._inputs = inputs
        self._children = children
        self._pool_ids = tuple(pool_ids)
        self._say = say
        self._pool_of = dict(self._first())
        self._newest_epoch = 0

    def answer(self, ask: AskReplicas) -> ReplicasTold:
        """Carry it out and say what runs then. Whoever is leaving runs no more."""
        at_pool = self._at_pool(ask)
        if at_pool is None:
            return ReplicasTold(known=False)
        error = "" if ask.desired is None else self._carry_out(ask, at_pool)
        return ReplicasTold(replica_ids=self._running(ask.pool_id), error=error)

    def _carry_out(self, ask: AskReplicas, at_pool: int) -> str:
        """What could not be done, if anything."""
        if ask.epoch < self._newest_epoch:
            return f"an order of epoch {ask.epoch} comes after one of epoch {self._newest_epoch}"
        self._newest_epoch = ask.epoch
        try:
            self._remove(ask)
            self._add(ask, at_pool)
        except OSError as error:
            return f"no replica can be started: {error}"
        return ""

    def _first(self) -> Iterator[tuple[str, str]]:
        pools = zip(self._inputs.settings.pools, self._pool_ids, strict=True)
        of_each = (pool_id for pool, pool_id in pools for _ in range(pool.replicas))
        yield from ((f"replica-{at}", pool_id) for at, pool_id in enumerate(of_each))
        # Those that the operator wants merged are nobody else's to stop.
        yield from ((f"merged-{at}", "") for at in range(len(self._inputs.settings.merged)))

    def _at_pool(self, ask: AskReplicas) -> int | None:
        for at, pool_id in enumerate(self._pool_ids):
            own = merged_pool_id(pool_id, ask.merged_digest) if ask.merged_id else pool_id
            if ask.pool_id == own or self._has_started(ask.pool_id, base=pool_id):
                return at
        return None

    def _has_started(self, pool_id: str, *, base: str) -> bool:
        """Merged replicas, of which whoever asks may no longer know the adapter: they can still be stopped."""
        return base_of(pool_id) == base and pool_id in self._pool_of.values()

    def _running(self, pool_id: str) -> tuple[str, ...]:
        known = self._children.names()
        return tuple(
            sorted(
                name
                for name, pool in self._pool_of.items()
                if pool == pool_id and name in known and not self._children.is_leaving(name)
            )
        )

    def _remove(self, ask: AskReplicas) -> None:
        for name in self._running(ask.pool_id):
            if name in ask.remove:
                self._say(f"{name} is no longer needed")
                self._children.retire(name)

    def _add(self, ask: AskReplicas, at_pool: int) -> None:
        """A name that was used before comes back with the adapters that are still on its disk."""
        if is_merged(ask.pool_id) and not ask.merged_id:
            return
        for _ in range((ask.desired or 0) - len(self._running(ask.pool_id))):
            spec = replica(self._inputs, at_pool, self._free_place(), ask.merged_id)
            self._pool_of[spec.name] = ask.pool_id
            self._children.start_service(spec)
            self._say(f"{spec.name} starts")

    def _free_place(self) -> int:
        """Of the fleet's replicas: no child has its name, nor its port."""
        names, first_merged = self._children.names(), sum(pool.replicas for pool in self._inputs.settings.pools)
        merged = range(first_merged, first_merged + len(self._inputs.settings.merged))
        return next(at for at in count() if f"replica-{at}" not in names and at not in merged)

"""The replicas that exist, by name: started, replaced, removed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadtest.twin.book import Book
from loadtest.twin.ground import Body, Ground
from loadtest.twin.replica import Replica
from loadtest.twin.scenario import OddReplica, PoolShape
from loadtest.twin.store import Store
from loadtest.twin.timing import MeasuredTable, StepTable
from shared.messages.desired import AdapterRecord, AssignmentShard
from shared.messages.identity import AdapterKey
from shared.messages.pools import merged_pool_id

REPORT_S = 1.0
_PHASE_S = 0.0371
"""Replicas report one after the other, and not all at once."""


class ReplicaFleet:
    def __init__(self, ground: Ground, store: Store, book: Book) -> None:
        self._ground = ground
        self._store = store
        self._book = book
        self._living: dict[str, Replica] = {}
        self._started = 0
        self.starting: dict[str, str] = {}
        """The pool of each that is on its way."""
        self._places: dict[str, tuple[PoolShape, int]] = {}
        self._merged: dict[str, PoolShape] = {}
        for pool in ground.scenario.pools:
            if pool.merged is not None:
                self._merged[self._book.record(pool.merged).digest] = pool

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._living.values()))

    def __len__(self) -> int:
        return len(self._living)

    def living(self, replica_id: str) -> Replica | None:
        return self._living.get(replica_id)

    def computing(self) -> int:
        """How many take steps just now."""
        return sum(replica.batch.computes for replica in self._living.values())

    def steps(self) -> dict[str, int]:
        return {name: replica.batch.steps for name, replica in self._living.items()}

    def merged_pools(self, record: AdapterRecord) -> tuple[str, ...]:
        return (self.pool_id(self._merged[record.digest]),) if record.digest in self._merged else ()

    def pool_id(self, pool: PoolShape) -> str:
        if pool.merged is None:
            return pool.pool_id
        return merged_pool_id(pool.pool_id, self._book.record(pool.merged).digest)

    def start(self, pool: PoolShape, number: int, *, warm: bool = False) -> Replica:
        """A process that serves from now on; `warm`: with what it is first assigned."""
        self._started += 1
        body = self._body(pool, number, f"process-{self._started}")
        replica = self._living[body.replica_id] = Replica(body, self._ground)
        self._places[body.replica_id] = pool, number
        if pool.merged is not None:
            self._merged[self._book.record(pool.merged).digest] = pool
        cold = not warm

        def on_shard(shard: AssignmentShard) -> None:
            nonlocal cold
            replica.on_shard(shard)
            if not cold and len(replica.convergence.assignment.parts) == shard.shards:
                cold = True
                replica.convergence.adopt(self._held_at_first(body.replica_id))
                replica.tell_all()

        replica.tell_all()
        self._store.follow(body.replica_id, on_shard)
        self._ground.agenda.after(_PHASE_S * self._started % REPORT_S, self._tell_again_and_again, replica)
        return replica

    def replica_id(self, pool: PoolShape, number: int) -> str:
        scenario = self._ground.scenario
        if pool == scenario.pools[0] and number < len(scenario.cast.replicas):
            return scenario.cast.replicas[number]
        prefix = "" if len(self._ground.scenario.pools) == 1 else f"{self.pool_id(pool)}-"
        return f"{prefix}replica-{number:02d}"

    def kill(self, replica_id: str) -> None:
        replica = self._living.pop(replica_id, None)
        if replica is not None:
            replica.die()
            self._store.unfollow(replica_id)

    def order(self, pool: PoolShape, number: int, start_s: float) -> None:
        """A replica that serves after `start_s`, unless it is removed before."""
        name = self.replica_id(pool, number)
        self.starting[name] = self.pool_id(pool)
        self._ground.agenda.after(start_s, self._arrive, name, pool, number)

    def remove(self, replica_id: str) -> None:
        self.starting.pop(replica_id, None)
        self.kill(replica_id)

    def drain(self, replica_id: str, ordered: bool) -> None:
        replica = self._living.get(replica_id)
        if replica is not None:
            replica.draining = ordered

    def existing(self, pool_id: str) -> frozenset[str]:
        """Those that serve and those that are on their way."""
        serving = {name for name, replica in self._living.items() if replica.body.pool_id == pool_id}
        return frozenset(serving | {name for name, pool in self.starting.items() if pool == pool_id})

    def start_again(self, replica_id: str, files: list[AdapterKey]) -> None:
        """A new process where one died, with the files that were on its disk."""
        pool, number = self._places[replica_id]
        replica = self.start(pool, number)
        for key in files:
            replica.tiers.adopt(self._ground.registry.records[key], "disk")
        replica.tell_all()

    def _held_at_first(self, replica_id: str) -> dict[AdapterKey, str] | None:
        held = self._ground.scenario.cast.held.get(replica_id)
        return None if held is None else {self._book.known(name).key: tier for name, tier in held.items()}

    def _arrive(self, name: str, pool: PoolShape, number: int) -> None:
        if self.starting.pop(name, None) is not None:
            self.start(pool, number)

    def tell_all(self) -> None:
        for replica in self:
            if not replica.paused:
                replica.tell_all()

    def _tell_again_and_again(self, replica: Replica) -> None:
        if replica.alive:
            if not replica.paused:
                replica.tell_figures()
            self._ground.agenda.after(REPORT_S, self._tell_again_and_again, replica)

    def _body(self, pool: PoolShape, number: int, incarnation: str) -> Body:
        own = next((odd for odd in pool.odd if odd.number == number), None) or OddReplica(
            number=number, slots=pool.slots, ram_bytes=pool.ram_bytes, disk_bytes=pool.disk_bytes
        )
        merged = None if pool.merged is None else self._book.record(pool.merged).key
        steps = self._ground.scenario.timing.steps
        return Body(
            replica_id=self.replica_id(pool, number),
            incarnation=incarnation,
            pool_id=self.pool_id(pool),
            slots=own.slots if merged is None else 0,
            rank_limit=pool.rank_limit if own.rank_limit is None else own.rank_limit,
            ram_bytes=own.ram_bytes,
            disk_bytes=own.disk_bytes,
            queue_limit=pool.queue_limit,
            batch=pool.batch,
            steps=steps if merged is None else _merged_steps(steps, pool.merged_step_share),
            weight=own.weight,
            merged=merged,
        )


def _merged_steps(steps: StepTable | MeasuredTable, share: float) -> StepTable | MeasuredTable:
    """Without adapters to apply, a step's own part is shorter; prompts take as long as ever."""
    if isinstance(steps, StepTable):
        return msgspec.structs.replace(steps, base_s=steps.base_s * share, row_s=steps.row_s * share, adapter_s=0.0)
    least = [line[0] for line in steps.mean_s]
    mean_s = tuple(
        tuple(each - (1.0 - share) * own for each in line) for line, own in zip(steps.mean_s, least, strict=True)
    )
    return msgspec.structs.replace(steps, mean_s=mean_s, adapter_s=0.0)

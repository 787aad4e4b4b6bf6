"""The replica's figures: once a second to everyone, and whenever somebody asks."""

from __future__ import annotations

from collections.abc import Callable

from services.replica_worker.core.assignment import Assignment
from services.replica_worker.core.warming import WarmPolicy
from services.replica_worker.means import Means
from services.replica_worker.reporting.warmth import Warmth
from services.replica_worker.requests.generation import Generation
from services.replica_worker.settings import Settings
from shared.bus.port import BusUnavailable
from shared.contracts.catalog import REPLICA_REPORT
from shared.messages.identity import AdapterKey
from shared.messages.operations import AskState, ReplicaState
from shared.messages.reports import ReplicaReport
from shared.runtime.logs import get_logger

_NAMES = 2_000
"""As many of a tier's adapters as one answer names: a message holds 1 MiB, and ids up to 128 bytes."""
_log = get_logger(__name__)


class Reporter:
    def __init__(
        self, means: Means, generation: Generation, settings: Settings, assignment: Callable[[], Assignment]
    ) -> None:
        self._by = means
        self._generation = generation
        self._settings = settings
        self._assignment = assignment
        policy = WarmPolicy(adapters=settings.warm_adapters, deadline_s=settings.warm_deadline_s)
        self._warmth = Warmth(means, policy, assignment)
        self._sequence = 0

    async def send(self) -> None:
        """From the first second on: a replica that is starting says so, and why."""
        report = self.report()
        self._by.meters.show(report, self._by.loader.slots.table)
        dispatcher = self._generation.dispatcher
        oldest_s = dispatcher.room.oldest_s(self._by.clock.now_s())
        self._by.meters.show_waiting({**dispatcher.waits, "cache": self._without_cache}, oldest_s)
        running = sorted(self._by.loader.resident, key=lambda key: not self._by.loader.slots.table.in_use(key))
        resident = (key.adapter_id for key in running)
        self._by.meters.picking.show(report, resident, dispatcher.room.awaited_adapters, self._by.clock.wall_s())
        try:
            await self._by.bus.publish(REPLICA_REPORT, report, report.replica_id)
        except BusUnavailable as error:
            _log.warning("a report was not sent", reason=str(error))

    def report(self) -> ReplicaReport:
        by, settings, now_s = self._by, self._settings, self._by.clock.now_s()
        info = by.watch.info if by.watch.started else None
        warm_up = self._warmth.look(now_s)
        table, ram, disk = by.loader.slots.table, by.loader.ram.budget, by.loader.disk.budget
        self._sequence += 1
        return ReplicaReport(
            replica_id=by.identity.replica_id,
            incarnation=by.identity.incarnation,
            pool_id=by.identity.pool_id,
            base_model_hash=by.identity.base_model_hash,
            sequence=self._sequence,
            ready=by.standing.ready,
            reason=by.standing.not_ready,
            draining=bool(by.standing.draining),
            rank_limit=settings.rank_limit,
            engine=settings.engine,
            engine_build=info.build if info else "",
            max_context_tokens=info.max_context_tokens if info else 0,
            max_rows=settings.max_rows,
            slots=table.count,
            slots_busy=table.busy,
            running=by.watch.load.running,
            queue_depth=self._generation.waiting + self._without_cache,
            tokens_in_flight=by.promises.total,
            tokens_per_s=by.rate.per_s(now_s),
            evictions_per_min=table.turnover.evictions_per_min(now_s),
            loads_per_min=table.turnover.loads_per_min(now_s),
            ram_bytes=ram.used_bytes,
            ram_budget_bytes=ram.budget_bytes,
            disk_bytes=disk.used_bytes,
            disk_budget_bytes=disk.budget_bytes,
            assignment_epoch=self._assignment().epoch,
            golden=by.standing.golden,
            unproven_slots=by.loader.slots.unproven,
            effect_mismatches=by.loader.slots.copying.mismatches,
            quarantined=by.loader.failures.quarantined(now_s),
            queued_tokens=self._generation.dispatcher.room.queued_tokens,
            capacity_tokens_per_s=by.capacity.tokens_per_s(by.max_rows),
            gpu_kind=settings.gpu_kind or (info.device if info else ""),
            kv_used_tokens=by.watch.load.kv_used_tokens,
            kv_total_tokens=info.kv_tokens if info else 0,
            warming=not warm_up.over,
            to_warm=warm_up.to_come,
        )

    @property
    def _without_cache(self) -> int:
        """Requests in the engine that have a row there, but no room in its KV cache."""
        without_row = max(0, self._generation.dispatcher.handed - self._by.max_rows)
        return max(0, self._by.watch.load.waiting - without_row)

    async def state(self, ask: AskState, ids: tuple[str, ...]) -> ReplicaState:
        by = self._by
        report = self.report()
        held = held_adapters(by)
        return ReplicaState(
            replica_id=report.replica_id,
            pool_id=report.pool_id,
            ready=report.ready,
            draining=report.draining,
            queue_depth=report.queue_depth,
            tokens_in_flight=report.tokens_in_flight,
            evictions_per_min=report.evictions_per_min,
            gpu_adapters=_names(by.loader.resident),
            ram_adapters=_names(by.loader.ram.budget.held),
            disk_adapters=_names(tuple(key for key in held if by.loader.disk.holds(key.digest))),
            slots=report.slots,
            ram_bytes=report.ram_bytes,
            disk_bytes=report.disk_bytes,
        )


def held_adapters(means: Means) -> set[AdapterKey]:
    """Everything that is in some tier. A file whose adapter is not known yet has no name to tell."""
    loader = means.loader
    on_disk = (key for digest in loader.disk.budget.held for key in means.records.keys_of(digest))
    return {*loader.resident, *loader.ram.budget.held, *on_disk}


def _names(keys: tuple[AdapterKey, ...]) -> tuple[str, ...]:
    return tuple(sorted(key.adapter_id for key in keys)[:_NAMES])

"""One replica: an engine, the adapters it holds, and the bus."""

from __future__ import annotations

import asyncio

from services.replica_worker.assembly import Hooks, Outside, assemble
from services.replica_worker.control.alarms import Alarms
from services.replica_worker.control.completion import Completer
from services.replica_worker.control.convergence import Convergence
from services.replica_worker.control.evaluation import Evaluator
from services.replica_worker.control.golden import check_base
from services.replica_worker.control.merging import Merging
from services.replica_worker.control.operations import Operations
from services.replica_worker.core.converge import Limits
from services.replica_worker.reporting.reports import Reporter, held_adapters
from services.replica_worker.requests.generation import Generation
from services.replica_worker.settings import Settings
from services.replica_worker.standing import Standing
from shared.bus.port import Change, Subscription
from shared.contracts.catalog import (
    ADAPTER,
    ASSIGNMENT,
    CANCEL,
    COMPLETE,
    DRAIN,
    EVALUATE,
    FINGERPRINT,
    GATEWAY_REPORT,
    GENERATE,
    LOAD,
    REPLAY,
    STATE,
    TENANT,
    UNLOAD,
)
from shared.messages.desired import AdapterRecord, DrainOrder
from shared.messages.identity import AdapterKey
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Replica:
    """A part of the service: starts once it serves, drains before it stops; somebody else keeps its time."""

    def __init__(self, settings: Settings, outside: Outside) -> None:
        self.standing = Standing()
        self.failure = ""
        self._stopping = False
        self._settings = settings
        self._given = outside
        self.alarms = Alarms(outside.bus, outside.identity)
        hooks = Hooks(
            on_change=self._on_change,
            on_failure=self._on_engine_failure,
            on_mismatch=self.alarms.mismatch,
            on_lost=self.alarms.stored_bytes_lost,
        )
        self._means = assemble(settings, outside, self.standing, hooks)
        self._watch = self._means.watch
        self.loader = self._means.loader
        self.generation = Generation(self._means)
        self.convergence = Convergence(
            self._means,
            Limits(ram_budget_bytes=settings.ram_budget_bytes, disk_budget_bytes=settings.disk_budget_bytes),
        )
        self.reporter = Reporter(self._means, self.generation, settings, lambda: self.convergence.assignment)
        self._open: list[Subscription] = []
        self._converging: asyncio.Task[None] | None = None
        outside.residency.look_at(self.loader.tier_of, lambda: held_adapters(self._means))

    async def start(self) -> None:
        """Returns once requests are served. Raises EngineFailed, DiskRefused, BusUnavailable; nothing is
        left running then."""
        try:
            await self.loader.disk.open()
            self.standing.golden = await self._begin()
            await self._means.effects.prepare()
            await self._listen()
            self._given.on_loaded()
        except BaseException as error:
            self.standing.not_ready = f"the start failed: {error}"
            await self.reporter.send()
            await self.close()
            raise
        self._converging = asyncio.create_task(self.convergence.run(), name="convergence")
        self.standing.not_ready = ""
        await self.reporter.send()
        await self._given.residency.snapshot()
        _log.info("the replica serves", pool_id=self._given.identity.pool_id, slots=self.loader.slots.table.count)

    async def stop(self) -> None:
        """Finish what runs, up to the deadline, and let everything go."""
        self._stopping = True
        self.standing.draining = self.standing.draining or "the process stops"
        await self.reporter.send()
        try:
            async with asyncio.timeout(self._settings.drain_deadline_s):
                await self.generation.idle()
        except TimeoutError:
            _log.warning("requests are left at the drain deadline", requests=self.generation.open)
        await self.generation.end_all("the replica stopped")
        self.standing.not_ready = self.failure or "stopped"
        await self.reporter.send()
        await self.close()

    def unready_reason(self) -> str | None:
        return self.standing.not_ready or self.standing.draining or None

    async def tick(self) -> None:
        """Several times a second."""
        if self._watch.started:
            await self._watch.look()
            await self.generation.tick()

    async def _begin(self) -> str:
        """Start the engine; returns what became of the base's golden prompt."""
        if self._given.merge is not None:
            return await Merging(self._means, self._given.merge).begin(self.generation.on_step)
        await self._watch.begin(self.generation.on_step, self._given.identity.base_model_hash)
        return await check_base(self._watch, self._settings.model_folder)

    async def _listen(self) -> None:
        bus, replica_id = self._given.bus, self._given.identity.replica_id
        generation, operations = self.generation, Operations(self._means)
        self._open += [
            await bus.state(ADAPTER).watch(self._on_record),
            await bus.state(TENANT).watch(generation.dispatcher.on_tenant),
            await bus.state(ASSIGNMENT).watch(self.convergence.on_shard, replica_id),
            await bus.state(DRAIN).watch(self._on_drain, replica_id),
            await bus.subscribe(GATEWAY_REPORT, generation.on_gateway_report),
            await bus.serve(CANCEL, generation.on_cancel, replica_id),
            await bus.serve(REPLAY, generation.on_replay, replica_id),
            await bus.serve(LOAD, operations.load, replica_id),
            await bus.serve(UNLOAD, operations.unload, replica_id),
            await bus.serve(FINGERPRINT, operations.fingerprint, replica_id),
            await bus.serve(STATE, self.reporter.state, replica_id),
            await bus.serve(EVALUATE, Evaluator(self._means).evaluate, replica_id),
            await bus.serve(COMPLETE, Completer(self._means, generation).complete, replica_id),
            # Last: whoever is told "no responders" goes to another replica at once.
            await bus.hear(GENERATE, generation.on_generate, replica_id),
        ]

    async def close(self) -> None:
        """Let everything go as it stands."""
        while self._open:
            await self._open.pop().close()
        if self._converging is not None:
            self._converging.cancel()
            await asyncio.gather(self._converging, return_exceptions=True)
        self._watch.end()
        self.generation.dispatcher.close()
        await self.loader.close()
        await self._given.engine.close()

    async def _on_record(self, change: Change[AdapterRecord]) -> None:
        record, records = change.value, self._means.records
        if record is not None and record == records.get(record.key):
            return  # a watch repeats itself after every reconnect
        if record is not None:
            self.loader.failures.forgive(record.key)
        await records.on_record(change)
        self.convergence.stir()

    async def _on_drain(self, change: Change[DrainOrder]) -> None:
        """An order that comes while the replica serves ends the process once it is idle, unless it says otherwise. One
        that was there before it started only keeps it from taking requests, or it would be started and end for ever."""
        order = change.value
        if self._stopping:
            return  # nothing calls off a stop that has begun
        self.standing.draining = "" if order is None else order.reason or "ordered to drain"
        _log.info("draining" if order else "not draining", reason=self.standing.draining)
        if order is not None and order.then_stop and self.standing.ready:
            self._given.ask_to_stop()

    def _on_change(self, key: AdapterKey) -> None:
        record = self._means.records.get(key)
        if record is not None and record.wanted:
            self.loader.keeping.forget(key)  # from now on whoever wants it says how long
        self._given.residency.changed(key)
        if self._converging is not None:
            self.convergence.stir()

    def _on_engine_failure(self, reason: str) -> None:
        if self.failure:
            return
        self.failure = self.standing.not_ready = reason
        _log.error("the replica ends", reason=reason)
        self._given.ask_to_stop()

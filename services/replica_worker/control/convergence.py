"""Bringing this replica, in the background, to what it is assigned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

from services.replica_worker.core.assignment import Assignment, fold, without
from services.replica_worker.core.converge import Action, Held, Known, Limits, Plan, Step, converge, startable
from services.replica_worker.engine.port import EngineFailed
from services.replica_worker.means import Means
from services.replica_worker.reporting.reports import held_adapters
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from shared.bus.port import Change
from shared.messages.desired import AdapterRecord, AssignedAdapter, AssignmentShard
from shared.messages.identity import AdapterKey
from shared.runtime.logs import get_logger

_PATIENCE_S = 1.0
"""How long a background load waits for requests that load: then it takes its turn among them."""
_TIER_OF_STEP = {Step.FETCH: "disk", Step.READ: "ram", Step.LOAD: "gpu"}
_log = get_logger(__name__)


class Convergence:
    """Plans anew after every action, so a plan is never older than what it acts upon."""

    def __init__(self, means: Means, limits: Limits) -> None:
        self.assignment = Assignment()
        self._wanted: Mapping[AdapterKey, AssignedAdapter] = {}
        """Of that assignment."""
        self._sized: Mapping[AdapterKey, int] = {}
        self._sized_for: object = None
        self._by = means
        self._limits = limits
        self._stirred = asyncio.Event()
        self._under_way: dict[AdapterKey, Step] = {}

    async def on_shard(self, change: Change[AssignmentShard]) -> None:
        if change.value is None:
            self.assignment = without(self.assignment, int(change.ids[1]))
        else:
            self.assignment = fold(self.assignment, change.value)
        self._wanted = self.assignment.wanted()
        _log.info("an assignment arrived", reason=self.assignment.reason)
        self.stir()

    def stir(self) -> None:
        """Something changed: look again."""
        self._stirred.set()

    async def stir_now_and_then(self) -> None:
        """What failed may be tried again by now."""
        self.stir()

    async def run(self) -> None:
        """For ever. What fails is remembered by the loader, and left out of the plan for a while."""
        async with asyncio.TaskGroup() as actions:
            while True:
                await self._stirred.wait()
                self._stirred.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PATIENCE_S):
                        await self._by.loader.demand.calm()
                self._forget_gone()
                await self._act(actions)

    async def _act(self, actions: asyncio.TaskGroup) -> None:
        plan = self.plan()
        self._by.loader.ram.budget.preferred = plan.wanted_ram
        self._by.loader.disk.budget.preferred = plan.wanted_disk
        for drop in (action for action in plan.actions if action.step is Step.DROP):
            if await self._do(drop):
                self.stir()
                return  # what is planned by now is older than what was done
        for action in startable(plan, self._under_way):
            self._under_way[action.key] = action.step
            actions.create_task(self._see_to(action), name=f"{action.step} of {action.key.adapter_id}")

    async def _see_to(self, action: Action) -> None:
        try:
            more = await self._do(action)
        finally:
            del self._under_way[action.key]
        if more:
            self.stir()

    def plan(self) -> Plan:
        by, loader = self._by, self._by.loader
        table = loader.slots.table
        leaving = self._leaving(held_adapters(by))
        twins = {key for each in leaving for key in by.records.keys_of(each.digest)}
        held = Held(
            gpu=frozenset(table.resident),
            ram=frozenset(loader.ram.budget.held),
            disk=frozenset(loader.disk.budget.held),
            in_use=loader.all_in_use(by.records.keys_of) | self._under_way.keys(),
            empty_slots=table.empty,
        )
        known = Known(
            size_bytes=self._sizes() if not twins else {**self._sizes(), **_sizes(by.records.of(twins))},
            ram_bytes=loader.ram.sizes,
            leaving=leaving | self._leaving(twins),
            blocked=loader.failures.blocked(by.clock.now_s()),
        )
        return converge(self._wanted, held, known, self._limits)

    def _leaving(self, keys: Iterable[AdapterKey]) -> frozenset[AdapterKey]:
        """What an operator had loaded a moment ago is not, unless it is retired or gone."""
        records = self._by.records
        kept = self._by.loader.keeping.kept(self._by.clock.now_s())
        return records.leaving(keys).difference(key for key in kept if not records.is_retired(key))

    def _sizes(self) -> Mapping[AdapterKey, int]:
        """Of the files of what is assigned, as far as there are records; found anew when either has changed."""
        basis = self._by.records.changes, self._wanted
        if basis != self._sized_for:
            self._sized, self._sized_for = _sizes(self._by.records.of(self._wanted)), basis
        return self._sized

    def _forget_gone(self) -> None:
        for key in self._by.records.forget_gone(self._by.loader.holds):
            self._by.loader.forget(key)

    async def _do(self, action: Action) -> bool:
        """Whether there may be more to do at once."""
        _log.debug("converging", step=action.step, adapter_id=action.key.adapter_id, reason=action.reason)
        try:
            return await (self._drop(action) if action.step is Step.DROP else self._bring(action))
        except (AdapterFailed, AdapterUnavailable):
            return True  # remembered and logged by the loader
        except EngineFailed:
            return False  # the engine watch ends this replica
        except Exception as error:
            _log.exception("converging failed", step=action.step, adapter_id=action.key.adapter_id, error=error)
            return action.step is not Step.DROP  # what the loader could not bring is blocked for a while

    async def _bring(self, action: Action) -> bool:
        record = self._by.records.get(action.key)
        return record is None or await self._by.loader.bring_quietly(record, _TIER_OF_STEP[action.step])

    async def _drop(self, action: Action) -> bool:
        twins = self._by.records.keys_of(action.key.digest)
        others = twins - self._leaving(twins)
        refused = await self._by.loader.drop(action.key, keep_file=bool(others))
        if refused is None:
            _log.info("an adapter that nobody needs here has left this replica", adapter_id=action.key.adapter_id)
        return refused is None


def _sizes(records: Mapping[AdapterKey, AdapterRecord]) -> dict[AdapterKey, int]:
    return {key: record.size_bytes for key, record in records.items()}

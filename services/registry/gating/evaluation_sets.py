"""Evaluation sets: what tenants want asked of their versions before those are deployed."""

from __future__ import annotations

import asyncio

import msgspec

from services.registry.adapters import unknown_adapter
from services.registry.core.defects import quoted
from services.registry.core.deployment.aliases import Denied
from services.registry.core.gating.evaluation_sets import (
    EvaluationCase,
    EvaluationSet,
    Policy,
    parse,
    policy_faults,
    set_id_of,
)
from services.registry.io import adapter_rows, case_rules, customer_rows, evaluation_rows
from services.registry.io.database import Database
from services.registry.io.evaluation_rows import SetSummary
from shared.messages.adapters import Defect
from shared.messages.identity import is_adapter_id
from shared.runtime.clock import Clock


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a set is, and what it demands. `adapter_id` may name a version that is still to come."""

    tenant_id: str
    adapter_id: str = ""
    policy: Policy = Policy()


class SavedSet(msgspec.Struct, frozen=True, kw_only=True):
    made: EvaluationSet
    created: bool


class EvaluationSets:
    """Everything here may raise DatabaseUnavailable; nothing was changed then."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def save(self, wanted: Wanted, raw: bytes) -> SavedSet | Denied | tuple[Defect, ...]:
        """From now on it is the latest. Evaluations under way are held against it, too."""
        cases = await asyncio.to_thread(parse, raw, case_rules.fault_of)
        defects = (*policy_faults(wanted.policy), *(case for case in cases if isinstance(case, Defect)))
        if defects:
            return defects
        read = tuple(case for case in cases if isinstance(case, EvaluationCase))
        made = EvaluationSet(
            set_id=set_id_of(read, wanted.policy),
            tenant_id=wanted.tenant_id,
            adapter_id=wanted.adapter_id,
            cases=read,
            policy=wanted.policy,
            created_at_s=self._clock.wall_s(),
        )
        async with self._database.write(announce=False) as connection:
            if not await customer_rows.tenant_exists(connection, wanted.tenant_id):
                message = f"There is no tenant {quoted(wanted.tenant_id)}."
                return Denied(kind="missing", code="tenant_unknown", message=message, field="tenant_id")
            if wanted.adapter_id and not is_adapter_id(wanted.adapter_id):
                return unknown_adapter(wanted.adapter_id)
            adapter = await adapter_rows.find(connection, wanted.adapter_id) if wanted.adapter_id else None
            if adapter is not None and adapter.tenant_id != wanted.tenant_id:
                return unknown_adapter(wanted.adapter_id)
            return SavedSet(made=made, created=await evaluation_rows.save_set(connection, made))

    async def listed(self, tenant_id: str | None, limit: int) -> list[SetSummary]:
        async with self._database.read() as connection:
            return await evaluation_rows.sets(connection, tenant_id, limit)

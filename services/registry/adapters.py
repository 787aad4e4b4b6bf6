"""Verified adapters: looking at them, pinning them, and taking them out of service."""

from __future__ import annotations

import msgspec

from services.registry import facts
from services.registry.core import lifecycle, records
from services.registry.core.defects import quoted
from services.registry.core.deployment.aliases import Denied
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, alias_rows, outbox_rows
from services.registry.io.adapter_rows import AdapterFilter
from services.registry.io.database import Database
from shared.messages.operations import Evaluation
from shared.runtime.clock import Clock


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter and all that happened to it."""

    adapter: StoredAdapter
    history: list[lifecycle.Move]
    evaluations: list[Evaluation]
    aliases: list[str]


class Adapters:
    """Everything here may raise DatabaseUnavailable; nothing was changed then."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def find(self, adapter_id: str) -> StoredAdapter | None:
        async with self._database.read() as connection:
            return await adapter_rows.find(connection, adapter_id)

    async def story(self, adapter_id: str) -> Story | None:
        async with self._database.read() as connection:
            adapter = await adapter_rows.find(connection, adapter_id)
            if adapter is None:
                return None
            return Story(
                adapter=adapter,
                history=await adapter_rows.history(connection, adapter_id),
                evaluations=await adapter_rows.evaluations(connection, adapter_id),
                aliases=await alias_rows.naming(connection, adapter_id),
            )

    async def listed(self, wanted: AdapterFilter) -> list[StoredAdapter]:
        async with self._database.read() as connection:
            return await adapter_rows.listed(connection, wanted)

    async def pin(self, adapter_id: str, pinned: bool) -> StoredAdapter | Denied:
        """Placement gives it owners and its owners a slot, whether or not an alias names it and whatever its traffic;
        or, not `pinned`, what its aliases and its traffic call for."""
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None:
                return unknown_adapter(adapter_id)
            if pinned and (denied := lifecycle.refuses_pin(adapter_id, adapter.status)) is not None:
                return denied
            if adapter.pinned == pinned:
                return adapter
            changed = msgspec.structs.replace(adapter, pinned=pinned)
            await adapter_rows.save(connection, changed, [])
            if changed.status in lifecycle.HELD:
                await outbox_rows.append(connection, [facts.held(changed)], self._clock.wall_s())
            return changed

    async def retire(self, adapter_id: str) -> StoredAdapter | Denied:
        """Replicas drop it; its files stay in the store."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None:
                return unknown_adapter(adapter_id)
            aliases = await alias_rows.naming(connection, adapter_id)
            aliases += await alias_rows.guarding(connection, adapter_id)
            step = lifecycle.decide_retire(adapter_id, adapter.status, aliases, now_s)
            if isinstance(step, Denied):
                return step
            retired = msgspec.structs.replace(records.after_move(adapter, step), pinned=False)
            await adapter_rows.save(connection, retired, [step])
            await outbox_rows.append(connection, facts.retired(retired), now_s)
            return retired


def unknown_adapter(adapter_id: str) -> Denied:
    return Denied(kind="missing", code="adapter_unknown", message=f"There is no adapter {quoted(adapter_id)}.")

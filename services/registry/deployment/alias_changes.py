"""What one change of an alias writes, in the transaction of whoever makes it."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry import facts
from services.registry.core import records
from services.registry.core.deployment import aliases
from services.registry.core.deployment.aliases import AliasChange, AliasState, Change
from services.registry.deployment.wanted import let_go, want
from services.registry.io import adapter_rows, alias_rows, base_model_rows, outbox_rows
from services.registry.io.notes import Note
from shared.messages.aliases import AliasMoved
from shared.messages.desired import AliasTarget


async def write_change(connection: AsyncConnection, decided: AliasChange, asked: Change, now_s: float) -> AliasState:
    """The alias as decided, its history, and what gateways and pipelines are told."""
    if not decided.changed:
        return decided.state
    before = await alias_rows.find(connection, decided.state.alias)
    revision = max(decided.state.revision, await alias_rows.last_revision(connection, decided.state.alias)) + 1
    state = aliases.stamped(decided.state, revision, now_s)
    moved = records.moved(state, decided.kind, asked.actor, asked.reason or decided.reason)
    await alias_rows.save(connection, state, moved)
    notes = [note for adapter_id in sorted(state.kept) for note in await want(connection, adapter_id)]
    notes += [await told(connection, state), facts.moved(moved)]
    notes += await let_go(connection, before.kept - state.kept if before else ())
    await outbox_rows.append(connection, notes, now_s)
    return state


async def write_removal(connection: AsyncConnection, state: AliasState, asked: Change, now_s: float) -> None:
    """The alias means nothing any more."""
    moved = AliasMoved(
        alias=state.alias, tenant_id=state.tenant_id, change="remove", revision=state.revision + 1, adapter_id=None,
        previous_adapter_id=state.adapter_id, actor=asked.actor, reason=asked.reason or "an operator removed it",
        at_s=now_s,
    )  # fmt: skip
    await alias_rows.remove(connection, moved)
    notes = [facts.unaliased(state.alias), facts.moved(moved), *await let_go(connection, state.kept)]
    await outbox_rows.append(connection, notes, now_s)


async def told(connection: AsyncConnection, state: AliasState) -> Note:
    """What gateways are to hold of an alias."""
    split = None if state.split_adapter_id is None else await _target(connection, state.split_adapter_id)
    return facts.aliased(state, await _target(connection, state.adapter_id), split)


async def _target(connection: AsyncConnection, adapter_id: str) -> AliasTarget:
    adapter = await adapter_rows.find(connection, adapter_id)
    base = await base_model_rows.find(connection, adapter.announced.base_model_hash) if adapter else None
    if adapter is None or base is None:
        raise LookupError(f"adapter {adapter_id} has an alias, but no record or no base model")
    return records.alias_target(adapter, base)

"""What a change of an alias comes to, by what the database says at the moment."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.adapters import unknown_adapter
from services.registry.core import records
from services.registry.core.defects import quoted
from services.registry.core.deployment import alias_moves, splits
from services.registry.core.deployment.aliases import AliasChange, AliasState, Candidate, Change, Denied
from services.registry.core.deployment.splits import Wish
from services.registry.io import adapter_rows, alias_rows, base_model_rows, wanted_rows


class Sight:
    """One transaction's view. With `to_change` what has been looked at stays as it is until the transaction ends.

    Locks are taken in one order, the alias and then all adapters concerned by their ids: two changes never wait for
    each other crosswise.
    """

    def __init__(self, connection: AsyncConnection, *, to_change: bool) -> None:
        self.connection = connection
        self._to_change = to_change

    async def alias(self, alias: str) -> AliasState | None:
        return await alias_rows.find(self.connection, alias, to_change=self._to_change)

    async def candidate(self, adapter_id: str, current: AliasState | None) -> Candidate | Denied:
        """`current` is the alias that is to mean it: what that means now changes as well."""
        concerned = sorted({adapter_id} | (current.named if current else frozenset()))
        found = {one: await adapter_rows.find(self.connection, one, to_change=self._to_change) for one in concerned}
        adapter = found[adapter_id]
        return unknown_adapter(adapter_id) if adapter is None else records.candidate(adapter)


async def deployment(sight: Sight, alias: str, adapter_id: str, asked: Change) -> AliasChange | Denied:
    fault = alias_moves.name_fault(alias, None, await base_model_rows.names(sight.connection))
    if fault is not None:
        return fault
    current = await sight.alias(alias)
    candidate = await sight.candidate(adapter_id, current)
    return candidate if isinstance(candidate, Denied) else alias_moves.decide_set(current, candidate, alias, asked)


async def announced(sight: Sight, adapter_id: str, asked: Change) -> AliasChange | Denied:
    adapter = await adapter_rows.find(sight.connection, adapter_id)
    if adapter is None or adapter.announced.alias is None:
        message = f"Adapter {quoted(adapter_id)} was not announced with an alias."
        return Denied(kind="missing", code="alias_not_announced", message=message)
    current = await sight.alias(adapter.announced.alias)
    is_set = current is not None and current.adapter_id == adapter_id
    if not is_set and await wanted_rows.is_decided(sight.connection, adapter_id):
        message = f"Alias {adapter.announced.alias!r} was decided about since {adapter_id} became active."
        return Denied(kind="conflict", code="alias_decided", message=message)
    now_means = await adapter_rows.find(sight.connection, current.adapter_id) if current else None
    registered_at_s = now_means.registered_at_s if now_means else 0.0
    candidate = await sight.candidate(adapter_id, current)
    if isinstance(candidate, Denied):
        return candidate
    return alias_moves.decide_deploy(current, registered_at_s, candidate, adapter.announced.alias, asked)


async def retreat(sight: Sight, alias: str, asked: Change, kind: str) -> AliasChange | Denied:
    """Away from the newest version: a split ends, an alias without one goes back."""
    current = await sight.alias(alias)
    if current is None:
        return unknown_alias(alias)
    if current.split_adapter_id is not None:
        return splits.decide_unsplit(current, asked, kind)
    if current.previous_adapter_id is None:
        return alias_moves.nothing_before(alias)
    candidate = await sight.candidate(current.previous_adapter_id, current)
    return candidate if isinstance(candidate, Denied) else alias_moves.decide_rollback(current, candidate, asked, kind)


async def split(sight: Sight, alias: str, wish: tuple[str, float, str], asked: Change) -> AliasChange | Denied:
    """`wish` is adapter id, percentage and salt."""
    current = await sight.alias(alias)
    if current is None:
        return unknown_alias(alias)
    adapter_id, percent, salt = wish
    candidate = await sight.candidate(adapter_id, current)
    if isinstance(candidate, Denied):
        return candidate
    return splits.decide_split(current, Wish(candidate=candidate, percent=percent, salt=salt), asked)


async def promotion(sight: Sight, alias: str, asked: Change) -> AliasChange | Denied:
    current = await sight.alias(alias)
    if current is None:
        return unknown_alias(alias)
    if current.split_adapter_id is None:
        return splits.not_split(current)
    candidate = await sight.candidate(current.split_adapter_id, current)
    return candidate if isinstance(candidate, Denied) else splits.decide_promote(current, candidate, asked)


async def end_of_split(sight: Sight, alias: str, asked: Change) -> AliasChange | Denied:
    current = await sight.alias(alias)
    return unknown_alias(alias) if current is None else splits.decide_unsplit(current, asked)


def unknown_alias(alias: str) -> Denied:
    return Denied(kind="missing", code="alias_unknown", message=f"There is no alias {quoted(alias)}.")

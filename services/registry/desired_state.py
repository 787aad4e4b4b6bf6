"""Every value that the registry's buckets should hold, from one view of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core import lifecycle, records
from services.registry.core.deployment.aliases import AliasState
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, alias_rows, base_model_rows, customer_rows
from services.registry.io.adapter_rows import AdapterFilter
from services.registry.io.alias_rows import AliasFilter
from shared.contracts import catalog
from shared.contracts.channel import Channel
from shared.messages.desired import AliasTarget, BaseModelRecord
from shared.messages.identity import key_of

_PAGE = 500

Values = dict[tuple[str, ...], Any]


async def desired_state(connection: AsyncConnection) -> list[tuple[Channel[Any, Any], Values]]:
    """Bucket by bucket, in an order in which nothing refers to what comes later."""
    bases = {base.base_model_hash: base for base in await base_model_rows.listed(connection)}
    adapters = {adapter.adapter_id: adapter async for adapter in _held(connection)}
    states = [state async for state in _named(connection)]
    adapters |= await _named_besides(connection, states, adapters)
    return [
        (catalog.BASE_MODEL, {(key,): base for key, base in bases.items()}),
        (catalog.TENANT, {(tenant.tenant_id,): tenant for tenant in await customer_rows.tenants(connection)}),
        (catalog.API_KEY, {(key.key_hash,): key.record for key in await customer_rows.keys(connection)}),
        (catalog.ADAPTER, {(key_of(key),): records.adapter_record(one) for key, one in adapters.items()}),
        (catalog.ALIAS, _aliases(states, adapters, bases)),
    ]


async def _held(connection: AsyncConnection) -> AsyncIterator[StoredAdapter]:
    """A page at a time, by an index: others have their turns in between."""
    for status in lifecycle.HELD:
        wanted = AdapterFilter(statuses=(status,), limit=_PAGE)
        while page := await adapter_rows.listed(connection, wanted):
            for adapter in page:
                yield adapter
            wanted = msgspec.structs.replace(wanted, after=page[-1].adapter_id)


async def _named(connection: AsyncConnection) -> AsyncIterator[AliasState]:
    wanted = AliasFilter(limit=_PAGE)
    while page := await alias_rows.listed(connection, wanted):
        for state in page:
            yield state
        wanted = msgspec.structs.replace(wanted, after=page[-1].alias)


async def _named_besides(
    connection: AsyncConnection, states: Sequence[AliasState], held: Mapping[str, StoredAdapter]
) -> dict[str, StoredAdapter]:
    """Adapters that aliases mean although no replica may hold them: their records say so, and requests are refused
    with the reason instead of a 404."""
    named = {name for state in states for name in state.named if name not in held}
    found = [await adapter_rows.find(connection, adapter_id) for adapter_id in sorted(named)]
    return {adapter.adapter_id: adapter for adapter in found if adapter is not None}


def _aliases(
    states: Sequence[AliasState], adapters: Mapping[str, StoredAdapter], bases: Mapping[str, BaseModelRecord]
) -> Values:
    targets: dict[str | None, AliasTarget | None] = {None: None}
    for adapter_id in {name for state in states for name in state.named} & adapters.keys():
        adapter = adapters[adapter_id]
        targets[adapter_id] = records.alias_target(adapter, bases[adapter.announced.base_model_hash])
    return {
        (key_of(state.alias),): records.alias_record(state, target, targets[state.split_adapter_id])
        for state in states
        if (target := targets[state.adapter_id]) is not None
    }

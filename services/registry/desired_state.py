"""Every value that the registry's buckets should hold, from one view of the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core import lifecycle, records
from services.registry.core.records import StoredAdapter
from services.registry.io import adapter_rows, alias_rows, base_model_rows, customer_rows
from services.registry.io.adapter_rows import AdapterFilter
from shared.contracts import catalog
from shared.contracts.channel import Channel
from shared.messages.desired import AliasTarget, BaseModelRecord
from shared.messages.identity import key_of

Values = dict[tuple[str, ...], Any]


async def desired_state(connection: AsyncConnection) -> list[tuple[Channel[Any, Any], Values]]:
    """Bucket by bucket, in an order in which nothing refers to what comes later."""
    bases = {base.base_model_hash: base for base in await base_model_rows.listed(connection)}
    held = await adapter_rows.listed(connection, AdapterFilter(statuses=lifecycle.HELD))
    adapters = {adapter.adapter_id: adapter for adapter in held}
    return [
        (catalog.BASE_MODEL, {(key,): base for key, base in bases.items()}),
        (catalog.TENANT, {(tenant.tenant_id,): tenant for tenant in await customer_rows.tenants(connection)}),
        (catalog.API_KEY, {(key.key_hash,): key.record for key in await customer_rows.keys(connection)}),
        (catalog.ADAPTER, {(key_of(key),): records.adapter_record(one) for key, one in adapters.items()}),
        (catalog.ALIAS, await _aliases(connection, adapters, bases)),
    ]


async def _aliases(
    connection: AsyncConnection, held: Mapping[str, StoredAdapter], bases: Mapping[str, BaseModelRecord]
) -> Values:
    """Also those whose adapter replicas no longer hold: a request then learns that, instead of a 404."""
    targets: dict[str | None, AliasTarget | None] = {None: None}
    states = await alias_rows.listed(connection)
    for adapter_id in {name for state in states for name in state.named}:
        adapter = held.get(adapter_id) or await adapter_rows.find(connection, adapter_id)
        if adapter is not None:
            targets[adapter_id] = records.alias_target(adapter, bases[adapter.announced.base_model_hash])
    values: Values = {}
    for state in states:
        if (target := targets[state.adapter_id]) is not None:
            record = records.alias_record(state, target, targets[state.split_adapter_id])
            values[(key_of(state.alias),)] = record
    return values

"""What the registry knows that announcements must agree with."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.files.description import Surroundings
from services.registry.io import adapter_rows, base_model_rows, customer_rows
from shared.messages.adapters import AdapterRegistered
from shared.messages.desired import BaseModelRecord


class Sight:
    """At one moment, that of a transaction, for any number of announcements: most of a batch name the same tenant
    and the same base."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._tenants: dict[str, bool] = {}
        self._bases: dict[str, BaseModelRecord | None] = {}
        self._base_names: frozenset[str] | None = None

    async def around(self, announced: AdapterRegistered) -> Surroundings:
        return Surroundings(
            tenant_known=await self._tenant_known(announced.tenant_id),
            base=await self._base(announced.base_model_hash),
            base_names=await self._names(),
            predecessor_tenant_id=await adapter_rows.tenant_of(self._connection, announced.predecessor_id),
        )

    async def _tenant_known(self, tenant_id: str) -> bool:
        if tenant_id not in self._tenants:
            self._tenants[tenant_id] = await customer_rows.tenant_exists(self._connection, tenant_id)
        return self._tenants[tenant_id]

    async def _base(self, base_model_hash: str) -> BaseModelRecord | None:
        if base_model_hash not in self._bases:
            self._bases[base_model_hash] = await base_model_rows.find(self._connection, base_model_hash)
        return self._bases[base_model_hash]

    async def _names(self) -> frozenset[str]:
        if self._base_names is None:
            self._base_names = await base_model_rows.names(self._connection)
        return self._base_names

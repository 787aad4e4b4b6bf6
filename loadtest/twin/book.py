"""The adapters of a scenario by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadtest.twin.scenario import BASE_HASH, PoolShape
from shared.messages.desired import AdapterRecord
from shared.messages.identity import key_of

_PREFIX = "adapter-"


class Book:
    """Records are made when they are first asked for, and stay. Number n is a version of customer n mod `customers`."""

    def __init__(self, pools: tuple[PoolShape, ...], customers: int, named: Sequence[AdapterRecord] = ()) -> None:
        self.customers = customers
        self._homes = [pool for pool in pools if pool.merged is None]
        at_home = (msgspec.structs.replace(each, base_model_hash=BASE_HASH) for each in named)
        self._records: dict[int, AdapterRecord] = dict(enumerate(at_home))
        self._numbers = {record.adapter_id: number for number, record in self._records.items()}

    def record(self, adapter: int) -> AdapterRecord:
        known = self._records.get(adapter)
        if known is None:
            known = self._records[adapter] = self._made(adapter)
        return known

    def number_of(self, adapter_id: str) -> int:
        known = self._numbers.get(adapter_id)
        return int(adapter_id.removeprefix(_PREFIX)) if known is None else known

    def known(self, adapter_id: str) -> AdapterRecord:
        return self.record(self.number_of(adapter_id))

    def home_of(self, customer: int) -> PoolShape:
        """Raises LookupError if no pool has this customer's adapters."""
        for pool in self._homes:
            last = self.customers if pool.customers is None else pool.first_customer + pool.customers
            if pool.first_customer <= customer < last:
                return pool
        raise LookupError(f"no pool has the adapters of customer {customer}")

    def _made(self, adapter: int) -> AdapterRecord:
        customer, version = adapter % self.customers, adapter // self.customers
        pool = self.home_of(customer)
        name = f"{_PREFIX}{adapter:06d}"
        return AdapterRecord(
            adapter_id=name,
            digest=key_of(name),
            tenant_id=f"customer-{customer}",
            version=str(version),
            pool_id=pool.pool_id,
            base_model_hash=BASE_HASH,
            rank=pool.rank,
            alpha=32.0,
            target_modules=("q_proj",),
            size_bytes=pool.adapter_bytes,
            store_key=name,
            status="active",
        )

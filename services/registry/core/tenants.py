"""Which tenants make sense."""

from __future__ import annotations

import math

import msgspec

from services.registry.core.deployment.aliases import Denied
from shared.messages.desired import TenantRecord
from shared.messages.identity import TENANT_ID_GRAMMAR, is_tenant_id


def wanted_tenant(known: TenantRecord | None, tenant_id: str, weight: float | None) -> TenantRecord:
    """The tenant as it is to be; without a weight it keeps the one that it has, or gets the usual one."""
    before = known or TenantRecord(tenant_id=tenant_id)
    return before if weight is None else msgspec.structs.replace(before, weight=weight)


def tenant_fault(record: TenantRecord) -> Denied | None:
    """What is wrong with a tenant, or None."""
    if not is_tenant_id(record.tenant_id):
        message = f"tenant_id must be {TENANT_ID_GRAMMAR}."
        return Denied(kind="invalid", code="tenant_invalid", message=message, field="tenant_id")
    if not (math.isfinite(record.weight) and record.weight > 0):
        message = f"weight is {record.weight}; it must be a finite number above 0."
        return Denied(kind="invalid", code="weight_invalid", message=message, field="weight")
    return None

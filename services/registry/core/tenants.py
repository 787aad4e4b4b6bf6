"""Which tenants make sense."""

from __future__ import annotations

import math

from services.registry.core.aliases import Denied
from shared.messages.desired import TenantRecord
from shared.messages.identity import TENANT_ID_GRAMMAR, is_tenant_id


def tenant_fault(record: TenantRecord) -> Denied | None:
    """What is wrong with a tenant, or None."""
    if not is_tenant_id(record.tenant_id):
        message = f"tenant_id must be {TENANT_ID_GRAMMAR}."
        return Denied(kind="invalid", code="tenant_invalid", message=message, field="tenant_id")
    if not (math.isfinite(record.weight) and record.weight > 0):
        message = f"weight is {record.weight}; it must be a finite number above 0."
        return Denied(kind="invalid", code="weight_invalid", message=message, field="weight")
    return None

"""Usage as gateways record it, and as it reads after the bus."""

from __future__ import annotations

from typing import Any

from shared.contracts.catalog import USAGE_RECORDED
from shared.contracts.codec import decode, encode
from shared.messages.usage import UsageBatch, UsageRecord


def record(call_id: str = "c1", **changes: Any) -> UsageRecord:
    """One good answer of three tokens."""
    said: dict[str, Any] = {
        "request_id": "q1", "tenant_id": "acme", "key_id": "k1", "alias": "acme/support:prod", "adapter_id": "v1",
        "digest": "a" * 64, "pool_id": "p", "replica_id": "r0", "tier": "gpu", "prompt_tokens": 7,
        "completion_tokens": 3, "cached_tokens": 2, "ttft_ms": 10.0, "duration_ms": 30.0, "outcome": "stop",
        "attempts": 1, "stream": True, "at_s": 1.0,
    }  # fmt: skip
    return UsageRecord(call_id=call_id, **{**said, **changes})


def batch(*records: UsageRecord, gateway_id: str = "g1", sequence: int = 1) -> UsageBatch:
    made = UsageBatch(gateway_id=gateway_id, sequence=sequence, records=records)
    return decode(USAGE_RECORDED, encode(USAGE_RECORDED, made))

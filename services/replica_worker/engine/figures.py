"""What an engine tells of its work."""

from __future__ import annotations

import msgspec


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """At one moment. `tokens_in_flight` are context so far plus what may still be produced."""

    running: int
    waiting: int
    tokens_in_flight: int
    kv_bytes_used: int
    steps: int
    tokens_per_s: float
    kv_used_tokens: int = 0
    """Of `EngineInfo.kv_tokens`, in whole blocks; what is only kept for a prefix that may come again does not count."""

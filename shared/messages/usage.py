"""What each request was and cost. Never a word of what was asked or answered."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request that reached a gateway's directory, written once, when it ended.

    `call_id` is unique. `adapter_id` is "base" for the base model. `tier` is where the adapter was found, "" if no
    replica accepted. `completion_tokens` are those that the gateway passed on, also of a stream that broke off.
    `outcome` is "stop", "length", "cancelled" or the code of the refusal. `at_s` is the wall-clock time of the end.
    """

    call_id: str
    request_id: str
    tenant_id: str
    key_id: str
    alias: str
    adapter_id: str
    digest: str
    pool_id: str
    replica_id: str
    tier: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    ttft_ms: float | None
    duration_ms: float
    outcome: str
    attempts: int
    stream: bool
    at_s: float


class UsageBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What ended at one gateway since its last batch. `sequence` counts from 1 for each gateway process."""

    gateway_id: str
    sequence: int
    records: tuple[UsageRecord, ...]


class PoolTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Requests per second of the busiest adapters of a pool (at most MOST_BUSY), as the last windows show them."""

    pool_id: str
    at_s: float
    requests_per_s: Mapping[str, float]


BASE = "base"
"""The `adapter_id` of requests for which no adapter is applied."""

MOST_BUSY = 2_000

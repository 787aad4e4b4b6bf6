"""What customers asked for lately, as a gateway saw it: the demand that placement and the autoscaler follow."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class AdapterActivity(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter since the gateway's last message. `requests` counts those that began, refused ones included;
    `tokens` are completion tokens that were passed on, those of unfinished streams included."""

    requests: int = 0
    finished: int = 0
    tokens: int = 0
    first_tokens: Mapping[int, int] = {}
    """How many came in which bucket of `shared.latencies`."""


class PoolActivity(msgspec.Struct, frozen=True, kw_only=True):
    """One pool since the gateway's last message. `adapters` has the busiest (at most MOST_BUSY over all pools), the
    base model under BASE; the sums have everybody. A late first token came after the gateway's TTFT objective."""

    requests: int = 0
    refused: int = 0
    first_tokens: int = 0
    late_first_tokens: int = 0
    tokens: int = 0
    adapters: Mapping[str, AdapterActivity] = {}


class GatewayActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Every second. Not a snapshot: a lost one leaves its interval uncounted. `sequence` counts up by one for every
    message of one gateway process."""

    gateway_id: str
    sequence: int
    interval_s: float
    pools: Mapping[str, PoolActivity]

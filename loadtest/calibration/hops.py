"""How long an adapter's way takes, hop by hop: an operator has it loaded, one tier higher each time.

What a load takes of which nothing is left to do is the way of the order itself, and is taken off.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from statistics import median

import httpx
import msgspec

_TIERS = ("disk", "ram", "gpu")
"""In the order in which an adapter reaches them."""
FASTEST_BYTES_PER_S = 100e9
"""Where size makes no difference that could be measured."""


class HopFailed(RuntimeError):
    """The fleet did not do what it was told; the text is what it said."""


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter's way to `tier` from the one below."""

    tier: str
    size_bytes: int
    took_s: float


class Way(msgspec.Struct, frozen=True, kw_only=True):
    latency_s: float
    bytes_per_s: float


async def measure_hops(
    admin: httpx.AsyncClient, replica_ids: Sequence[str], sizes: Mapping[str, int], rounds: int
) -> list[Hop]:
    """`sizes` are of adapters, by their id, that no alias names: nobody but us loads them. Raises HopFailed."""
    found = []
    for _ in range(rounds):
        for adapter_id, size_bytes in sizes.items():
            for replica_id in replica_ids:
                adapter = f"/internal/replicas/{replica_id}/adapters/{adapter_id}"
                await _told(admin, f"{adapter}/unload", {})
                found += [hop async for hop in _climb(admin, adapter, size_bytes)]
    return found


def fit_ways(hops: Iterable[Hop]) -> dict[str, Way]:
    """By tier: a line through the medians of the smallest and the largest size."""
    by_tier: dict[str, dict[int, list[float]]] = {}
    for hop in hops:
        by_tier.setdefault(hop.tier, {}).setdefault(hop.size_bytes, []).append(hop.took_s)
    return {tier: _line({size: median(took_s) for size, took_s in some.items()}) for tier, some in by_tier.items()}


def _line(took_s: Mapping[int, float]) -> Way:
    small, large = min(took_s), max(took_s)
    longer_s = took_s[large] - took_s[small]
    bytes_per_s = min(FASTEST_BYTES_PER_S, (large - small) / longer_s) if longer_s > 0 else FASTEST_BYTES_PER_S
    middle_s = (took_s[large] + took_s[small]) / 2
    latency_s = middle_s - (large + small) / 2 / bytes_per_s
    return Way(latency_s=max(0.0, latency_s), bytes_per_s=bytes_per_s)


async def _climb(admin: httpx.AsyncClient, adapter: str, size_bytes: int) -> AsyncIterator[Hop]:
    for tier in _TIERS:
        took_s, again_s = [await _told(admin, f"{adapter}/load", {"tier": tier}) for _ in range(2)]
        yield Hop(tier=tier, size_bytes=size_bytes, took_s=max(0.0, took_s - again_s))


async def _told(admin: httpx.AsyncClient, path: str, body: Mapping[str, str]) -> float:
    """How long it took, in seconds."""
    began_s = time.monotonic()
    answer = await admin.post(path, json=body)
    if not answer.is_success:
        raise HopFailed(f"{path}: {answer.status_code} {answer.text}")
    return time.monotonic() - began_s

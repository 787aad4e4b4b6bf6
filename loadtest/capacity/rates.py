"""Tokens a second: what a replica produces, how many replicas that takes, and where adapters are to be then.

Every function's first line is its formula; rates and rules are the spec's (section 1, "one replica" to "placement").
"""

from __future__ import annotations

import math

from loadtest.workloads.popularity import Floats


def tokens_per_s(rows: int, step_s: float) -> float:
    """rows ÷ step: one token for every running request and step."""
    return rows / step_s


def busy_replicas(tokens_per_s: float, replica_tokens_per_s: float) -> float:
    """tokens/s ÷ tokens/s of one replica: as many are busy all the time."""
    return tokens_per_s / replica_tokens_per_s


def replicas(busy: float, headroom: float) -> int:
    """⌈(decoding + prefilling) × headroom⌉."""
    return math.ceil(round(busy * headroom, 9))


def owned(adapters: int, owners: int, replicas: int) -> int:
    """⌈adapters × owners ÷ replicas⌉, and no more than there are adapters."""
    return math.ceil(adapters * min(owners, replicas) / replicas)


def owners_for(tokens_per_s: float, replica_tokens_per_s: float, least: int) -> int:
    """max(owners, ⌈the customer's tokens/s ÷ a replica's⌉)."""
    return max(least, math.ceil(tokens_per_s / replica_tokens_per_s))


def distinct(shares: Floats, rows: int) -> float:
    """Σ 1 − (1 − share)^rows: different adapters among so many independent requests."""
    return float((1 - (1 - shares) ** rows).sum())


def load_s(size_bytes: float, bytes_per_s: float) -> float:
    """bytes ÷ the link's bytes/s."""
    return size_bytes / bytes_per_s


def steps(prompt_tokens: float, chunk_tokens: int) -> int:
    """⌈prompt ÷ chunk⌉: steps until a prompt is read, if nobody else has one."""
    return math.ceil(prompt_tokens / chunk_tokens)


def usd_per_million_tokens(usd_per_hour: float, tokens_per_s: float) -> float:
    """USD/h ÷ (output tokens/s × 3,600) × 10^6."""
    return usd_per_hour / (tokens_per_s * 3600) * 1e6

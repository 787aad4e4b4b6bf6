"""Rendezvous hashing: every reader ranks the same replicas in the same order, with no table to share."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

_SPAN = 1 << 64


def rank(adapter_id: str, weights: Mapping[str, float]) -> tuple[str, ...]:
    """Replica ids, best owner first; a replica without a positive weight is left out.

    Weighted rendezvous hashing (Thaler and Ravishankar 1998; the logarithmic weighting is Schindelhauer
    and Schomaker's, 2005): score = -weight / ln(u) with u uniform in (0, 1) from a hash of the pair.
    A replica is first with probability weight / sum of weights, and adding or removing one moves only
    the adapters that it gains or loses. Ties break by replica id.
    """
    scored = [(-_score(adapter_id, name, weight), name) for name, weight in weights.items() if weight > 0]
    return tuple(name for _, name in sorted(scored))


def _score(adapter_id: str, replica_id: str, weight: float) -> float:
    word = hashlib.blake2b(f"{adapter_id}\0{replica_id}".encode(), digest_size=8).digest()
    uniform = (int.from_bytes(word, "big") + 0.5) / _SPAN
    return -weight / math.log(uniform) if uniform < 1.0 else math.inf

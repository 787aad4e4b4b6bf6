"""From logits to a token, keyed by (seed, position): no generator state, so no batch and no failover can
change a draw."""

from __future__ import annotations

import hashlib
import struct

import torch

_CANDIDATES = 256
"""Top-p looks at this many best tokens first; only a flatter distribution is sorted whole."""


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but (seed, position)."""
    key = struct.pack("<QQ", seed & 0xFFFFFFFFFFFFFFFF, position)
    drawn = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
    return (drawn >> 11) * 2.0**-53


def sample(logits: torch.Tensor, temperature: float, top_p: float, draw: float) -> int:
    """One token of logits [vocabulary], finite or -inf. `temperature` > 0; `draw` in [0, 1) picks by inverse CDF.

    With `top_p` < 1 only the smallest set of best tokens whose probabilities reach it takes part.
    """
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    if top_p >= 1.0:
        return _pick(probabilities, draw)
    values, token_ids = torch.topk(probabilities, min(_CANDIDATES, len(probabilities)))
    if values.sum().item() < top_p:
        values, token_ids = torch.sort(probabilities, descending=True, stable=True)
    before = values.cumsum(0) - values
    kept = values[before < top_p]
    return int(token_ids[_pick(kept, draw)]) if len(kept) else int(token_ids[0])


def _pick(weights: torch.Tensor, draw: float) -> int:
    """Index i with probability weights[i] / sum."""
    edges = weights.cumsum(0)
    at = torch.searchsorted(edges, edges[-1] * draw, right=True)
    return min(int(at), len(weights) - 1)

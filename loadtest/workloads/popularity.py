"""How calls spread over customers."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from loadtest.workloads.shape import Drift, OneHot, Uniform, Zipf

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


def shares(popularity: Zipf | Uniform | OneHot, customers: int) -> Floats:
    """The share of calls by rank, `[customers]`, adding up to 1."""
    if isinstance(popularity, Zipf):
        weights: Floats = np.arange(1, customers + 1, dtype=np.float64) ** -popularity.s
        return weights / float(weights.sum())
    if isinstance(popularity, Uniform) or customers == 1:
        return np.full(customers, 1 / customers)
    rest = np.full(customers, (1 - popularity.share) / (customers - 1))
    rest[0] = popularity.share
    return rest


def ranks(shares: Floats, draws: Floats) -> Ints:
    """Which rank each draw (uniform in [0, 1)) falls on."""
    bounds = np.cumsum(shares)
    return np.minimum(np.searchsorted(bounds, draws, side="right"), len(shares) - 1)


def tenants(ranks: Ints, times_s: Floats, drift: Drift | None, customers: int) -> Ints:
    """Who holds each rank at its moment: itself, until ranks have rotated."""
    if drift is None:
        return ranks
    turned = np.floor_divide(times_s, drift.every_s).astype(np.int64) * drift.step
    return (ranks + turned) % customers

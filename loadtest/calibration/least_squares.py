"""Least squares where nothing takes less than no time, and where a few measurements are far off."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

LEAST_S = 1e-7
NORMAL = 1.4826
"""A normal distribution's standard deviation over the median of what lies off its middle."""
_ROUNDS = 12
_FAR = 1.5
"""So many standard deviations."""
_FLAT = 1e-9
"""What is gained by less than this share of all is no gain."""


def not_negative(design: Floats, wanted: Floats) -> Floats:
    """Least squares under the condition that nothing is below zero (Lawson and Hanson's way): whatever helps most is
    let in, one after the other, and whoever would be below zero then is put out again."""
    sizes = np.linalg.norm(design, axis=0)
    scaled = design / np.where(sizes > 0, sizes, 1.0)
    found, free = np.zeros(design.shape[1]), np.zeros(design.shape[1], bool)
    for _ in range(3 * design.shape[1]):
        gain = np.where(free, -np.inf, scaled.T @ (wanted - scaled @ found))
        best = int(gain.argmax())
        if gain[best] <= _FLAT * float(np.linalg.norm(wanted)):
            break
        free[best] = True
        found = _within(scaled, wanted, found, free)
    return found / np.where(sizes > 0, sizes, 1.0)


def steady(design: Floats, wanted: Floats) -> Floats:
    """The same, but whatever is far off, as when the machine did something else meanwhile, pulls no harder than what is
    somewhat off."""
    weights = np.ones(len(wanted))
    for _ in range(_ROUNDS):
        found = not_negative(design * weights[:, None], wanted * weights)
        left = np.abs(wanted - design @ found)
        scatter = max(LEAST_S, NORMAL * float(np.median(left)))
        weights = np.sqrt(np.minimum(1.0, _FAR * scatter / np.maximum(left, LEAST_S)))
    return found


def _within(design: Floats, wanted: Floats, found: Floats, free: npt.NDArray[np.bool_]) -> Floats:
    """From `found` towards the best that the free ones can do, as far as none gets below zero; `free` loses whoever
    stopped it."""
    while True:
        best = np.zeros(len(found))
        best[free] = np.linalg.lstsq(design[:, free], wanted, rcond=None)[0]
        below = free & (best <= 0)
        if not below.any():
            return best
        far = float(np.min(found[below] / np.maximum(found[below] - best[below], 1e-300)))
        found = np.maximum(found + far * (best - found), 0.0)
        free &= ~(below & (found <= 1e-12 * max(1.0, float(found.max()))))
        free &= found > 0

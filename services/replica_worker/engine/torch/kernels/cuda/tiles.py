"""How a step's rows are cut into tiles: on the host, in numpy, before anything goes to the device."""

from __future__ import annotations

import numpy as np


def runs(keys: np.ndarray, most: int) -> np.ndarray:
    """[t, 2] int64: [begin, end) of neighbours of one key, at most so many of them."""
    edges = np.flatnonzero(np.diff(keys)) + 1
    begins, ends = np.append(0, edges), np.append(edges, len(keys))
    tiles = [
        (first, min(first + most, end))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        for first in range(begin, end, most)
    ]
    return np.array(tiles, np.int64).reshape(-1, 2)

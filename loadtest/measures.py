"""What several measurements have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest-rank quantile: the smallest value that `share` (above 0) of all values do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]

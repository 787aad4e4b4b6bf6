"""Percentiles of times from counts in buckets that widen with the time: anybody may add them up.

Bucket b holds times above GROWTH^(b-1) and up to GROWTH^b seconds, so one second ends a bucket. A percentile is right
within ERROR of itself between LEAST_S and MOST_S; a time outside of them counts as one of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

ERROR = 0.05
GROWTH = (1 + ERROR) / (1 - ERROR)
_LOG_GROWTH = math.log(GROWTH)
_FIRST, _LAST = -69, 65
LEAST_S, MOST_S = GROWTH**_FIRST, GROWTH**_LAST
"""1 ms and 11 minutes."""


def bucket_of(seconds: float) -> int:
    if seconds <= LEAST_S:
        return _FIRST
    # One second and its like, a rounding error above the end of a bucket, belong below it.
    return min(_LAST, math.ceil(math.log(seconds) / _LOG_GROWTH - 1e-9))


def seconds_of(bucket: int) -> float:
    """The time that is nearest to all that the bucket holds."""
    return 2 * GROWTH**bucket / (GROWTH + 1)


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The time that `share` of those counted do not exceed, in seconds; None if nothing was counted."""
    measured = sum(counts.values())
    if not measured:
        return None
    rank = max(1, math.ceil(share * measured))
    for bucket in sorted(counts):
        rank -= counts[bucket]
        if rank <= 0:
            return seconds_of(bucket)
    raise AssertionError("the counts come to less than their sum")

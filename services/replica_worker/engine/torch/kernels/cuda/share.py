"""What adapters add to a product, and when it is added.

The share is computed on a stream of its own while the base product, which reads far more, runs: then adapters cost
their bytes and hardly any time. It is rounded once to the engine's dtype and lies beside the product until the next
kernel reads both; rows without an adapter have none, and their part of it is neither written nor read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Share(NamedTuple):
    """A product `y` [n, width], and what is owed to it: `extra` like y, to be added in the rows where `adapted` [n]
    int32 is not 0. Nothing is owed: both None."""

    y: Any
    extra: Any
    adapted: Any


@triton.jit
def with_share(owing, row, at, kept):
    """y[at], which lies in `row`, with what is owed to it, rounded like y; in float32."""
    y = tl.load(owing.y + at, kept, 0.0).to(tl.float32)
    if owing.extra is not None:
        mine = tl.broadcast_to(tl.load(owing.adapted + row), at.shape) != 0
        extra = tl.load(owing.extra + at, kept & mine, 0.0).to(tl.float32)
        y = tl.where(mine, (y + extra).to(owing.y.dtype.element_ty).to(tl.float32), y)
    return y

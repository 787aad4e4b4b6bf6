"""Base weights in oneDNN's own blocked order, which it otherwise makes anew for every product.

torch offers it under names that it keeps for its own compiler. So it is tried before it is believed: `packed`
gives None where the names are gone, the memory is, or the numbers are not those of the plain product, to the
last bit; then the plain product does the work, more slowly.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
import torch.nn.functional as functional

_TRIED_ROWS = (4, 32, 144)
"""The smallest step, a full batch, and a batch beside a piece of a prompt: the library may treat each differently."""

_log = logging.getLogger(__name__)


class PackedProduct:
    """Keeps its own copy of the weight, as large as the weight, and needs the weight no more."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._product: Any = torch.ops.mkldnn._linear_pointwise
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 32)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = self._product(x, self._weight, self._bias, "none", [], "")
        return product


def packed(weight: torch.Tensor, bias: torch.Tensor | None) -> PackedProduct | None:
    """For weight [out, in] in bfloat16 on a CPU; None where the plain product must do."""
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        return None
    try:
        product = PackedProduct(weight, bias)
        if all(_agrees(product, weight, bias, rows) for rows in _TRIED_ROWS):
            return product
        reason = "its numbers are others"
    except (AttributeError, RuntimeError) as error:
        reason = str(error)
    _tell_once(reason)
    return None


@functools.cache
def _tell_once(reason: str) -> None:
    """A model has hundreds of products, and they all fail alike."""
    _log.warning("products of base weights run on them as they are, which is slower: %s", reason)


def _agrees(product: PackedProduct, weight: torch.Tensor, bias: torch.Tensor | None, rows: int) -> bool:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, weight.shape[1], generator=generator).to(weight.dtype)
    return torch.equal(product(x), functional.linear(x, weight, bias))

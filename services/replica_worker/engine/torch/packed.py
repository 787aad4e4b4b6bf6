"""Base weights in oneDNN's own blocked order, which it otherwise makes anew for every product.

Off unless `TorchPolicy.packed_weights` asks for it: torch offers it under names that it keeps for its own
compiler. So it is tried before it is believed: `packed` gives None where the names are gone or the numbers
are not those of the plain product, to the last bit.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional

_TRIED_ROWS = (4, 32)


class PackedProduct:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._product: Any = torch.ops.mkldnn._linear_pointwise
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _TRIED_ROWS[-1])
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
        return product if all(_agrees(product, weight, bias, rows) for rows in _TRIED_ROWS) else None
    except (AttributeError, RuntimeError):
        return None


def _agrees(product: PackedProduct, weight: torch.Tensor, bias: torch.Tensor | None, rows: int) -> bool:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, weight.shape[1], generator=generator).to(weight.dtype)
    return torch.equal(product(x), functional.linear(x, weight, bias))

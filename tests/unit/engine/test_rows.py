"""The ground that batch invariance stands on: a row of a padded product is the same at every batch size."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as functional

from services.replica_worker.engine.torch.model import ROW_MULTIPLE

LARGEST_STEP_ROWS = 160


def rows_that_differ(dtype: torch.dtype, multiple: int) -> int:
    """Over sizes that a step can have, with inputs as uneven as real activations are."""
    generator = torch.Generator().manual_seed(0)
    differing = 0
    for _ in range(12):
        weight = (torch.randn(576, 1536, generator=generator) * 0.05).to(dtype)
        scales = torch.randn(LARGEST_STEP_ROWS, 1, generator=generator).exp()
        x = (torch.randn(LARGEST_STEP_ROWS, 1536, generator=generator) * scales).to(dtype)
        whole = functional.linear(x, weight)
        for rows in range(multiple, LARGEST_STEP_ROWS + 1, 3 * multiple):
            differing += int((functional.linear(x[:rows], weight) != whole[:rows]).any(dim=1).sum())
    return differing


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_row_of_a_padded_product_is_bit_equal_at_every_size(dtype: torch.dtype) -> None:
    assert rows_that_differ(dtype, ROW_MULTIPLE[dtype]) == 0


def test_the_check_notices_a_product_that_is_not_padded() -> None:
    assert rows_that_differ(torch.float32, 1) > 0

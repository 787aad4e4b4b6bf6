"""The adapted layer: what it computes, and what it leaves alone to the last bit."""

from __future__ import annotations

import pytest
import torch

from services.replica_worker.engine.torch.lora import AdaptedRows, LoraStack

SLOTS, RANK, INNER, OUT = 5, 8, 48, 32
CPU = torch.device("cpu")


def stack(dtype: torch.dtype) -> LoraStack:
    """Slot s holds rank s + 1 and scale s + 1."""
    made = LoraStack(SLOTS, RANK, (OUT, INNER), torch.empty(0, dtype=dtype))
    generator = torch.Generator().manual_seed(0)
    for slot in range(SLOTS):
        a = torch.randn(INNER, slot + 1, generator=generator).to(dtype)
        b = torch.randn(slot + 1, OUT, generator=generator).to(dtype)
        made.store(slot, a, b, scale=slot + 1.0)
    return made


def inputs(rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    y, x = torch.randn(rows, OUT, generator=generator), torch.randn(rows, INNER, generator=generator)
    return y.to(dtype), x.to(dtype)


def added(made: LoraStack, slot_of_row: list[int], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(before, after) of y [n, out]."""
    y, x = inputs(len(slot_of_row), dtype)
    after, adapted = y.clone(), AdaptedRows.of(slot_of_row, CPU)
    if adapted:
        made.add_to(after, x, adapted)
    return y, after


def test_it_adds_scale_times_b_times_a_of_each_rows_own_slot() -> None:
    made, slot_of_row = stack(torch.float32), [3, -1, 0, 4, 3, -1, 1]
    y, after = added(made, slot_of_row, torch.float32)
    _, x = inputs(len(slot_of_row), torch.float32)
    for row, slot in enumerate(slot_of_row):
        expected = y[row] + (made.scale[slot] * (x[row] @ made.a[slot]) @ made.b[slot] if slot >= 0 else 0)
        torch.testing.assert_close(after[row], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_row_is_bit_equal_whoever_is_in_the_batch(dtype: torch.dtype) -> None:
    made = stack(dtype)
    crowd = [row % (SLOTS + 1) - 1 for row in range(160)]
    _, together = added(made, crowd, dtype)
    y, x = inputs(len(crowd), dtype)
    for row in range(0, 160, 7):
        alone = y[row : row + 1].clone()
        if adapted := AdaptedRows.of([crowd[row]], CPU):
            made.add_to(alone, x[row : row + 1], adapted)
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("poison", [float("inf"), float("nan")])
def test_a_poisoned_slot_reaches_nobody_else(dtype: torch.dtype, poison: float) -> None:
    made, slot_of_row = stack(dtype), [0, 2, -1, 2, 1]
    y, clean = added(made, slot_of_row, dtype)
    for tensor in made.tensors(2):
        tensor.fill_(poison)
    _, after = added(made, slot_of_row, dtype)
    for row in (0, 4):
        assert torch.equal(after[row], clean[row])
    assert torch.equal(after[2], y[2])
    assert not after[1].isfinite().any()


def test_a_step_without_adapters_has_no_adapted_rows() -> None:
    assert AdaptedRows.of([-1, -1], CPU) is None


def test_a_smaller_rank_leaves_nothing_of_the_former_adapter() -> None:
    made = stack(torch.float32)
    made.store(4, torch.ones(INNER, 1), torch.ones(1, OUT), scale=1.0)
    assert made.a[4, :, 1:].count_nonzero() == made.b[4, 1:].count_nonzero() == 0


def test_a_cleared_slot_adds_nothing() -> None:
    made = stack(torch.float32)
    made.clear(3)
    y, after = added(made, [3, 3], torch.float32)
    assert torch.equal(after, y)

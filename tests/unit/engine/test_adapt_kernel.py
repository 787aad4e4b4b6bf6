"""The adapted layer: what it computes, and what it leaves alone to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from services.replica_worker.engine.torch.adapter import CheckedAdapter, HostModule, Place
from services.replica_worker.engine.torch.kernels.cpu import CpuKernels
from services.replica_worker.engine.torch.kernels.port import Packed
from services.replica_worker.engine.torch.slots import AdapterSlots
from services.replica_worker.engine.torch.steps import adapted_parts
from tests.support.adapted_layer import ANY_SPEC, narrow_model
from tests.support.file_in_memory import laid_out

SLOTS, RANK_LIMIT, HIDDEN, KEYS = 5, 16, 96, 32
COLUMNS = (HIDDEN, KEYS, KEYS)
MODULES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
CONFIG = narrow_model(HIDDEN, heads=3)
KERNELS = CpuKernels(threads=1)


def adapter(slot: int, dtype: torch.dtype) -> CheckedAdapter:
    """For slot s: rank 3 s + 1 and scale s + 1 in layer 1; slot 2 does not adapt keys."""
    generator = torch.Generator().manual_seed(slot)
    modules: dict[Place, HostModule] = {
        (1, module): HostModule(
            torch.randn(HIDDEN, 3 * slot + 1, generator=generator).to(dtype),
            torch.randn(3 * slot + 1, columns, generator=generator).to(dtype),
            slot + 1.0,
        )
        for module, columns in zip(MODULES, COLUMNS, strict=True)
        if (slot, module) != (2, MODULES[1])
    }
    return CheckedAdapter(spec=ANY_SPEC, modules=modules)


def filled(dtype: torch.dtype, kernels: CpuKernels = KERNELS) -> AdapterSlots:
    slots = AdapterSlots(CONFIG, SLOTS, RANK_LIMIT, torch.empty(0, dtype=dtype), kernels)
    for slot in range(SLOTS):
        slots.store(slot, laid_out(adapter(slot, dtype), CONFIG, kernels))
    return slots


def inputs(rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    y, x = torch.randn(rows, sum(COLUMNS), generator=generator), torch.randn(rows, HIDDEN, generator=generator)
    return y.to(dtype), x.to(dtype)


def add(
    slots: AdapterSlots, slot_of_row: list[int], y: torch.Tensor, x: torch.Tensor, kernels: CpuKernels = KERNELS
) -> torch.Tensor:
    """y after the projection of layer 1, whose first module is number 7."""
    after = y.clone()
    parts = adapted_parts(np.array(slot_of_row), kernels)
    packed = Packed(7, kernels.index(COLUMNS))
    kernels.adapt(kernels.view(after), kernels.view(x), slots.stacks, packed, parts)
    return after


def expected(slot: int, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The share of one row's adapter, in double precision."""
    modules = adapter(slot, dtype).modules
    shares = []
    for module, columns in zip(MODULES, COLUMNS, strict=True):
        one = modules.get((1, module))
        share = torch.zeros(columns, dtype=torch.float64)
        shares.append(one.scale * (x.double() @ one.a.double()) @ one.b.double() if one else share)
    return torch.cat(shares)


def test_it_adds_scale_times_b_times_a_of_each_rows_own_slot() -> None:
    slot_of_row = [3, -1, 0, 4, 3, -1, 1, 2, 3]
    y, x = inputs(len(slot_of_row), torch.float32)
    after = add(filled(torch.float32), slot_of_row, y, x)
    for row, slot in enumerate(slot_of_row):
        share = expected(slot, x[row], torch.float32) if slot >= 0 else torch.zeros(sum(COLUMNS)).double()
        torch.testing.assert_close(after[row].double(), y[row].double() + share, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_row_is_bit_equal_whoever_is_in_the_batch(dtype: torch.dtype) -> None:
    slots, crowd = filled(dtype), [row % (SLOTS + 1) - 1 for row in range(161)]
    y, x = inputs(len(crowd), dtype)
    together = add(slots, crowd, y, x)
    for row in range(0, len(crowd), 7):
        alone = add(slots, [crowd[row]], y[row : row + 1], x[row : row + 1])
        assert torch.equal(alone[0], together[row])


def test_a_row_is_bit_equal_whatever_the_number_of_threads_and_the_rank_limit() -> None:
    crowd = [row % (SLOTS + 1) - 1 for row in range(161)]
    y, x = inputs(len(crowd), torch.bfloat16)
    one = add(filled(torch.bfloat16), crowd, y, x)
    several = CpuKernels(threads=3)
    wider = AdapterSlots(CONFIG, SLOTS, 4 * RANK_LIMIT, torch.empty(0, dtype=torch.bfloat16), several)
    for slot in range(SLOTS):
        wider.store(slot, laid_out(adapter(slot, torch.bfloat16), CONFIG, several))
    assert len(adapted_parts(np.array(crowd), several)) == 3
    assert torch.equal(add(wider, crowd, y, x, several), one)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("poison", [float("inf"), float("nan")])
def test_a_poisoned_slot_reaches_nobody_else(dtype: torch.dtype, poison: float) -> None:
    slots, slot_of_row = filled(dtype), [0, 2, -1, 2, 1]
    y, x = inputs(len(slot_of_row), dtype)
    clean = add(slots, slot_of_row, y, x)
    slots.weights_of(2).fill_(poison)
    after = add(slots, slot_of_row, y, x)
    for row in (0, 2, 4):
        assert torch.equal(after[row], clean[row])
    assert torch.equal(after[1, HIDDEN : HIDDEN + KEYS], y[1, HIDDEN : HIDDEN + KEYS])
    assert not after[1, :HIDDEN].isfinite().any()


def test_a_row_full_of_nan_keeps_it_to_itself() -> None:
    slots, slot_of_row = filled(torch.float32), [3, 3, 3]
    y, x = inputs(3, torch.float32)
    clean = add(slots, slot_of_row, y, x)
    x[1] = float("nan")
    after = add(slots, slot_of_row, y, x)
    assert torch.equal(after[::2], clean[::2])
    assert after[1].isnan().all()


def test_a_step_without_adapters_has_no_adapted_rows() -> None:
    assert len(adapted_parts(np.array([-1, -1]), KERNELS)) == 0


def test_a_smaller_adapter_leaves_nothing_of_the_former_one() -> None:
    slots, fresh = filled(torch.float32), filled(torch.float32)
    y, x = inputs(2, torch.float32)
    slots.store(4, laid_out(adapter(0, torch.float32), CONFIG, KERNELS))
    assert torch.equal(add(slots, [4, 4], y, x), add(fresh, [0, 0], y, x))
    assert slots.fingerprint(4) == fresh.fingerprint(0)


def test_a_cleared_slot_adds_nothing() -> None:
    slots = filled(torch.float32)
    slots.clear(3)
    y, x = inputs(2, torch.float32)
    assert torch.equal(add(slots, [3, 3], y, x), y)


def test_a_load_that_breaks_off_leaves_an_empty_slot() -> None:
    class Broken(CpuKernels):
        def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
            if source.dtype == torch.bfloat16 and source.any():
                raise RuntimeError("planted")
            super().copy(into, source)

    slots = AdapterSlots(CONFIG, 1, RANK_LIMIT, torch.empty(0, dtype=torch.bfloat16), KERNELS)
    slots.store(0, laid_out(adapter(1, torch.bfloat16), CONFIG, KERNELS))
    slots._kernels = Broken(1)
    y, x = inputs(2, torch.bfloat16)
    assert not torch.equal(add(slots, [0, 0], y, x), y)
    with pytest.raises(RuntimeError, match="planted"):
        slots.store(0, laid_out(adapter(0, torch.bfloat16), CONFIG, KERNELS))
    assert torch.equal(add(slots, [0, 0], y, x), y)
    assert len(slots.weights_of(0)) == 0


def test_a_fingerprint_notices_one_bit_in_the_slot() -> None:
    slots = filled(torch.bfloat16)
    before = slots.fingerprint(3)
    slots.weights_of(3)[17] += 1
    assert slots.fingerprint(3) != before


def test_an_adapter_is_as_large_as_what_it_adapts() -> None:
    laid = laid_out(adapter(2, torch.bfloat16), CONFIG, KERNELS)
    assert len(laid.weights) == 8 * (2 * HIDDEN + HIDDEN + KEYS), "rank 7 is padded to 8, and keys are left out"
    assert laid.size_bytes == laid.weights.nbytes + laid.places.nbytes + laid.scales.nbytes

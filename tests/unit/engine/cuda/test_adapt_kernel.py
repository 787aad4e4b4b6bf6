"""The adapted layer on a CUDA device, interpreted: what it computes, and what it leaves alone to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from services.replica_worker.engine.torch.adapter import CheckedAdapter, HostModule
from services.replica_worker.engine.torch.kernels.cuda import adapt as adapting
from services.replica_worker.engine.torch.kernels.cuda.adapt import Tiles
from services.replica_worker.engine.torch.kernels.port import Packed
from services.replica_worker.engine.torch.slots import AdapterSlots
from services.replica_worker.engine.torch.steps import adapted_parts
from tests.support.adapted_layer import ANY_SPEC, narrow_model
from tests.support.file_in_memory import laid_out
from tests.support.triton_kernels import interpreted_kernels, sent

KERNELS = interpreted_kernels()
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
"""NumPy, which interprets them, warns of arithmetic with infinities that is meant."""
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])

HIDDEN, KEYS, RANKS = 288, 32, (4, 64, 7, 16)
"""Ranks of the slots; the third does not adapt keys."""
COLUMNS = (HIDDEN, KEYS, KEYS)
NAMES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
CONFIG = narrow_model(HIDDEN, heads=9)


def adapter(slot: int, dtype: torch.dtype) -> CheckedAdapter:
    """In layer 1, with scale slot + 1."""
    generator, rank = torch.Generator().manual_seed(slot), RANKS[slot]
    modules = {
        (1, name): HostModule(
            torch.randn(HIDDEN, rank, generator=generator).to(dtype),
            torch.randn(rank, columns, generator=generator).to(dtype) / 16,
            slot + 1.0,
        )
        for name, columns in zip(NAMES, COLUMNS, strict=True)
        if (slot, name) != (2, NAMES[1])
    }
    return CheckedAdapter(spec=ANY_SPEC, modules=modules)


def filled(dtype: torch.dtype) -> AdapterSlots:
    slots = AdapterSlots(CONFIG, len(RANKS), max(RANKS), torch.empty(0, dtype=dtype), KERNELS)
    for slot in range(len(RANKS)):
        slots.store(slot, laid_out(adapter(slot, dtype), CONFIG, KERNELS))
    return slots


def inputs(rows: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(1)).to(dtype)


def share(slots: AdapterSlots, slot_of_row: list[int], x: torch.Tensor) -> torch.Tensor:
    """What the projection of layer 1, whose first module is number 7, gets; NaN where nothing is written."""
    [part] = adapted_parts(np.array(slot_of_row), KERNELS)
    tiles = Tiles(sent(part.rows), sent(part.tiles))
    extra = torch.full((len(x), sum(COLUMNS)), float("nan"), dtype=x.dtype)
    adapting.adapt(extra, x, slots.stacks, Packed(7, KERNELS.index(COLUMNS)), tiles)
    return extra


def expected(slot: int, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The share of one row's adapter, in double precision."""
    modules = adapter(slot, dtype).modules
    shares = []
    for name, columns in zip(NAMES, COLUMNS, strict=True):
        one = modules.get((1, name))
        none = torch.zeros(columns, dtype=torch.float64)
        shares.append(one.scale * (x.double() @ one.a.double()) @ one.b.double() if one else none)
    return torch.cat(shares)


@DTYPES
@pytest.mark.parametrize("count", [1, 3, 33])
def test_it_is_scale_times_b_times_a_of_each_rows_own_slot(dtype: torch.dtype, count: int) -> None:
    slot_of_row = [(row * 3 + 1) % 5 - 1 for row in range(count)]
    x = inputs(count, dtype)
    extra = share(filled(dtype), slot_of_row, x)
    for row, slot in enumerate(slot_of_row):
        if slot < 0:
            assert extra[row].isnan().all(), "rows of the base are not written"
        else:
            rounding = {"atol": 1e-2, "rtol": 5e-3} if dtype == torch.bfloat16 else {"atol": 1e-3, "rtol": 1e-4}
            torch.testing.assert_close(extra[row].double(), expected(slot, x[row], dtype), **rounding)


@DTYPES
def test_a_row_is_bit_equal_whoever_is_in_the_batch(dtype: torch.dtype) -> None:
    slots, crowd = filled(dtype), [row % (len(RANKS) + 1) - 1 for row in range(33)] + [1] * 17
    x = inputs(len(crowd), dtype)
    together = share(slots, crowd, x)
    for row in (1, 2, 3, 4, 32, 40, 49):
        assert torch.equal(share(slots, [crowd[row]], x[row : row + 1])[0], together[row]), row


@DTYPES
@pytest.mark.parametrize("poison", [float("inf"), float("nan")])
def test_a_poisoned_slot_reaches_nobody_else(dtype: torch.dtype, poison: float) -> None:
    slots, slot_of_row = filled(dtype), [0, 2, -1, 2, 1]
    x = inputs(len(slot_of_row), dtype)
    clean = share(slots, slot_of_row, x)
    slots.weights_of(2).fill_(poison)
    after = share(slots, slot_of_row, x)
    assert torch.equal(after[[0, 4]], clean[[0, 4]])
    assert (after[1, HIDDEN : HIDDEN + KEYS] == 0).all(), "a module that is not adapted is not read"
    assert not after[1, :HIDDEN].isfinite().any()


def test_a_row_full_of_nan_keeps_it_to_itself() -> None:
    slots, slot_of_row, x = filled(torch.bfloat16), [3, 3, 3], inputs(3, torch.bfloat16)
    clean = share(slots, slot_of_row, x)
    x[1] = float("nan")
    after = share(slots, slot_of_row, x)
    assert torch.equal(after[::2], clean[::2])
    assert after[1].isnan().all()


def test_what_is_owed_is_settled_once_and_only_by_the_product_it_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, slots = interpreted_kernels(), filled(torch.float32)
    x, y = inputs(2, torch.float32), torch.randn(2, sum(COLUMNS))
    [part] = adapted_parts(np.array([3, -1]), kernels)
    parts, packed = [Tiles(sent(part.rows), sent(part.tiles), sent(np.array([1, 0])))], Packed(7, np.array(COLUMNS))
    with pytest.raises(RuntimeError, match="not announced"):
        kernels.adapt(y, x, slots.stacks, packed, parts)
    kernels.foresee(y, x, slots.stacks, packed, parts)
    kernels.adapt(y, x, slots.stacks, packed, parts)
    plain, gated, again = (torch.empty(2, sum(COLUMNS) // 2) for _ in range(3))
    interpreted_kernels().gate(plain, y)
    kernels.gate(gated, y)
    kernels.gate(again, y)
    assert torch.equal(gated[1], plain[1])
    assert not torch.equal(gated[0], plain[0])
    assert torch.equal(again, plain)


def test_launches_do_not_grow_with_rows_or_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[str] = []

    class Counted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: tuple[int, ...]) -> object:
            return lambda *arguments, **options: launches.append(self.name)

    monkeypatch.setattr(adapting, "_shrink", Counted("shrink"))
    monkeypatch.setattr(adapting, "_expand", Counted("expand"))
    slots = filled(torch.float32)
    for slot_of_row in ([0], [0, 1, 2, 3] * 20):
        launches.clear()
        share(slots, slot_of_row, inputs(len(slot_of_row), torch.float32))
        assert launches == ["shrink", "expand"]

"""From a file's numbers to an adapter in memory: the same numbers as torch's own conversion, in the kernels' order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from services.replica_worker.engine.torch.kernels.cpu import CpuKernels
from services.replica_worker.engine.torch.kernels.port import Kernels, Side
from services.replica_worker.engine.torch.stored import DTYPES, Stored, numbers_of
from tests.support.triton_kernels import interpreted_kernels

KERNELS = pytest.mark.parametrize("kernels", [CpuKernels(1), interpreted_kernels()], ids=["cpu", "cuda"])
NAMES = pytest.mark.parametrize("name", list(DTYPES))
INTO = pytest.mark.parametrize("into", [torch.float32, torch.bfloat16], ids=str)
RANK, PADDED, WIDTH = 6, 8, 48


def telling(name: str, count: int) -> torch.Tensor:
    """Finite numbers of this dtype at every distance from a rounding border, subnormal ones and both zeros included."""
    dtype = DTYPES[name]
    word = np.uint32 if dtype == torch.float32 else np.uint16
    bits = np.random.default_rng(count).integers(0, np.iinfo(word).max, 4 * count, dtype=word, endpoint=True)
    if dtype == torch.float32:
        bits[: 2 * count] = bits[: 2 * count] & 0xFFFF0000 | 0x8000  # ties between two numbers of bfloat16
    bits[2 * count] = 1  # the smallest
    drawn = torch.from_numpy(bits.view(np.int32 if dtype == torch.float32 else np.int16)).view(dtype)
    finite = drawn[drawn.to(torch.bfloat16).isfinite()]
    return torch.cat([finite[: count // 2], finite[-(count - count // 2) :]])


def body_of(*tensors: torch.Tensor) -> np.ndarray:
    return np.concatenate([tensor.reshape(-1).view(torch.uint8).numpy() for tensor in tensors])


def in_order(kernels: Kernels, ranks: torch.Tensor, turned: bool) -> torch.Tensor:
    """[rank, width] in the order in which the kernels read it, ranks padded."""
    whole = torch.zeros((PADDED, ranks.shape[1]), dtype=ranks.dtype)
    whole[: len(ranks)] = ranks
    if not isinstance(kernels, CpuKernels):
        return whole.reshape(-1)
    if turned:
        return whole.view(PADDED, WIDTH // 16, 16).permute(1, 0, 2).reshape(-1)
    return whole.view(PADDED // 4, 4, WIDTH // 16, 16).permute(0, 2, 1, 3).reshape(-1)


@KERNELS
@NAMES
@INTO
def test_both_sides_are_converted_as_torch_does_and_padded_with_zeros(
    kernels: Kernels, name: str, into: torch.dtype
) -> None:
    """An odd word stands before them: float32 may begin at any even byte."""
    a, b = telling(name, RANK * WIDTH).view(RANK, WIDTH), telling(name, WIDTH * RANK + 1)[1:].view(WIDTH, RANK)
    body = np.concatenate([np.full(2, 0xFF, np.uint8), body_of(a, b)])
    sides = [
        Side(Stored(name, (RANK, WIDTH), 2), 0, PADDED, False),
        Side(Stored(name, (WIDTH, RANK), 2 + a.nbytes), PADDED * WIDTH, PADDED, True),
    ]
    weights = torch.full((2 * PADDED * WIDTH + 16,), 7.0, dtype=into)
    assert kernels.pack(weights, body, sides) is None
    expected = [in_order(kernels, a.to(into), False), in_order(kernels, b.t().to(into), True), torch.full((16,), 7.0)]
    assert torch.equal(weights.view(torch.uint8), torch.cat(expected).to(into).view(torch.uint8))


@pytest.mark.parametrize("bits", range(0, 1 << 16, 1 << 12))
def test_every_half_means_what_it_says(bits: int) -> None:
    halves = np.arange(bits, bits + (1 << 12), dtype=np.uint16)
    numbers = torch.from_numpy(halves.view(np.int16)).view(torch.float16)
    numbers = torch.where(numbers.isfinite(), numbers, 0.0).view(16, -1)
    weights = torch.empty(1 << 12)
    side = Side(Stored("F16", tuple(numbers.shape), 0), 0, 16, False)
    assert CpuKernels(1).pack(weights, body_of(numbers), [side]) is None
    blocks = weights.view(4, -1, 4, 16).permute(0, 2, 1, 3).reshape(16, -1)
    assert torch.equal(blocks.view(torch.int32), numbers.float().view(torch.int32))


@KERNELS
@NAMES
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("broken", [0, 1, 2, 3])
def test_the_first_side_with_a_number_that_is_not_finite_is_told(
    kernels: Kernels, name: str, number: float, broken: int
) -> None:
    tensors = [torch.ones(RANK * WIDTH, dtype=DTYPES[name]) for _ in range(4)]
    for tensor in tensors[broken:]:
        tensor[-1 - broken] = number
    body = body_of(*tensors)
    sides = [
        Side(
            Stored(name, (WIDTH, RANK) if at % 2 else (RANK, WIDTH), at * tensors[0].nbytes),
            at * PADDED * WIDTH,
            PADDED,
            bool(at % 2),
        )
        for at in range(4)
    ]
    assert kernels.pack(torch.empty(4 * PADDED * WIDTH, dtype=torch.bfloat16), body, sides) == broken


@KERNELS
@pytest.mark.parametrize(("number", "found"), [(3.3895e38, None), (3.3962e38, 0)])
def test_what_rounds_up_to_infinity_is_not_finite(kernels: Kernels, number: float, found: int | None) -> None:
    numbers = torch.ones(4, 16)
    numbers[2, 3] = number
    weights = torch.empty(64, dtype=torch.bfloat16)
    assert kernels.pack(weights, body_of(numbers), [Side(Stored("F32", (4, 16), 0), 0, 4, False)]) == found


def test_numbers_are_seen_where_they_stand() -> None:
    numbers = torch.arange(6.0).view(2, 3)
    body = np.concatenate([np.zeros(2, np.uint8), body_of(numbers), np.zeros(4, np.uint8)])
    assert torch.equal(numbers_of(body, Stored("F32", (2, 3), 2)), numbers)

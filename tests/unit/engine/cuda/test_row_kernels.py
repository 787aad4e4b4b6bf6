"""What the CUDA kernels do row by row, interpreted: the numbers of the family, and nothing of anybody else."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as functional

from services.replica_worker.engine.torch.kernels.cuda import rowwise
from services.replica_worker.engine.torch.kernels.cuda.share import Share
from services.replica_worker.engine.torch.kernels.port import LayerCache, Norm, Rope, Rows
from tests.support.triton_kernels import interpreted_kernels, sent, sent_rows

KERNELS = interpreted_kernels()
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
"""NumPy, which interprets them, warns of arithmetic with infinities that is meant."""
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
COUNTS = pytest.mark.parametrize("count", [1, 3, 33])


def drawn(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"atol": 2e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-5}


def owing(y: torch.Tensor) -> Share:
    """Every second row is owed something; the other rows' part of it is NaN, and nobody may read it."""
    extra, adapted = drawn(*y.shape, dtype=y.dtype, seed=9), sent(torch.arange(len(y)) % 2)
    extra[adapted == 0] = float("nan")
    return Share(y, extra, adapted)


def settled(share: Share) -> torch.Tensor:
    return torch.where(share.adapted[:, None] != 0, share.y + share.extra.nan_to_num(), share.y)


@DTYPES
@COUNTS
def test_norm_is_that_of_the_family(dtype: torch.dtype, count: int) -> None:
    x, weight = drawn(count, 80, dtype=dtype), drawn(80, dtype=dtype, seed=1)
    out = torch.empty_like(x)
    KERNELS.norm(out, x, Norm(weight, 1e-5))
    torch.testing.assert_close(out, functional.rms_norm(x, (80,), weight, 1e-5), **tolerance(dtype))


@DTYPES
@COUNTS
def test_the_residual_takes_the_product_and_what_is_owed_to_it(dtype: torch.dtype, count: int) -> None:
    x, delta = drawn(count, 80, dtype=dtype), drawn(count, 80, dtype=dtype, seed=2)
    weight = drawn(80, dtype=dtype, seed=1)
    expected, share = x + settled(owing(delta)), owing(delta)
    out = torch.empty_like(x)
    rowwise.add_norm(out, x, share, Norm(weight, 1e-5))
    assert torch.equal(x, expected)
    torch.testing.assert_close(out, functional.rms_norm(x, (80,), weight, 1e-5), **tolerance(dtype))


@DTYPES
@COUNTS
def test_the_gate_is_that_of_the_family(dtype: torch.dtype, count: int) -> None:
    gate_up = drawn(count, 2 * 1040, dtype=dtype) * 30
    plain, out = torch.empty(count, 1040, dtype=dtype), torch.empty(count, 1040, dtype=dtype)
    KERNELS.gate(plain, gate_up)
    gate, up = gate_up.chunk(2, dim=1)
    torch.testing.assert_close(plain, (functional.silu(gate.float()) * up.float()).to(dtype), **tolerance(dtype))
    rowwise.gate(out, owing(gate_up))
    gate, up = settled(owing(gate_up)).chunk(2, dim=1)
    torch.testing.assert_close(out, (functional.silu(gate.float()) * up.float()).to(dtype), **tolerance(dtype))
    assert torch.equal(out[::2], plain[::2])


HEADS, KV_HEADS, HEAD_DIM = 6, 2, 96


def positions(count: int) -> Rows:
    """One row of each of so many sequences, in blocks of their own; the last row is nobody's."""
    at = torch.arange(count) % 21
    at[-1] = -1
    tables = torch.arange(2 * count).flip(0).view(count, 2)
    rows = torch.arange(count)
    return sent_rows(Rows(at.numpy(), rows.numpy(), tables.numpy(), torch.stack((rows, rows + 1), 1).numpy()))


@DTYPES
@pytest.mark.parametrize("count", [2, 4, 33])
def test_rotated_queries_stay_and_keys_and_values_go_to_their_places(dtype: torch.dtype, count: int) -> None:
    qkv, rows = drawn(count, (HEADS + 2 * KV_HEADS) * HEAD_DIM, dtype=dtype), positions(count)
    keys = torch.full((2 * count, KV_HEADS, HEAD_DIM, 16), float("nan"), dtype=dtype)
    values = torch.full((2 * count, KV_HEADS, 16, HEAD_DIM), float("nan"), dtype=dtype)
    angles = torch.rand(64, HEAD_DIM // 2, generator=torch.Generator().manual_seed(3)) * 6
    whole = settled(owing(qkv)).float().view(count, -1, 2, HEAD_DIM // 2)
    cos, sin = (turn[rows.positions.long()][:, None] for turn in (angles.cos(), angles.sin()))
    turned = torch.stack((whole[:, :, 0] * cos - whole[:, :, 1] * sin, whole[:, :, 1] * cos + whole[:, :, 0] * sin), 2)
    turned, plain = turned.reshape(count, -1, HEAD_DIM), whole.reshape(count, -1, HEAD_DIM).to(dtype)
    before = qkv.clone()
    rowwise.place(owing(qkv), rows, Rope(angles.cos(), angles.sin()), LayerCache(keys, values))
    written = 0
    for row in range(count - 1):
        block, within = rows.tables[row, rows.positions[row] // 16], int(rows.positions[row]) % 16
        queries = qkv.view(count, -1, HEAD_DIM)[row, :HEADS]
        torch.testing.assert_close(queries.float(), turned[row, :HEADS], **tolerance(dtype))
        key, value = keys[block, :, :, within], values[block, :, within]
        torch.testing.assert_close(key.float(), turned[row, HEADS : HEADS + KV_HEADS], **tolerance(dtype))
        assert torch.equal(value, plain[row, HEADS + KV_HEADS :])
        written += key.numel()
    assert keys.isfinite().sum() == values.isfinite().sum() == written
    assert torch.equal(qkv[-1], before[-1]), "a row that is nobody's changes nothing"


@DTYPES
def test_the_best_token_is_the_first_of_the_largest(dtype: torch.dtype) -> None:
    logits = drawn(7, 4325, dtype=dtype, seed=5)
    logits[0, 4300] = logits[0, 20] = 9.0
    logits[1, 4324] = 9.0
    logits[2, 7], logits[3, 323], logits[4, 0] = float("nan"), float("inf"), float("-inf")
    logits[6] = float("-inf")
    token_ids, finite = KERNELS.best(logits)
    assert token_ids[:2] == [20, 4324]
    assert token_ids[5] == int(logits[5].argmax())
    assert all(0 <= token_id < 4325 for token_id in token_ids)
    assert finite == [True, True, False, False, False, True, False]

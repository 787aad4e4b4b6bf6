"""Attention and what happens row by row: right numbers, from nothing but the row's own."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as functional

from services.replica_worker.engine.torch.kernels import compiled
from services.replica_worker.engine.torch.kernels.compiled import code_folder
from services.replica_worker.engine.torch.kernels.cpu import CpuKernels
from services.replica_worker.engine.torch.kernels.crew import Crew
from services.replica_worker.engine.torch.kernels.port import LayerCache, Norm, Rope, Rows

HEADS, KV_HEADS, HEAD_DIM, BLOCKS = 6, 2, 96, 16
KERNELS = CpuKernels(threads=1)
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
LENGTHS = (1, 16, 37, 50)


def garbage(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=dtype)


class Sequences:
    """One sequence of each of LENGTHS, all computed; what no sequence has written is NaN."""

    def __init__(self, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        self.qkv = torch.randn(sum(LENGTHS), (HEADS + 2 * KV_HEADS) * HEAD_DIM, generator=generator).to(dtype)
        self.keys = garbage(BLOCKS, KV_HEADS, HEAD_DIM, 16, dtype=dtype)
        self.values = garbage(BLOCKS, KV_HEADS, 16, HEAD_DIM, dtype=dtype)
        self.cache = LayerCache(KERNELS.view(self.keys), KERNELS.view(self.values))
        ids = iter(np.random.default_rng(0).permutation(BLOCKS))
        self.tables = [[next(ids) for _ in range(-(-length // 16))] for length in LENGTHS]
        self.placed = self.qkv.clone()
        still = Rope(np.ones((64, HEAD_DIM // 2), np.float32), np.zeros((64, HEAD_DIM // 2), np.float32))
        KERNELS.place(KERNELS.view(self.placed), self.rows(tile_rows=1), still, self.cache)

    def rows(self, tile_rows: int) -> Rows:
        positions = np.concatenate([np.arange(length) for length in LENGTHS])
        ends = np.cumsum(LENGTHS).tolist()
        tiles = [
            (first, min(first + tile_rows, end))
            for end, length in zip(ends, LENGTHS, strict=True)
            for first in range(end - length, end, tile_rows)
        ]
        tables = np.zeros((len(LENGTHS), 4), np.int64)
        for at, blocks in enumerate(self.tables):
            tables[at, : len(blocks)] = blocks
        sequences = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
        return Rows(*(KERNELS.index(values) for values in (positions, sequences, tables, tiles)))

    def attend(self, tile_rows: int, kernels: CpuKernels = KERNELS) -> torch.Tensor:
        mixed = garbage(len(self.qkv), HEADS * HEAD_DIM, dtype=self.qkv.dtype)
        parts = kernels.split_rows(self.rows(tile_rows))
        kernels.attend(kernels.view(mixed), kernels.view(self.placed), self.cache, parts)
        return mixed

    def reference(self) -> torch.Tensor:
        mixed, end = [], 0
        for length in LENGTHS:
            begin, end = end, end + length
            q, k, v = self.qkv[begin:end].float().split([HEADS * HEAD_DIM, *[KV_HEADS * HEAD_DIM] * 2], dim=1)
            q, k, v = (part.view(length, -1, HEAD_DIM).transpose(0, 1) for part in (q, k, v))
            one = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            mixed.append(one.transpose(0, 1).reshape(length, -1))
        return torch.cat(mixed)


@DTYPES
def test_attention_is_attention(dtype: torch.dtype) -> None:
    sequences = Sequences(dtype)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(sequences.attend(8).float(), sequences.reference(), atol=tolerance, rtol=tolerance)


@DTYPES
@pytest.mark.parametrize("tile_rows", [1, 2, 3, 8, 64])
def test_a_row_is_bit_equal_in_every_tile(dtype: torch.dtype, tile_rows: int) -> None:
    sequences = Sequences(dtype)
    assert torch.equal(sequences.attend(tile_rows), sequences.attend(5))


def test_a_row_is_bit_equal_whatever_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.replica_worker.engine.torch.kernels.cpu._WORTH_TOKENS", 1)
    sequences, several = Sequences(torch.bfloat16), CpuKernels(threads=3)
    assert len(several.split_rows(sequences.rows(4))) == 3
    assert torch.equal(sequences.attend(4, several), sequences.attend(4))


def test_a_key_that_is_not_a_number_spoils_those_who_see_it_and_nobody_else() -> None:
    sequences = Sequences(torch.float32)
    clean = sequences.attend(8)
    sequences.keys[sequences.tables[3][1], 0, 0, 4] = float("nan")
    spoilt = sequences.attend(8)
    first_to_see = sum(LENGTHS[:3]) + 20
    assert torch.equal(spoilt[:first_to_see], clean[:first_to_see])
    assert not spoilt[first_to_see:, : 3 * HEAD_DIM].isfinite().all(dim=1).any()


def test_rotation_turns_the_planes_of_queries_and_keys() -> None:
    qkv = torch.randn(1, (HEADS + 2 * KV_HEADS) * HEAD_DIM, generator=torch.Generator().manual_seed(2))
    keys, values = (garbage(1, KV_HEADS, *shape, dtype=qkv.dtype) for shape in ((HEAD_DIM, 16), (16, HEAD_DIM)))
    angles = torch.rand(64, HEAD_DIM // 2, generator=torch.Generator().manual_seed(3)) * 6
    rope = Rope(angles.cos().numpy(), angles.sin().numpy())
    rows = Rows(*(KERNELS.index(values) for values in ([7], [0], [[0]], [[0, 1]])))
    after = qkv.clone()
    KERNELS.place(KERNELS.view(after), rows, rope, LayerCache(KERNELS.view(keys), KERNELS.view(values)))
    low, high = qkv.view(-1, 2, HEAD_DIM // 2)[: HEADS + KV_HEADS].unbind(1)
    cos, sin = angles[7].cos(), angles[7].sin()
    turned = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=1)
    torch.testing.assert_close(after.view(-1, HEAD_DIM)[: HEADS + KV_HEADS], turned)
    torch.testing.assert_close(keys[0, :, :, 7], turned[HEADS:])
    assert torch.equal(values[0, :, 7], qkv.view(-1, HEAD_DIM)[HEADS + KV_HEADS :])
    assert keys[0, :, :, :7].isnan().all()


@DTYPES
def test_norm_and_gate_are_those_of_the_family(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    x, delta, weight = (torch.randn(shape, generator=generator).to(dtype) for shape in ((5, 64), (5, 64), (64,)))
    out, by = torch.empty_like(x), Norm(KERNELS.view(weight), 1e-5)
    KERNELS.norm(KERNELS.view(out), KERNELS.view(x), by)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(out, functional.rms_norm(x, (64,), weight, 1e-5), atol=tolerance, rtol=tolerance)
    summed = x + delta
    KERNELS.add_norm(KERNELS.view(out), KERNELS.view(x), KERNELS.view(delta), by)
    assert torch.equal(x, summed)
    torch.testing.assert_close(out, functional.rms_norm(x, (64,), weight, 1e-5), atol=tolerance, rtol=tolerance)
    gate_up, gated = torch.cat((x * 40, delta), dim=1), torch.empty_like(x)
    KERNELS.gate(KERNELS.view(gated), KERNELS.view(gate_up))
    torch.testing.assert_close(gated, functional.silu(x * 40) * delta, atol=tolerance, rtol=tolerance)


@DTYPES
def test_the_best_token_is_the_first_of_the_largest(dtype: torch.dtype) -> None:
    logits = torch.randn(6, 325, generator=torch.Generator().manual_seed(5)).to(dtype)
    logits[0, 300] = logits[0, 20] = 9.0
    logits[1, 324] = 9.0
    logits[2, 7], logits[3, 323], logits[4, 0] = float("nan"), float("inf"), float("-inf")
    token_ids, finite = KERNELS.best(KERNELS.view(logits))
    assert token_ids[:2] == [20, 324]
    assert token_ids[5] == int(logits[5].argmax())
    assert finite == [True, True, False, False, False, True]


def test_what_a_part_raises_on_another_thread_reaches_the_step() -> None:
    def kernel(part: int) -> None:
        if part == 2:
            raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        Crew(threads=3).run(kernel, (), (0, 1, 2))


def test_code_is_kept_where_it_can_be_written(tmp_path: Path) -> None:
    folder = code_folder(tmp_path)
    assert folder is not None
    assert folder.is_dir()
    (tmp_path / "file").write_text("")
    assert code_folder(tmp_path / "file") is None


def test_code_of_another_state_of_the_kernels_is_never_found_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert compiled._keeps_code()
    assert str(code_folder(tmp_path)) == numba.config.CACHE_DIR != str(tmp_path)

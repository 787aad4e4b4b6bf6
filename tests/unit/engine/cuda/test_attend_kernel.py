"""Attention on a CUDA device, interpreted: right numbers, from nothing but what the row sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as functional

from services.replica_worker.engine.torch.kernels.cuda import attend as attention
from services.replica_worker.engine.torch.kernels.port import LayerCache, Rope, Rows
from tests.support.triton_kernels import interpreted_kernels, sent_rows

HEAD_DIM, BLOCKS, WIDTH = 96, 12, 4
KERNELS = interpreted_kernels()
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
"""NumPy, which interprets them, warns of arithmetic with infinities that is meant."""
CASES = pytest.mark.parametrize(
    ("dtype", "heads"),
    [
        pytest.param(torch.float32, (1, 1), id="a key head each"),
        pytest.param(torch.float32, (6, 2), id="three to a key head"),
        pytest.param(torch.bfloat16, (6, 2), id="three to a key head, bfloat16"),
        pytest.param(torch.bfloat16, (17, 1), id="more than a tile to a key head"),
    ],
)
LENGTHS = (1, 16, 20, 37)


class Sequences:
    """One sequence of each of LENGTHS, all computed; what no sequence has written is NaN."""

    def __init__(self, dtype: torch.dtype, heads: tuple[int, int]) -> None:
        self.heads, self.kv_heads = heads
        width = (self.heads + 2 * self.kv_heads) * HEAD_DIM
        self.qkv = torch.randn(sum(LENGTHS), width, generator=torch.Generator().manual_seed(0)).to(dtype)
        self.cache = LayerCache(
            torch.full((BLOCKS, self.kv_heads, HEAD_DIM, 16), float("nan"), dtype=dtype),
            torch.full((BLOCKS, self.kv_heads, 16, HEAD_DIM), float("nan"), dtype=dtype),
        )
        ids = iter(np.random.default_rng(0).permutation(BLOCKS))
        self.tables = np.zeros((len(LENGTHS), WIDTH), np.int64)
        for at, length in enumerate(LENGTHS):
            self.tables[at, : -(-length // 16)] = [next(ids) for _ in range(-(-length // 16))]
        still = Rope(torch.ones(64, HEAD_DIM // 2), torch.zeros(64, HEAD_DIM // 2))
        KERNELS.place(self.qkv, sent_rows(self.rows(range(sum(LENGTHS)))), still, self.cache)

    def rows(self, which: range | list[int]) -> Rows:
        """Some of the rows, cut as the kernels like it."""
        positions = np.concatenate([np.arange(length) for length in LENGTHS])[which]
        sequences = np.repeat(np.arange(len(LENGTHS)), LENGTHS)[which]
        [rows] = KERNELS.split_rows(Rows(positions, sequences, self.tables, None))
        return rows

    def attend(self, which: range | list[int]) -> torch.Tensor:
        mixed = torch.full((len(which), self.heads * HEAD_DIM), float("nan"), dtype=self.qkv.dtype)
        KERNELS.attend(mixed, self.qkv[list(which)], self.cache, [sent_rows(self.rows(which))])
        return mixed

    def reference(self) -> torch.Tensor:
        mixed, end = [], 0
        sizes = [self.heads * HEAD_DIM, *[self.kv_heads * HEAD_DIM] * 2]
        for length in LENGTHS:
            begin, end = end, end + length
            q, k, v = self.qkv[begin:end].float().split(sizes, dim=1)
            q, k, v = (part.view(length, -1, HEAD_DIM).transpose(0, 1) for part in (q, k, v))
            one = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            mixed.append(one.transpose(0, 1).reshape(length, -1))
        return torch.cat(mixed)


EVERY = range(sum(LENGTHS))
ENDS = [sum(LENGTHS[: at + 1]) - 1 for at in range(len(LENGTHS))]
"""The last row of each sequence: what a decode step asks for."""


@pytest.fixture(autouse=True)
def _short_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that sequences of this length have several, the last one broken."""
    monkeypatch.setattr(attention, "_SPLIT", 32)
    monkeypatch.setattr(attention, "_CHUNK", 16)
    monkeypatch.setattr(attention, "_MOST_PROGRAMS", 1)


@CASES
def test_attention_is_attention(dtype: torch.dtype, heads: tuple[int, int]) -> None:
    sequences = Sequences(dtype, heads)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(sequences.attend(EVERY).float(), sequences.reference(), atol=tolerance, rtol=tolerance)


@CASES
def test_a_row_is_bit_equal_in_a_prompt_in_a_decode_step_and_alone(dtype: torch.dtype, heads: tuple[int, int]) -> None:
    sequences = Sequences(dtype, heads)
    prompt, decoded = sequences.attend(EVERY), sequences.attend(ENDS)
    assert torch.equal(decoded, prompt[ENDS])
    for row in (0, 16, 50, 71):
        assert torch.equal(sequences.attend([row])[0], prompt[row]), row
    assert torch.equal(sequences.attend(range(40, 60)), prompt[40:60]), "a prompt that is cut elsewhere"


def test_a_key_that_is_not_a_number_spoils_those_who_see_it_and_nobody_else() -> None:
    sequences = Sequences(torch.float32, (6, 2))
    clean = sequences.attend(EVERY)
    sequences.cache.keys[sequences.tables[3][1], 0, 0, 4] = float("nan")
    spoilt, first_to_see = sequences.attend(EVERY), sum(LENGTHS[:3]) + 20
    assert torch.equal(spoilt[:first_to_see], clean[:first_to_see])
    assert not spoilt[first_to_see:, : 3 * HEAD_DIM].isfinite().all(dim=1).any()
    assert torch.equal(spoilt[:, 3 * HEAD_DIM :], clean[:, 3 * HEAD_DIM :])


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_an_infinite_value_spoils_those_who_see_it_and_nobody_else(poison: float) -> None:
    sequences = Sequences(torch.bfloat16, (6, 2))
    clean = sequences.attend(EVERY)
    sequences.cache.values[sequences.tables[3][1], 0, 4, 7] = poison
    spoilt, first_to_see = sequences.attend(EVERY), sum(LENGTHS[:3]) + 20
    assert torch.equal(spoilt[:first_to_see], clean[:first_to_see])
    assert not spoilt[first_to_see:, 7].isfinite().any()
    assert torch.equal(sequences.attend(ENDS)[:3], clean[ENDS[:3]])


def test_a_row_that_is_nobodys_is_left_alone() -> None:
    sequences = Sequences(torch.bfloat16, (6, 2))
    rows = sent_rows(sequences.rows(ENDS))
    rows.positions[1] = -1
    mixed = torch.full((len(ENDS), 6 * HEAD_DIM), 5.0, dtype=torch.bfloat16)
    KERNELS.attend(mixed, sequences.qkv[ENDS], sequences.cache, [rows])
    assert (mixed[1] == 5.0).all()
    assert torch.equal(mixed[[0, 2, 3]], sequences.attend(ENDS)[[0, 2, 3]])

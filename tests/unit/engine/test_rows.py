"""The ground that batch invariance stands on: a row of a padded product is the same at every batch size."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as functional

from services.replica_worker.engine.torch import linear as linear_module
from services.replica_worker.engine.torch.linear import Linear, block_rows, row_classes
from services.replica_worker.engine.torch.packed import PackedProduct, packed

LARGEST_STEP_ROWS = 160
CPU = torch.device("cpu")


def rows_that_differ(dtype: torch.dtype, sizes: tuple[int, ...]) -> int:
    """Over these sizes of step, with inputs as uneven as real activations are."""
    generator = torch.Generator().manual_seed(0)
    differing = 0
    for _ in range(12):
        linear = Linear([(torch.randn(576, 1536, generator=generator) * 0.05).to(dtype)], [])
        scales = torch.randn(LARGEST_STEP_ROWS, 1, generator=generator).exp()
        x = (torch.randn(LARGEST_STEP_ROWS, 1536, generator=generator) * scales).to(dtype)
        whole = product(linear, x)
        differing += sum(int((product(linear, x[:rows]) != whole[:rows]).any(dim=1).sum()) for rows in sizes)
    return differing


def product(linear: Linear, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(len(x), 576, dtype=x.dtype)
    linear.into(out, x)
    return out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_row_of_a_padded_product_is_bit_equal_at_every_size(dtype: torch.dtype) -> None:
    assert rows_that_differ(dtype, row_classes(LARGEST_STEP_ROWS, dtype, CPU)) == 0


def test_a_packed_product_is_the_plain_one_at_every_size() -> None:
    weight, bias = torch.randn(576, 1536).to(torch.bfloat16), torch.randn(576).to(torch.bfloat16)
    x = torch.randn(LARGEST_STEP_ROWS, 1536).to(torch.bfloat16)
    plain, faster = Linear([weight], [bias]), Linear([weight], [bias], pack=True)
    assert packed(weight, bias) is not None, "this build of torch packs nothing, so this proves nothing"
    for rows in row_classes(LARGEST_STEP_ROWS, torch.bfloat16, CPU):
        assert torch.equal(product(faster, x[:rows]), product(plain, x[:rows]))


def test_a_packed_product_with_other_numbers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(64, 64).to(torch.bfloat16)
    monkeypatch.setattr(PackedProduct, "__call__", lambda one, x: functional.linear(x, weight + 1))
    assert packed(weight, None) is None


@pytest.mark.parametrize("failure", [AttributeError("no such operation"), RuntimeError("not enough memory")])
def test_where_nothing_can_be_packed_the_plain_product_does_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    def refuse(product: PackedProduct, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        raise failure

    monkeypatch.setattr(PackedProduct, "__init__", refuse)
    weight, x = torch.randn(576, 1536).to(torch.bfloat16), torch.randn(4, 1536).to(torch.bfloat16)
    assert torch.equal(product(Linear([weight], [], pack=True), x), functional.linear(x, weight))
    assert f"products of base weights run on them as they are, which is slower: {failure}" in caplog.text


def test_float32_is_never_packed() -> None:
    assert packed(torch.randn(64, 64), None) is None


def test_the_check_notices_a_product_that_is_not_padded() -> None:
    assert rows_that_differ(torch.float32, (1, 2, 3)) > 0


@pytest.mark.parametrize("most_rows", [1, 4, 8, 31, 32, 33, 160, 161, 544])
def test_every_step_finds_a_size_that_is_not_much_larger(most_rows: int) -> None:
    classes = row_classes(most_rows, torch.bfloat16, CPU)
    assert classes[-1] >= most_rows
    assert list(classes) == sorted(set(classes))
    assert all(after <= 2 * before and after - before <= 64 for before, after in itertools.pairwise(classes))


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that is said to have some: what is computed in blocks is right on any."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_where_kernels_are_chosen_by_rows_all_products_have_one_size(
    tiles: None, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    sizes: list[int] = []
    plain = Linear._product

    def noted(one: Linear, out: torch.Tensor, x: torch.Tensor) -> None:
        sizes.append(len(x))
        plain(one, out, x)

    monkeypatch.setattr(Linear, "_product", noted)
    classes = row_classes(544, dtype, CPU)
    x = torch.randn(classes[-1], 1536).to(dtype)
    linear = Linear([(torch.randn(576, 1536) * 0.05).to(dtype)], [])
    whole = product(linear, x)
    assert all(torch.equal(product(linear, x[:rows]), whole[:rows]) for rows in classes)
    assert set(sizes) == {linear_module._BLOCK_ROWS}
    torch.testing.assert_close(whole.float(), x.float() @ linear._weight.float(), rtol=0.02, atol=0.2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("threads", [1, 2])
def test_where_in_its_block_a_row_stands_changes_nothing(tiles: None, dtype: torch.dtype, threads: int) -> None:
    linear = Linear([(torch.randn(576, 1536) * 0.05).to(dtype)], [])
    x = torch.randn(32, 1536).to(dtype)
    torch.set_num_threads(threads)
    try:
        there = product(linear, x)
        assert all(torch.equal(product(linear, x.roll(by, 0)).roll(-by, 0), there) for by in range(1, 32))
    finally:
        torch.set_num_threads(1)


def test_only_processors_with_tiles_compute_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert block_rows(torch.device("meta")) == 0
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert block_rows(CPU) == 0
    assert row_classes(160, torch.bfloat16, CPU)[0] == 4

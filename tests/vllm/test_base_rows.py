"""Rows of the base model beside LoRA rows: vLLM's CPU operators give them the last slot's adapter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from vllm.lora.ops.torch_ops import lora_ops

from services.replica_worker.engine.port import EngineFailed
from services.replica_worker.engine.vllm import cpu_rows
from services.replica_worker.engine.vllm.engine import VllmEngine
from services.replica_worker.engine.vllm.policy import VllmPolicy
from tests.support.token_log import TokenLog

SLOTS, RANK, INNER, OUT = 3, 4, 8, 6
ROWS = torch.tensor([1, -1, 0, -1])


def operators(mended: bool) -> tuple[Callable[..., None], Callable[..., None], Callable[..., None]]:
    """vLLM's own, or the same with the base's rows left out. Nothing is replaced in this process."""
    names = ("bgmv_shrink", "bgmv_expand", "bgmv_expand_slice")
    broken = [getattr(lora_ops, name) for name in names]
    if not mended:
        return tuple(broken)  # type: ignore[return-value]
    return cpu_rows.shrink(broken[0]), cpu_rows.expand(broken[1]), cpu_rows.expand(broken[2])


def applied(rows: torch.Tensor, mended: bool, sliced: bool = False) -> torch.Tensor:
    """The layer's output [rows, OUT] with x·A·B added, out of a base output of ones."""
    shrink, expand, expand_slice = operators(mended)
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(4, INNER, generator=drawn)[: len(rows)]
    a = torch.randn(SLOTS, 1, RANK, INNER, generator=drawn)
    b = torch.randn(SLOTS, 1, OUT, RANK, generator=drawn)
    buffer, output = torch.full((len(rows), RANK), 9.0), torch.ones(len(rows), OUT)
    shrink(x, a, buffer, rows, 1.0)
    if sliced:
        expand_slice(buffer, b, output, rows, 0, OUT, True)
    else:
        expand(buffer, b, output, rows, True)
    return output


@pytest.mark.parametrize("sliced", [False, True])
def test_vllm_gives_base_rows_the_last_slot_and_the_mended_operators_do_not(sliced: bool) -> None:
    broken, mended = applied(ROWS, mended=False, sliced=sliced), applied(ROWS, mended=True, sliced=sliced)
    last_slot = applied(torch.tensor([1, SLOTS - 1, 0, SLOTS - 1]), mended=False, sliced=sliced)
    base, adapted = ROWS < 0, ROWS >= 0
    assert torch.equal(broken[base], last_slot[base])
    assert not torch.equal(broken[base], torch.ones_like(broken[base]))
    assert torch.equal(mended[base], torch.ones_like(mended[base]))
    assert torch.equal(mended[adapted], broken[adapted])


def test_rows_that_all_have_an_adapter_take_vllms_own_way() -> None:
    rows = torch.tensor([1, 0, 2, 2])
    assert torch.equal(applied(rows, mended=True), applied(rows, mended=False))


def test_a_batch_of_base_rows_alone_is_the_base() -> None:
    rows = torch.full((4,), -1)
    assert torch.equal(applied(rows, mended=True), torch.ones(4, OUT))


def test_an_inf_in_the_last_slot_stays_there() -> None:
    _, expand, _ = operators(mended=True)
    b = torch.full((SLOTS, 1, OUT, RANK), torch.inf)
    output = torch.ones(2, OUT)
    expand(torch.zeros(2, RANK), b, output, torch.tensor([-1, 0]), True)
    assert torch.equal(output[0], torch.ones(OUT))


def test_another_version_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before = lora_ops.bgmv_shrink
    monkeypatch.setattr("vllm.__version__", "0.99.0")
    assert cpu_rows.mend() == "vLLM 0.99.0 is used as it is"
    assert lora_ops.bgmv_shrink is before


async def test_an_engine_whose_base_rows_are_wrong_refuses_to_start(
    tiny_folder: Path, policy: VllmPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect as vLLM has it: nothing is mended, and the check at the start sees it."""

    async def leave_as_it_is(engine: VllmEngine, parts: object) -> None: ...

    monkeypatch.setattr(VllmEngine, "_mend", leave_as_it_is)
    engine = VllmEngine(tiny_folder, policy)
    with pytest.raises(EngineFailed, match="the base model beside adapters is not itself"):
        await engine.start(TokenLog().on_step)
    with pytest.raises(EngineFailed):
        engine.load_figures()

"""Digests of slots are on record by engine build: one build lays an adapter out in one way."""

from __future__ import annotations

import pytest
import torch

from services.replica_worker.engine.port import AdapterSpec
from services.replica_worker.engine.torch.adapter import CheckedAdapter, HostModule
from services.replica_worker.engine.torch.hardware import number_class
from services.replica_worker.engine.torch.kernels.cpu import CpuKernels
from services.replica_worker.engine.torch.layout import LAYOUT, TorchAdapter, fingerprint_of
from tests.support.file_in_memory import laid_out
from tests.unit.engine.test_adapt_kernel import CONFIG

RANK, HIDDEN = 6, CONFIG.hidden


def sample(dtype: torch.dtype) -> TorchAdapter:
    """Numbers of which no two that could be mistaken for each other are equal."""
    a = torch.arange(HIDDEN * RANK).view(HIDDEN, RANK).remainder(251).to(dtype)
    b = torch.arange(RANK * HIDDEN).view(RANK, HIDDEN).remainder(239).to(dtype)
    spec = AdapterSpec(
        adapter_id="a", digest="d", base_model_hash="b", rank=RANK, alpha=12.0, target_modules=("o_proj",)
    )  # fmt: skip
    return laid_out(
        CheckedAdapter(spec=spec, modules={(1, "self_attn.o_proj"): HostModule(a, b, 2.0)}), CONFIG, CpuKernels(1)
    )


def digest(adapter: TorchAdapter) -> str:
    return fingerprint_of(adapter.weights, adapter.places, adapter.scales)


@pytest.mark.parametrize(
    ("dtype", "known"), [(torch.float32, "ccfa22a01663cbed"), (torch.bfloat16, "bd5599eacebffe6d")]
)
def test_another_layout_has_another_number(dtype: torch.dtype, known: str) -> None:
    """Whoever changes what is hashed here counts LAYOUT up, or every adapter on record counts as wrong."""
    assert (LAYOUT, digest(sample(dtype))[:16]) == (1, known)


def test_what_a_processor_cannot_do_shows_in_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    here = torch.device("cpu")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True, "amx_bf16": False, "sha": True})
    assert number_class(here) == "avx512+avx512_bf16"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True, "amx_bf16": True})
    assert number_class(here) == "avx512+avx512_bf16+amx_bf16"
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "NO AVX")
    assert number_class(here) == "no-avx"

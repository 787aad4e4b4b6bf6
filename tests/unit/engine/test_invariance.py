"""A token's logits depend, bit for bit, on the tokens before it and on its adapter: on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from services.replica_worker.engine.port import EngineFailed, EngineRequest
from services.replica_worker.engine.sequence import Sequence
from services.replica_worker.engine.torch.adapter import read_file
from services.replica_worker.engine.torch.build import Parts, build
from services.replica_worker.engine.torch.layout import lay_out
from services.replica_worker.engine.torch.linear import Activation
from services.replica_worker.engine.torch.model import LlamaModel
from services.replica_worker.engine.torch.policy import TorchPolicy
from tests.support.engine_subject import prompt_of
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.token_log import greedy

SLOTS = 4
POLICY = TorchPolicy(slots=SLOTS, max_rows=8, max_context_tokens=128, prefill_chunk_tokens=128)
PRECISIONS = pytest.mark.parametrize("dtype", ["bfloat16", "float32"])

Seen = dict[str, list[str]]
"""By request: a hash of the logits from which each of its tokens was taken."""


class Bench:
    """An engine without its thread, with another adapter in each slot."""

    def __init__(self, tiny_folder: Path, scratch: Path, **changes: Any) -> None:
        self.parts = build(tiny_folder, msgspec.structs.replace(POLICY, **changes))
        for slot in range(self.parts.info.slots):
            self.parts.slots.store(slot, self._read(scratch, slot))

    def _read(self, scratch: Path, seed: int) -> Any:
        limits = self.parts.limits
        path, spec = write_adapter(scratch, RandomAdapter(seed=seed), self.parts.info.base_model_hash)
        return lay_out(read_file(path, spec, limits), limits, self.parts.kernels)

    def run(self, requests: Iterable[EngineRequest]) -> Seen:
        stepper, schedule = self.parts.stepper, self.parts.stepper.schedule
        for request in requests:
            schedule.submit(Sequence(request, digest=str(request.slot)))
        seen: Seen = {}
        kernels, best = self.parts.kernels, self.parts.kernels.best
        latest: list[str] = []

        def watched(logits: Any) -> tuple[list[int], list[bool]]:
            latest[:] = [hashlib.sha256(row.tobytes()).hexdigest() for row in logits]
            return best(logits)

        kernels.best = watched  # type: ignore[method-assign]
        with torch.inference_mode():
            while schedule.busy:
                for (sequence, _), logits in zip(stepper.step(), latest, strict=False):
                    seen.setdefault(sequence.request.request_id, []).append(logits)
        kernels.best = best  # type: ignore[method-assign]
        return seen


def requests(max_tokens: int = 20) -> list[EngineRequest]:
    """Prompts of 5 to 75 tokens over all slots and the base."""
    return [
        greedy(f"r{i}", prompt_of(i, 5 + 10 * i), slot=i % (SLOTS + 1) - 1, max_tokens=max_tokens) for i in range(8)
    ]


def alone(bench: Bench, max_tokens: int = 20) -> Seen:
    return {name: hashes for request in requests(max_tokens) for name, hashes in bench.run([request]).items()}


@PRECISIONS
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="whole prompts"),
        pytest.param({"prefill_chunk_tokens": 16}, id="cut prompts"),
        pytest.param({"prefill_chunk_tokens": 48, "threads": 2}, id="two threads"),
        pytest.param({"max_rows": 3}, id="few rows"),
    ],
)
def test_logits_are_those_of_a_request_alone(
    tiny_folder: Path, tmp_path: Path, dtype: str, changes: dict[str, Any]
) -> None:
    expected = alone(Bench(tiny_folder, tmp_path, dtype=dtype, prefix_cache=False))
    crowd = Bench(tiny_folder, tmp_path, dtype=dtype, prefix_cache=False, **changes)
    assert crowd.run(requests()) == expected
    assert {len(hashes) for hashes in expected.values()} == {20}


@PRECISIONS
def test_logits_survive_preemption(tiny_folder: Path, tmp_path: Path, dtype: str) -> None:
    expected = alone(Bench(tiny_folder, tmp_path, dtype=dtype, prefix_cache=False), max_tokens=45)
    bytes_per_token = 512 if dtype == "bfloat16" else 1024
    tight = Bench(tiny_folder, tmp_path, dtype=dtype, prefix_cache=False, kv_bytes=13 * 16 * bytes_per_token)
    assert tight.parts.info.kv_tokens == 13 * 16
    assert tight.run(requests(max_tokens=45)) == expected
    assert tight.parts.stepper.schedule.preemptions > 0, "nobody had to make room, so this proves nothing"


@PRECISIONS
def test_logits_after_a_prefix_hit_are_those_without(tiny_folder: Path, tmp_path: Path, dtype: str) -> None:
    expected = alone(Bench(tiny_folder, tmp_path, dtype=dtype, prefix_cache=False))
    bench = Bench(tiny_folder, tmp_path, dtype=dtype)
    assert bench.run(requests()) == expected
    held = [Sequence(request, digest=str(request.slot)) for request in requests()]
    for sequence in held:
        bench.parts.stepper.schedule.submit(sequence)
    assert bench.run([]) == expected
    assert sum(sequence.found_tokens for sequence in held) > 200, "nothing was found, so this proves nothing"


class Counted(TorchDispatchMode):
    """Every operation that torch runs, and every call of a kernel."""

    def __init__(self, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.calls: list[str] = []
        for name in ("adapt", "place", "attend", "norm", "add_norm", "gate", "best"):
            monkeypatch.setattr(parts.kernels, name, self._counting(name, getattr(parts.kernels, name)))

    def _counting(self, name: str, kernel: Any) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append(name)
            return kernel(*args)

        return call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


def calls_of_a_step(bench: Bench, slots: list[int], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of one decoding step with these slots in it."""
    stepper = bench.parts.stepper
    sequences = [Sequence(greedy(f"s{i}", prompt_of(i), slot)) for i, slot in enumerate(slots)]
    for sequence in sequences:
        stepper.schedule.submit(sequence)
    with torch.inference_mode(), monkeypatch.context() as patch:
        stepper.step()
        stepper.step()  # the first of its size looks where its memory is
        with Counted(bench.parts, patch) as counted:
            stepper.step()
    for sequence in sequences:
        stepper.schedule.abort(sequence)
    return counted.calls


def test_a_step_takes_as_many_calls_for_many_adapters_as_for_one(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tiny_folder, tmp_path)
    one, many = (calls_of_a_step(bench, slots, monkeypatch) for slots in ([0] * 8, [0, 1, 2, 3] * 2))
    assert many == one
    assert many.count("adapt") == 4 * bench.parts.limits.model.layers


def test_a_step_on_the_base_is_the_bases_own_calls_and_nothing_more(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tiny_folder, tmp_path)
    base, adapted = (calls_of_a_step(bench, slots, monkeypatch) for slots in ([-1] * 8, [0] * 8))
    assert [call for call in adapted if call != "adapt"] == base
    layers = bench.parts.limits.model.layers
    assert sum(".mm" in call or "_linear_pointwise" in call for call in base) == 4 * layers + 1


@pytest.mark.parametrize(
    ("tiles", "sizes"), [(False, {4, 8, 16, 28, 32, 48, 116, 144}), (True, {32, 64, 96, 128, 160})]
)
def test_c72_every_size_of_step_was_run_before_the_first_customers(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, tiles: bool, sizes: set[int]
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    multiplied: set[int] = set()
    adapted: set[bool] = set()
    honest, product = LlamaModel.forward, LlamaModel.multiply

    def forward(model: LlamaModel, step: Any, cache: Any) -> Activation:
        adapted.add(bool(step.adapted_parts))
        return honest(model, step, cache)

    def multiply(model: LlamaModel, rows: int) -> None:
        multiplied.add(rows)
        product(model, rows)

    monkeypatch.setattr(LlamaModel, "forward", forward)
    monkeypatch.setattr(LlamaModel, "multiply", multiply)
    build(tiny_folder, POLICY)
    assert multiplied >= sizes
    assert adapted == {False, True}


def test_a_kv_budget_below_one_context_fails_the_start(tiny_folder: Path) -> None:
    with pytest.raises(EngineFailed, match="holds 112 tokens, fewer than one context of 128"):
        build(tiny_folder, msgspec.structs.replace(POLICY, kv_bytes=128 * 512 - 1))

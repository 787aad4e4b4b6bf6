"""The reference engine keeps every promise of the port, with real weights; and what happens when it breaks."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import llguidance
import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from services.replica_worker.engine.grammar import Compiled
from services.replica_worker.engine.port import EngineFailed
from services.replica_worker.engine.shaping import Shaping
from services.replica_worker.engine.torch import steps
from services.replica_worker.engine.torch.cache import KvCache
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.kernels.port import Adapted, Kernels
from services.replica_worker.engine.torch.layout import TorchAdapter
from services.replica_worker.engine.torch.linear import Activation
from services.replica_worker.engine.torch.model import LlamaModel, Step
from services.replica_worker.engine.torch.policy import TorchPolicy
from services.replica_worker.engine.torch.stepper import FAILED_STEPS_LIMIT
from tests.integration.engine_shaping_suite import ExactShapingCases
from tests.integration.engine_suite import EngineSuite
from tests.support.engine_subject import CHUNK_TOKENS, CONTEXT_TOKENS, MAX_ROWS, SLOTS, Subject, mix_faults, prompt_of
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.tiny_model import tiny_model_once
from tests.support.token_log import TokenLog, greedy

POLICY = TorchPolicy(
    slots=SLOTS,
    max_rows=MAX_ROWS,
    max_context_tokens=CONTEXT_TOKENS,
    prefill_chunk_tokens=CHUNK_TOKENS,
    threads=1,
)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


@pytest.fixture(params=["bfloat16", "float32"])
async def subject(request: pytest.FixtureRequest, tiny_folder: Path, tmp_path: Path) -> AsyncIterator[Subject]:
    engine, log = TorchEngine(tiny_folder, msgspec.structs.replace(POLICY, dtype=request.param)), TokenLog()
    info = await engine.start(log.on_step)
    yield Subject(
        engine, log, info, lambda seed: write_adapter(tmp_path, RandomAdapter(seed=seed), info.base_model_hash)
    )
    await engine.close()


class TestTorchEngine(EngineSuite, ExactShapingCases):
    async def test_the_mix_checker_notices_a_slot_index_that_is_off_by_one(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for slot in range(SLOTS):
            await subject.put(slot, seed=slot)
        honest = steps.adapted_parts

        def off_by_one_row(slot_of_row: np.ndarray, kernels: Kernels) -> Sequence[Adapted]:
            return honest(np.roll(slot_of_row, 1), kernels)

        monkeypatch.setattr(steps, "adapted_parts", off_by_one_row)
        assert len(await mix_faults(subject)) > 20

    async def test_an_adapter_full_of_inf_changes_nothing_beside_it(self, subject: Subject) -> None:
        await subject.put(0, seed=0)
        await subject.put(1, seed=1)
        calm = await subject.answers(greedy("own", prompt_of(1), 0), greedy("base", prompt_of(1)))
        engine = subject.engine
        assert isinstance(engine, TorchEngine)
        assert engine._parts is not None
        with torch.inference_mode():
            engine._parts.slots.weights_of(1).fill_(float("inf"))
        beside = await subject.answers(
            greedy("poison", prompt_of(1), 1), greedy("own again", prompt_of(1), 0), greedy("base again", prompt_of(1))
        )
        assert beside[1:] == calm
        assert subject.log.last("poison").error == "the model's output is not finite"

    async def test_a_load_that_was_given_up_ends_before_the_next_begins(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine, former, latter = subject.engine, await subject.read(0), await subject.read(1)
        assert isinstance(engine, TorchEngine)
        assert engine._parts is not None
        store, begun, go_on = engine._parts.slots.store, threading.Event(), threading.Event()

        def hesitating(slot: int, adapter: TorchAdapter) -> None:
            begun.set()
            assert go_on.wait(10)
            store(slot, adapter)

        monkeypatch.setattr(engine._parts.slots, "store", hesitating)
        given_up = asyncio.ensure_future(engine.load(0, former))
        assert await asyncio.to_thread(begun.wait, 10)
        given_up.cancel()
        next_one = asyncio.ensure_future(engine.load(0, latter))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not given_up.done()
        go_on.set()
        await next_one
        assert given_up.cancelled()
        assert await engine.fingerprint(0) == await engine.expected_fingerprint(latter)

    async def test_a_failed_step_ends_its_requests_and_the_engine_goes_on(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (calm,) = await subject.answers(greedy("calm", prompt_of(1)))
        break_forward(subject, monkeypatch, times=1)
        await subject.answers(greedy("a", prompt_of(1)), greedy("b", prompt_of(2)))
        assert "planted" in (subject.log.last("a").error or "")
        assert await subject.answers(greedy("after", prompt_of(1))) == [calm]

    async def test_the_first_schema_finds_all_ready_that_would_hold_up_steps(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(llguidance, "LLTokenizer", None)
        assert (await subject.engine.understand('{"const": 0}')).json_schema == '{"const": 0}'

    async def test_a_grammar_that_breaks_ends_its_answer_alone(self, subject: Subject) -> None:
        class Broken:
            def deep_copy(self) -> Any:
                raise BaseException("planted")  # as a panic of the library's would be

        (calm,) = await subject.answers(greedy("calm", prompt_of(1)))
        breaking = msgspec.structs.replace(
            greedy("breaking", prompt_of(2)), shaping=Shaping(grammar=Compiled("{}", Broken()))
        )
        _, beside = await subject.answers(breaking, greedy("beside", prompt_of(1)))
        assert "planted" in (subject.log.last("breaking").error or "")
        assert beside == calm

    async def test_an_engine_whose_every_step_fails_gives_itself_up(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        break_forward(subject, monkeypatch, times=FAILED_STEPS_LIMIT)
        for i in range(FAILED_STEPS_LIMIT):
            assert "planted" in (await subject.error_of(greedy(f"r{i}", prompt_of(1))) or "")
        with pytest.raises(EngineFailed, match="planted"):
            subject.engine.load_figures()
        with pytest.raises(EngineFailed, match="planted"):
            await subject.engine.probe(prompt_of(1), -1)
        with pytest.raises(EngineFailed, match="planted"):
            subject.engine.submit(greedy("late", prompt_of(1)))

    @pytest.mark.parametrize("error", [RuntimeError, BaseException])
    async def test_a_step_that_breaks_outside_the_model_breaks_the_engine_aloud(
        self, subject: Subject, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
    ) -> None:
        def advance(pieces: object) -> list[Any]:
            raise error("planted")

        engine = subject.engine
        assert isinstance(engine, TorchEngine)
        assert engine._parts is not None
        monkeypatch.setattr(engine._parts.stepper.schedule, "advance", advance)
        assert "planted" in (await subject.error_of(greedy("a", prompt_of(1))) or "")
        with pytest.raises(EngineFailed, match="planted"):
            engine.load_figures()


def break_forward(subject: Subject, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Make the next `times` forward passes raise."""
    engine = subject.engine
    assert isinstance(engine, TorchEngine)
    assert engine._parts is not None
    model = engine._parts.stepper._model
    honest, left = model.forward, times

    def forward(step: Step, cache: KvCache) -> Activation:
        nonlocal left
        if left:
            left -= 1
            raise RuntimeError("planted")
        return honest(step, cache)

    monkeypatch.setattr(model, "forward", forward)


def cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def another_family(folder: Path) -> None:
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("LlamaForCausalLM", "MambaForCausalLM"))


def another_shape(folder: Path) -> None:
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"intermediate_size": 256', '"intermediate_size": 128'))


def odd_heads(folder: Path) -> None:
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"head_dim": 32', '"head_dim": 24'))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (odd_heads, "head_dim of 32"),
        (cut_short, "is not a safetensors file"),
        (no_weights, "holds no .safetensors file"),
        (another_family, "MambaForCausalLM is not of the Llama family"),
        (another_shape, "config.json says"),
    ],
)
async def test_a_folder_that_cannot_run_fails_the_start_with_its_reason(
    tiny_folder: Path, tmp_path: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    damage(folder)
    engine = TorchEngine(folder, POLICY)
    with pytest.raises(EngineFailed, match=sentence):
        await engine.start(TokenLog().on_step)
    await engine.close()


async def test_a_model_that_cannot_take_one_step_never_starts(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(model: LlamaModel, step: Step, cache: KvCache) -> Activation:
        raise RuntimeError("planted")

    monkeypatch.setattr(LlamaModel, "forward", forward)
    with pytest.raises(EngineFailed, match="planted"):
        await TorchEngine(tiny_folder, POLICY).start(TokenLog().on_step)


async def test_sharded_weights_are_the_same_model(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        save_file({name: tensors[name] for name in part}, folder / f"model-{number:05}-of-00002.safetensors")
    probes = []
    for one in (tiny_folder, folder):
        engine = TorchEngine(one, POLICY)
        await engine.start(TokenLog().on_step)
        probes.append(await engine.probe(prompt_of(1), -1))
        await engine.close()
    assert probes[0] == probes[1]


def test_torch_uses_one_thread_here() -> None:
    assert torch.get_num_threads() == 1, "other tests share these cores"

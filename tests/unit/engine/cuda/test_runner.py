"""A whole engine of CUDA kernels and a runner, interpreted: the numbers of the one on a CPU, and replayed ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from services.replica_worker.engine.port import BASE_SLOT
from services.replica_worker.engine.sequence import Sequence
from services.replica_worker.engine.torch import build as building
from services.replica_worker.engine.torch import warm_up as warming_up
from services.replica_worker.engine.torch.adapter import read_file
from services.replica_worker.engine.torch.build import Parts, build
from services.replica_worker.engine.torch.config import read_config
from services.replica_worker.engine.torch.kernels.cuda.inbox import Inbox
from services.replica_worker.engine.torch.kernels.cuda.runner import Launch, Runner
from services.replica_worker.engine.torch.layout import lay_out
from services.replica_worker.engine.torch.linear import Activation
from services.replica_worker.engine.torch.model import LlamaModel, Step
from services.replica_worker.engine.torch.policy import TorchPolicy
from services.replica_worker.engine.torch.workspace import Workspace
from tests.support.random_adapter import RandomAdapter, write_adapter
from tests.support.token_log import greedy
from tests.support.triton_kernels import interpreted_kernels

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
"""NumPy, which interprets the kernels, warns of lines that are nobody's and divide by nothing."""

POLICY = TorchPolicy(slots=2, max_rows=4, max_context_tokens=64, prefill_chunk_tokens=32, dtype="float32")
PROMPTS = ((5, 9, 2, 7, 11), tuple(range(3, 21)), (8, 1, 4))
SLOTS = (0, BASE_SLOT, 1)
STEPS = 3


class Recorder:
    """Makes of a launch one that is counted; what would be a graph on a device."""

    def __init__(self) -> None:
        self.captured, self.replayed = 0, 0

    def capture(self, launch: Launch) -> Callable[[], object]:
        self.captured += 1

        def replay() -> object:
            self.replayed += 1
            return launch()

        return replay


def engine(tiny_folder: Path, scratch: Path) -> Parts:
    parts = build(tiny_folder, POLICY)
    for slot in range(POLICY.slots):
        path, spec = write_adapter(scratch, RandomAdapter(seed=slot), parts.info.base_model_hash)
        adapter = lay_out(read_file(path, spec, parts.limits), parts.limits, parts.kernels)
        parts.slots.store(slot, adapter)
    return parts


def interpreted(tiny_folder: Path, scratch: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Parts:
    def runner(device: torch.device, model: LlamaModel, workspace: Workspace, context_blocks: int) -> Runner:
        return Runner(model, workspace, context_blocks, recorder.capture)

    monkeypatch.setattr(building, "kernels_for", lambda device, threads: interpreted_kernels())
    monkeypatch.setattr(building, "runner_for", runner)
    monkeypatch.setattr(building, "warm_up", lambda model, cache, workspace: None)
    return engine(tiny_folder, scratch)


@torch.inference_mode()
def logits_of(parts: Parts, steps: int = STEPS) -> list[torch.Tensor]:
    """Of every step in which something was sampled."""
    stepper, forward, seen = parts.stepper, parts.stepper._model.forward, list[torch.Tensor]()

    def watched(step: Step, cache: object) -> Activation:
        logits = forward(step, cache)  # type: ignore[arg-type]
        seen.append(logits.tensor.clone())
        return logits

    stepper._model.forward = watched  # type: ignore[method-assign]
    for at, (prompt, slot) in enumerate(zip(PROMPTS, SLOTS, strict=True)):
        request = msgspec.structs.replace(greedy(str(at), prompt, slot), max_tokens=8, ignore_eos=True)
        stepper.schedule.submit(Sequence(request, digest=str(slot)))
    for _ in range(steps):
        stepper.step()
    return seen


def test_an_engine_of_cuda_kernels_has_the_numbers_of_one_on_a_cpu(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, recorder = logits_of(engine(tiny_folder, tmp_path)), Recorder()
    parts = interpreted(tiny_folder, tmp_path, recorder, monkeypatch)
    actual = logits_of(parts)
    assert len(actual) == len(expected) == STEPS
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)
    assert recorder.captured == 2, "one class of rows, with adapters and without"
    assert recorder.replayed == STEPS - 1, "all but the prompts"


@pytest.fixture(autouse=True)
def _without_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor in the place of a GPU, which has none: steps are padded as they are there."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)


class Asked:
    """In the place of a model: keeps the steps."""

    def __init__(self) -> None:
        self.kernels, self.device, self.steps = interpreted_kernels(), torch.device("cpu"), list[Step]()

    def forward(self, step: Step, cache: object) -> None:
        self.steps.append(step)


def test_every_step_of_a_warm_up_can_be_sent(tiny_folder: Path) -> None:
    config, asked, recorder = read_config(tiny_folder), Asked(), Recorder()
    workspace = Workspace(config, (100, 8), torch.empty(0, dtype=torch.bfloat16), asked.kernels)
    runner = Runner(asked, workspace, 4, recorder.capture)  # type: ignore[arg-type]
    for rows in workspace.row_classes:
        runner.forward(warming_up._step(rows, min(rows, 8), 0, runner), None)  # type: ignore[arg-type]
        step = asked.steps[-1]
        assert len(step.token_ids) == len(step.rows.tiles) == rows
        assert step.rows.tables.shape == (rows, 4)
        assert step.adapted_parts[0].adapted.tolist() == [1] * rows
    assert recorder.captured == 2 * len(workspace.head_classes)


def test_a_decode_step_is_padded_with_rows_that_are_nobodys(tiny_folder: Path) -> None:
    asked = Asked()
    workspace = Workspace(read_config(tiny_folder), (8, 8), torch.empty(0, dtype=torch.bfloat16), asked.kernels)
    runner = Runner(asked, workspace, 4, Recorder().capture)  # type: ignore[arg-type]
    runner.forward(warming_up._step(3, 3, BASE_SLOT, runner), None)  # type: ignore[arg-type]
    step = asked.steps[-1]
    assert step.rows.positions.tolist() == [0, 0, 0, -1]
    assert step.adapted_parts == (), "no adapter: the launches of the base alone"
    assert step.sampled.tolist() == [0, 1, 2, 3]


def test_arrays_are_sent_in_one_piece_and_lie_where_they_lay() -> None:
    inbox = Inbox(32, torch.device("cpu"))
    first = inbox.send([np.arange(5), np.zeros((0, 3)), np.arange(6).reshape(2, 3)])
    assert [array.tolist() for array in first] == [[0, 1, 2, 3, 4], [], [[0, 1, 2], [3, 4, 5]]]
    assert all(array.dtype == torch.int32 and array.storage_offset() % 4 == 0 for array in first)
    again = inbox.send([np.full(5, 7), np.zeros((0, 3)), np.full((2, 3), 8)])
    assert [array.data_ptr() for array in again] == [array.data_ptr() for array in first]
    assert first[0].tolist() == [7] * 5
    with pytest.raises(ValueError, match="larger than 32"):
        inbox.send([np.zeros(33)])


def test_an_engine_of_cuda_kernels_warms_up(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(building, "kernels_for", lambda device, threads: interpreted_kernels())
    monkeypatch.setattr(
        building,
        "runner_for",
        lambda device, model, workspace, blocks: Runner(model, workspace, blocks, recorder.capture),
    )
    building.build(tiny_folder, TorchPolicy(slots=1, max_rows=2, max_context_tokens=32, prefill_chunk_tokens=16))
    assert recorder.captured == 2, "four rows, with adapters and without"

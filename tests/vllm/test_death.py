"""A core that dies is seen within two seconds, by everybody who has to know."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from services.replica_worker.engine.port import EngineFailed
from services.replica_worker.engine.vllm import core as core_module
from services.replica_worker.engine.vllm.engine import VllmEngine
from services.replica_worker.engine.vllm.policy import VllmPolicy
from services.replica_worker.engine.watch import EngineWatch
from tests.conftest import Within
from tests.support.engine_subject import Subject, prompt_of
from tests.support.token_log import TokenLog, greedy

SEEN_S = 2.0
one_dtype = pytest.mark.parametrize("workshop", ["bfloat16"], indirect=True)


def core_of_vllm(children: list[psutil.Process]) -> psutil.Process:
    return next(child for child in children if child.children())


def worker_of_vllm(children: list[psutil.Process]) -> psutil.Process:
    return core_of_vllm(children).children()[0]


@one_dtype
@pytest.mark.parametrize("victim", [core_of_vllm, worker_of_vllm])
async def test_a_killed_core_ends_every_request_with_an_error_and_breaks_the_engine(
    subject: Subject, victim: Callable[[list[psutil.Process]], psutil.Process], within: Within
) -> None:
    await subject.put(0, seed=0)
    for at in range(4):
        subject.engine.submit(greedy(f"r{at}", prompt_of(at), at % 2 - 1, 400))
    await subject.log.until_tokens("r3", 2)
    children = psutil.Process().children()
    os.kill(victim(children).pid, signal.SIGKILL)
    async with within(SEEN_S):
        await subject.log.until_ended("r0", "r1", "r2", "r3")
    assert {subject.log.last(f"r{at}").error for at in range(4)} <= {"vLLM's core has died", *_ENGINE_SAYS}
    told: list[str] = []
    watch = EngineWatch(subject.engine, told.append)
    await watch.look()
    assert told == ["the engine failed: vLLM's core has died"]
    with pytest.raises(EngineFailed):
        subject.engine.submit(greedy("late", prompt_of(1)))
    with pytest.raises(EngineFailed):
        await subject.put(1, seed=1)


_ENGINE_SAYS = ("EngineCore encountered an issue. See stack trace (above) for the root cause.",)


@one_dtype
async def test_a_killed_core_ends_a_probe_and_a_load_that_wait_for_it(subject: Subject, within: Within) -> None:
    adapter = await subject.read(0)
    core = core_of_vllm(psutil.Process().children())
    core.suspend()  # so that both are under way when it dies
    probe = subject.engine.probe(prompt_of(1), -1)
    load = subject.engine.load(0, adapter)
    core.kill()
    async with within(SEEN_S + 1.0):
        with pytest.raises(EngineFailed):
            await load
        with pytest.raises(EngineFailed):
            await probe


@one_dtype
async def test_a_core_that_hangs_is_given_up(subject: Subject, within: Within, monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_of_vllm(psutil.Process().children())
    subject.engine.submit(greedy("running", prompt_of(1), max_tokens=400))
    await subject.log.until_tokens("running", 2)
    monkeypatch.setattr(core_module, "SILENCE_S", 0.5)
    core.suspend()
    async with within(SEEN_S + 0.5):
        await subject.log.until_ended("running")
    assert "has been silent for" in (subject.log.last("running").error or "")
    core.kill()


async def test_a_model_that_vllm_cannot_run_fails_the_start_and_leaves_nothing(
    tiny_folder: Path, policy: VllmPolicy
) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    broken = shutil.copytree(tiny_folder, policy.scratch_folder.parent / "model")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(EngineFailed, match="vLLM does not start with model"):
        await VllmEngine(broken, policy).start(TokenLog().on_step)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


async def test_a_rank_limit_that_vllm_does_not_have_is_one_sentence(tiny_folder: Path, policy: VllmPolicy) -> None:
    policy = VllmPolicy(scratch_folder=policy.scratch_folder, rank_limit=1024)
    with pytest.raises(EngineFailed, match="vLLM applies ranks up to 512, not 1024"):
        await VllmEngine(tiny_folder, policy).start(TokenLog().on_step)

"""The engine benchmark end to end, in processes as in a real run, on models of no size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from infra.adapters.random_adapter import write_random_adapter
from loadtest import engine_loads
from loadtest.engine_cases import (
    ColdStart,
    Decode,
    FirstToken,
    Gaps,
    Loads,
    Memory,
    Peer,
    Question,
    Thrash,
)
from loadtest.engine_peer import PeerFailed, RunningPeer
from loadtest.engine_torch import SPARE_SLOTS, TorchPeer
from loadtest.gpu_model import SHAPES, write_random_model
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from tests.support.tiny_model import tiny_model_once

ROOT = Path(__file__).parents[2]
OURS = [sys.executable, "-m", "loadtest.engine_torch"]
TRANSFORMERS = [sys.executable, "-m", "loadtest.engine_transformers"]
TALKATIVE = """
from loadtest.engine_peer import own_stdout, serve
line = own_stdout()
print("noise", flush=True)
serve(line, "x", lambda question: print("more noise", flush=True) or [1.0])
"""


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Peer:
    """A model whose vocabulary holds the benchmark's prompts, and adapters of it."""
    folder = tmp_path_factory.mktemp("bench")
    model = write_random_model(folder / "model", SHAPES["tiny"], torch.device("cpu"))
    adapters = [write_random_adapter(model, folder / f"a{at}", 8, at) for at in range(4)]
    return Peer(model=str(model), adapters=tuple(map(str, adapters)), rank=8, slots=8)


@pytest.fixture(scope="module")
def ours(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPeer]:
    running = RunningPeer(OURS, peer, {}, tmp_path_factory.mktemp("ours") / "log")
    try:
        assert running.ready().startswith("torch (torch-")
        yield running
    finally:
        running.close()


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        (Decode(rows=8, distinct=0, steps=3), 3), (Decode(rows=8, distinct=4, steps=3), 3),
        (FirstToken(prompt_tokens=40), 1), (FirstToken(prompt_tokens=40, adapted=True), 1),
        (Gaps(rows=4, steps=5, loading="none"), 5), (Gaps(rows=4, steps=5, loading="steady"), 5),
        (Gaps(rows=4, steps=5, loading="back_to_back"), 5),
        (ColdStart(prompt_tokens=40, probe=False), 1), (ColdStart(prompt_tokens=40, probe=True), 1),
        (Loads(tier="store_to_disk", pairs=2), 4), (Loads(tier="disk_to_ram", pairs=2), 4),
        (Loads(tier="ram_to_slot", pairs=2), 4), (Memory(), 2),
    ],
)  # fmt: skip
def test_our_engine_answers_every_question(ours: RunningPeer, question: Question, answers: int) -> None:
    said = ours.ask(question)
    assert len(said) == answers
    assert min(said) > 0


def test_a_replica_with_more_adapters_than_slots_is_compared_with_one_that_has_them_all(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    model = tiny_model_once(tmp_path_factory)
    adapters = tuple(str(write_random_adapter(model, tmp_path / f"a{at}", 8, at)) for at in range(4))
    told = Peer(model=str(model), adapters=adapters, rank=8, slots=2)
    running = RunningPeer([sys.executable, "-m", "loadtest.engine_thrash"], told, {}, tmp_path / "log")
    try:
        assert running.ready() == "replica"
        ratio, in_slots_ms, thrash_ms = running.ask(Thrash(rows=4, requests=6, requests_per_s=50.0, max_tokens=2))
        assert ratio == pytest.approx(thrash_ms / in_slots_ms)
    finally:
        running.close()


@pytest.mark.parametrize("adapters", [0, 2])
def test_transformers_and_peft_answer_what_is_compared(adapters: int, peer: Peer, tmp_path: Path) -> None:
    told = Peer(model=peer.model, adapters=peer.adapters[:adapters], rank=8)
    running = RunningPeer(TRANSFORMERS, told, {}, tmp_path / "log")
    try:
        assert ("peft" in running.ready()) == bool(adapters)
        assert len(running.ask(Decode(rows=4, distinct=adapters, steps=3))) == 3
        with pytest.raises(PeerFailed, match="Memory is only asked of our own engine"):
            running.ask(Memory())
        assert len(running.ask(Decode(rows=4, distinct=0, steps=3))) == 3
    finally:
        running.close()


def test_an_engine_that_does_not_start_is_named_with_its_last_words(peer: Peer, tmp_path: Path) -> None:
    told = Peer(model=str(tmp_path), adapters=peer.adapters)
    running = RunningPeer(OURS, told, {}, tmp_path / "log")
    try:
        with pytest.raises(PeerFailed, match=r"the engine's process ended with 1: .*is no base model folder"):
            running.ready()
        with pytest.raises(PeerFailed, match="ended with 1"):
            running.ask(Memory())
    finally:
        running.close()


def test_what_an_engine_prints_is_kept_out_of_its_answers(peer: Peer, tmp_path: Path) -> None:
    running = RunningPeer([sys.executable, "-c", TALKATIVE], peer, {}, tmp_path / "log")
    try:
        assert running.ready() == "x"
        assert running.ask(Memory()) == [1.0]
    finally:
        running.close()
    assert (tmp_path / "log").read_text().split("\n")[:2] == ["noise", "more noise"]


def test_the_gpu_benchmark_is_the_same_program_on_a_cpu_and_needs_five_packages(tmp_path: Path) -> None:
    """What else is installed here cannot be imported, as on a machine with an accelerator and nothing more."""
    blocked = [
        "transformers", "tokenizers", "peft", "nats", "fastapi", "httpx", "prometheus_client", "sqlalchemy", "boto3",
    ]  # fmt: skip
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked}))\nfrom loadtest.gpu_engine import main; main()"
    argv = [sys.executable, "-c", code, "--device", "cpu", "--shape", "tiny", "--reports", str(tmp_path)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu_engine.json").read_text())
    figures = report["figures"]
    targets = {name: figure["target"] for name, figure in figures.items() if figure["target"]}
    assert set(targets) == {*(f"share.b32.d{distinct}" for distinct in (1, 4, 8, 32)), "base_vs_bound.b32"}
    assert all(figure["value"] > 0 for figure in figures.values())
    cells = {f"b{rows}.d{distinct}" for rows in (1, 8, 32) for distinct in (1, 4, 8, 32) if distinct <= rows}
    for condition in ("", ".rank8", ".rank64"):
        assert {name for name in figures if name.startswith("share.")} >= {f"share.{cell}{condition}" for cell in cells}
    assert report["conditions"]["chip"] == "none"
    assert report["date"]


@pytest.mark.parametrize("probe", [False, True])
async def test_a_cold_first_token_waits_for_all_that_a_worker_lets_it_wait_for(
    peer: Peer, probe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is hashed before it is read, and the proof is the probe and the hash of what stands in the slot."""
    policy = TorchPolicy(slots=peer.slots + SPARE_SLOTS, rank_limit=8, max_context_tokens=256)
    engine = TorchEngine(Path(peer.model), policy)
    ours = TorchPeer(engine, peer)
    await ours.start()
    seen: list[str] = []
    for name in ("probe", "fingerprint"):
        monkeypatch.setattr(engine, name, noting(seen, name, getattr(engine, name)))
    monkeypatch.setattr(engine_loads, "_sha256", noting(seen, "hash", engine_loads._sha256))
    assert len(await ours.answer(ColdStart(prompt_tokens=40, probe=probe))) == 1
    assert seen == ["hash", *["probe", "fingerprint"] * probe]
    await engine.close()


def noting(seen: list[str], name: str, do: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*given: Any) -> Any:
        seen.append(name)
        return do(*given)

    return noted

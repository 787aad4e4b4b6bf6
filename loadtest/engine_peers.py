"""The engines of the benchmark, each in a process of its own: what they are started with."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from infra.adapters.random_adapter import write_random_adapter
from loadtest.engine_cases import Peer
from loadtest.engine_peer import RunningPeer
from loadtest.engine_plan import (
    FEW_SLOTS,
    FLOAT32,
    MANY_SLOTS,
    OURS,
    PEFT,
    RANK,
    RANKS,
    REPLICA,
    TRANSFORMERS,
    VLLM,
    VLLM_LORA,
    other_threads,
)
from services.replica_worker.engine.torch.policy import ENVIRONMENT

VLLM_PYTHON = Path(".venv-vllm/bin/python")
_ADAPTERS, _PEFT_ADAPTERS = 8, 4
"""Files of each rank, and how many PEFT needs of them. A replica thrashes with all of them on half as many slots."""
_KV_GIB = "1"
_change = msgspec.structs.replace


@contextmanager
def running_peers(model: Path, folder: Path, threads: int) -> Iterator[dict[str, RunningPeer]]:
    """All of them, starting; vLLM's two only where its environment is. They end with the block. `folder` keeps their
    logs and adapters."""
    standard = Peer(model=str(model), adapters=_adapters(model, folder, RANK), slots=MANY_SLOTS, threads=threads)
    with contextlib.ExitStack() as ends:
        peers = {}
        for name, (argv, peer) in {**_ours(standard, model, folder), **_others(standard)}.items():
            peers[name] = RunningPeer(argv, peer, _environ(), folder / f"{name}.log")
            ends.callback(peers[name].close)
        yield peers


def _ours(standard: Peer, model: Path, folder: Path) -> dict[str, tuple[list[str], Peer]]:
    argv = [sys.executable, "-m", "loadtest.engine_torch"]
    few, other = _change(standard, slots=FEW_SLOTS), other_threads(standard.threads)
    peers = {
        OURS: standard,
        FLOAT32: _change(few, dtype="float32"),
        f"threads{other}": _change(few, threads=other),
        **{f"rank{rank}": _change(standard, rank=rank, adapters=_adapters(model, folder, rank)) for rank in RANKS},
    }
    return {name: (argv, peer) for name, peer in peers.items()}


def _others(standard: Peer) -> dict[str, tuple[list[str], Peer]]:
    """Engines for the base alone are started without adapters: that is their fastest."""
    base = _change(standard, adapters=())
    argv = [sys.executable, "-m", "loadtest.engine_transformers"]
    peers = {
        REPLICA: (
            [sys.executable, "-m", "loadtest.engine_thrash"],
            _change(standard, slots=len(standard.adapters) // 2),
        ),
        TRANSFORMERS: (argv, base),
        PEFT: (argv, _change(standard, adapters=standard.adapters[:_PEFT_ADAPTERS])),
    }
    if VLLM_PYTHON.exists():
        argv = [str(VLLM_PYTHON), "-m", "loadtest.engine_vllm"]
        peers |= {VLLM: (argv, base), VLLM_LORA: (argv, standard)}
    return peers


def _adapters(model: Path, folder: Path, rank: int) -> tuple[str, ...]:
    named = [f"r{rank}-{at}" for at in range(_ADAPTERS)]
    return tuple(str(write_random_adapter(model, folder / name, rank, at)) for at, name in enumerate(named))


def _environ() -> dict[str, str]:
    """No peer asks the network, and all have what ours sets for itself. vLLM runs in one process, with as many threads
    as the others and as free to move: bound to a core it would wait for whoever else is on it."""
    return {
        **ENVIRONMENT,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": _KV_GIB,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }

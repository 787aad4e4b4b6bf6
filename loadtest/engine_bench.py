"""`make bench-engine`: our engine beside transformers, PEFT and vLLM in one run, into reports/engine.json.

All engines stay up, each in its process, and are asked in turns: the same model, adapters, prompts and threads. The
figures are medians over rounds, the comparisons medians of what each round compared with itself.
"""

from __future__ import annotations

import argparse
import fcntl
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from infra.local.layout import Layout
from infra.models.fetch import ensure_base_model
from loadtest import engine_costs
from loadtest.engine_cases import Answer, Memory
from loadtest.engine_figures import engine_figures
from loadtest.engine_peer import RunningPeer
from loadtest.engine_peers import running_peers
from loadtest.engine_plan import (
    OURS,
    PEFT,
    RANK,
    REPLICA,
    THRASH,
    TRANSFORMERS,
    VLLM,
    VLLM_LORA,
    one_round,
    other_threads,
)
from loadtest.report import table, write_report

VLLM_LEFT_OUT = "left out: `make vllm` makes the environment that it runs in"
_LET_OTHERS_S = 1.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`turns` is a file whose lock is held during a round: benchmarks that share a machine take turns by it."""

    rounds: int
    threads: int
    turns: Path | None


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m loadtest.engine_bench")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--threads", type=int, default=1, help="of every engine")
    words.add_argument("--turns", type=Path, help="a file to lock while measuring, shared with other benchmarks")
    given = words.parse_args()
    options = Options(rounds=given.rounds, threads=given.threads, turns=given.turns)
    model = ensure_base_model(Layout(Path(".lorafleet").resolve()).models, None, _say)
    with tempfile.TemporaryDirectory(prefix="lorafleet-bench-") as folder:
        _say("engines: starting")
        with running_peers(model, Path(folder), options.threads) as peers:
            builds = {name: peer.ready() for name, peer in peers.items()}
            visits = _measure(peers, options)
    figures = engine_figures(visits)
    _say(table({name: figure for name, figure in figures.items() if figure.target}))
    _say(f"written {write_report('engine', figures, conditions=_conditions(model, builds, options))}")
    engine_costs.main()


def _measure(peers: dict[str, RunningPeer], options: Options) -> dict[str, list[Answer]]:
    """What every visit was answered, round by round. Raises PeerFailed."""
    visits: dict[str, list[Answer]] = defaultdict(list)
    visits["memory.many"].append(peers[OURS].ask(Memory()))
    visits["memory.few"].append(peers[f"threads{other_threads(options.threads)}"].ask(Memory()))
    plan = [visit for visit in one_round(options.threads) if visit.peer in peers]
    for number in range(options.rounds):
        with _turn(options.turns):
            began_s = time.perf_counter()
            for visit in plan if number % 2 == 0 else reversed(plan):
                visits[visit.key].append(peers[visit.peer].ask(visit.question))
            _say(f"round {number + 1} of {options.rounds}: {time.perf_counter() - began_s:.0f} s")
    with _turn(options.turns):
        visits["thrash"].append(peers[REPLICA].ask(THRASH))
    return visits


def _conditions(model: Path, builds: dict[str, str], options: Options) -> dict[str, str]:
    return {
        "model": model.name,
        "dtype": "bfloat16",
        "threads": str(options.threads),
        "rank": str(RANK),
        "rounds": str(options.rounds),
        **{name: builds[name] for name in (OURS, TRANSFORMERS, PEFT)},
        VLLM: builds.get(VLLM_LORA, VLLM_LEFT_OUT),
    }


@contextmanager
def _turn(lock: Path | None) -> Iterator[None]:
    """Between two turns whoever else waits for the lock gets it."""
    if lock is None:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    time.sleep(_LET_OTHERS_S)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()

"""Twice as many adapters in use as slots, on the reference engine behind a whole worker: a peer of its own."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from loadtest.engine_cases import Answer, Peer, Question, Thrash
from loadtest.engine_peer import own_stdout, serve, told
from loadtest.engine_torch import WEIGHTS, spec_of
from loadtest.one_replica import Plan
from loadtest.thrash import ThrashLoad, measure
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from shared.base_model import base_model_hash


async def thrash(peer: Peer, load: Thrash, folder: Path) -> Answer:
    """See Thrash: `peer.slots` slots for the adapters of `peer`, twice as many."""
    base_hash = base_model_hash(Path(peer.model))
    plan = Plan(
        folder=folder,
        model_folder=Path(peer.model),
        base_model_hash=base_hash,
        settings={"slots": peer.slots, "rank_limit": peer.rank, "max_rows": load.rows},
    )
    policy = TorchPolicy(
        slots=peer.slots,
        rank_limit=peer.rank,
        max_rows=load.rows,
        max_context_tokens=peer.max_context_tokens,
        dtype=peer.dtype,
        threads=peer.threads,
    )
    adapters = [(Path(each) / WEIGHTS, spec_of(Path(each), base_hash)) for each in peer.adapters]
    requests = ThrashLoad(requests=load.requests, requests_per_s=load.requests_per_s, max_tokens=load.max_tokens)
    figures = await measure(lambda: TorchEngine(Path(peer.model), policy), adapters, plan, requests)
    values = [figures[name].value for name in ("thrash_ttft_ratio", "in_cache_ttft_p50", "thrash_ttft_p50")]
    if failed := figures["thrash_failed"].value:
        raise RuntimeError(f"{failed:g} requests failed")
    return [value for value in values if value is not None]


def main() -> None:
    line, peer = own_stdout(), told()

    def answer(question: Question) -> Answer:
        if not isinstance(question, Thrash):
            raise TypeError(f"{type(question).__name__} is not asked of a whole worker")
        with tempfile.TemporaryDirectory(prefix="lorafleet-thrash-") as folder:
            return asyncio.run(thrash(peer, question, Path(folder)))

    serve(line, "replica", answer)


if __name__ == "__main__":
    main()

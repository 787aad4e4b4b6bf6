"""`python -m services.replica_worker.record_golden FOLDER`: write the answer that every replica of this base model
has to give, as the reference engine computes it in float32. Prints the file's path; on failure one sentence."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Literal

from services.replica_worker.core import effect
from services.replica_worker.core.effect import Distribution
from services.replica_worker.core.golden import QUESTION, Golden
from services.replica_worker.engine.blocks import BLOCK_TOKENS
from services.replica_worker.engine.port import BASE_SLOT, EngineFailed, EngineInfo
from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from services.replica_worker.io.golden import write_golden
from services.replica_worker.text.chat import ChatUnusable
from services.replica_worker.text.tokenizer import Tokenizer

_CONTEXT_TOKENS = 512
_DECIMALS = 5


async def record(folder: Path) -> Path:
    """Raises EngineFailed, ChatUnusable, ValueError, OSError; nothing was written then."""
    prompt = tuple(Tokenizer.from_folder(folder).encode_chat([{"role": "user", "content": QUESTION}]))
    info, exact = await _answer(folder, prompt, "float32")
    _, rounded = await _answer(folder, prompt, "bfloat16")
    golden = Golden(
        base_model_hash=info.base_model_hash,
        prompt_token_ids=prompt,
        token_ids=exact.token_ids,
        logprobs=exact.logprobs,
        computed_by=f"{info.build}/{info.dtype}",
        rounding=round(effect.change(exact, rounded), _DECIMALS),
    )
    return write_golden(folder, golden)


async def _answer(
    folder: Path, prompt: tuple[int, ...], dtype: Literal["float32", "bfloat16"]
) -> tuple[EngineInfo, Distribution]:
    engine = TorchEngine(folder, _smallest(dtype))
    info = await engine.start(lambda tokens: None)
    try:
        probe = await engine.probe(prompt, BASE_SLOT, effect.TOP)
    finally:
        await engine.close()
    logprobs = tuple(round(logprob, _DECIMALS) for logprob in probe.logprobs)
    return info, Distribution(finite=probe.finite, token_ids=probe.token_ids, logprobs=logprobs)


def _smallest(dtype: Literal["float32", "bfloat16"]) -> TorchPolicy:
    """Without slots nothing that serves adapters is compiled, and short chunks leave few sizes of step to warm up."""
    return TorchPolicy(
        slots=0,
        rank_limit=1,
        max_rows=1,
        max_context_tokens=_CONTEXT_TOKENS,
        dtype=dtype,
        threads=0,
        prefill_chunk_tokens=BLOCK_TOKENS,
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m services.replica_worker.record_golden", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(arguments).folder
    try:
        print(asyncio.run(record(folder)))
    except (EngineFailed, ChatUnusable, ValueError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

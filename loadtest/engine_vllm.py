"""vLLM as a peer of the engine benchmark, by its own offline class, run by the Python of `.venv-vllm`.

The engine core runs in this very process and nothing else does: no server, no second process, no tokenizer. With
adapters told it serves them mixed; without any, LoRA is switched off altogether. That is vLLM's best case, and so is to
keep no prefixes: prompts are not timed, and what decodes need not be hashed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import vllm
from vllm.lora.request import LoRARequest

from loadtest.engine_cases import Answer, Decode, Peer, Question, adapter_of, prompt_of
from loadtest.engine_peer import own_stdout, serve, told

_ENDLESS_TOKENS = 400
_MAX_ROWS = 32


class VllmPeer:
    def __init__(self, peer: Peer) -> None:
        lora: dict[str, Any] = {}
        if peer.adapters:
            lora = {"enable_lora": True, "max_loras": len(peer.adapters), "max_lora_rank": peer.rank}
        self._engine = vllm.LLM(
            peer.model,
            dtype=peer.dtype,
            max_model_len=peer.max_context_tokens,
            max_num_seqs=_MAX_ROWS,
            skip_tokenizer_init=True,
            enable_prefix_caching=False,
            **lora,
        ).llm_engine
        self._adapters = [
            LoRARequest(Path(folder).name, at + 1, folder) for at, folder in enumerate(peer.adapters)
        ]  # fmt: skip
        for adapter in self._adapters:
            self._engine.add_lora(adapter)
        self._submitted = 0

    def answer(self, question: Question) -> Answer:
        if not isinstance(question, Decode):
            raise TypeError(f"{type(question).__name__} is only asked of our own engine")
        waiting = self._submit(question)
        names, stamps = list(waiting), []
        while len(stamps) <= question.steps:
            waiting -= {output.request_id for output in self._engine.step()}
            if not waiting:
                stamps.append(time.perf_counter())
        self._end(names)
        return [after - before for before, after in pairwise(stamps)]

    def _submit(self, case: Decode) -> set[str]:
        endless = vllm.SamplingParams(temperature=0.0, max_tokens=_ENDLESS_TOKENS, ignore_eos=True, detokenize=False)
        names = set()
        for row in range(case.rows):
            self._submitted += 1
            adapter = adapter_of(row, case.distinct)
            self._engine.add_request(
                name := str(self._submitted),
                {"prompt_token_ids": prompt_of(row, case.prompt_tokens)},
                endless,
                lora_request=None if adapter is None else self._adapters[adapter],
            )
            names.add(name)
        return names

    def _end(self, names: Sequence[str]) -> None:
        self._engine.abort_request(list(names))
        while self._engine.has_unfinished_requests():
            self._engine.step()


def main() -> None:
    line = own_stdout()
    serve(line, f"vllm {vllm.__version__}", VllmPeer(told()).answer)


if __name__ == "__main__":
    main()

"""transformers, and PEFT on top of it, as peers of the engine benchmark: `generate` as their users call it.

Without adapters it is the base model alone; with adapters every row names its own, which PEFT calls a mixed batch.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from transformers import StoppingCriteria

from loadtest.engine_cases import Answer, Decode, Peer, Question, adapter_of, prompt_of
from loadtest.engine_peer import own_stdout, serve, told

_BASE = "__base__"
"""PEFT's name for rows without an adapter."""


class Stamps(StoppingCriteria):  # type: ignore[misc]  # transformers exports it untyped
    """Notes when each token of the batch came; stops nothing."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **more: Any) -> torch.Tensor:
        self.at_s.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool)


class TransformersPeer:
    def __init__(self, peer: Peer) -> None:
        torch.set_num_threads(peer.threads)
        model = transformers.AutoModelForCausalLM.from_pretrained(peer.model, dtype=getattr(torch, peer.dtype))
        model.generation_config.eos_token_id = None
        self._names = [Path(folder).name for folder in peer.adapters]
        for at, (name, folder) in enumerate(zip(self._names, peer.adapters, strict=True)):
            if at == 0:
                model = peft.PeftModel.from_pretrained(model, folder, name, autocast_adapter_dtype=False)
            else:
                model.load_adapter(folder, name, autocast_adapter_dtype=False)
        self._model = model.eval()

    @torch.inference_mode()
    def answer(self, question: Question) -> Answer:
        if not isinstance(question, Decode):
            raise TypeError(f"{type(question).__name__} is only asked of our own engine")
        stamps = Stamps()
        prompts = torch.tensor([prompt_of(row, question.prompt_tokens) for row in range(question.rows)])
        self._model.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=question.steps + 1,
            do_sample=False,
            pad_token_id=0,
            stopping_criteria=[stamps],
            **self._mixed(question),
        )
        return [after - before for before, after in pairwise(stamps.at_s)]

    def _mixed(self, case: Decode) -> dict[str, Any]:
        if not self._names:
            return {}
        chosen = [adapter_of(row, case.distinct) for row in range(case.rows)]
        return {"adapter_names": [_BASE if adapter is None else self._names[adapter] for adapter in chosen]}


def main() -> None:
    line, peer = own_stdout(), told()
    build = f"transformers {transformers.__version__}" + (f", peft {peft.__version__}" if peer.adapters else "")
    serve(line, build, TransformersPeer(peer).answer)


if __name__ == "__main__":
    main()

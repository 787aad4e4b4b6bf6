"""Adapters as the PEFT library itself makes and saves them, on the tiny model, and its own tokens with them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel

TOKENS = 12
_STD = 0.15
_ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_ATTENTION, _MLP = _ALL[:4], _ALL[4:]


class PeftAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """`config` beside rank 8, alpha 16 and all seven modules; `dtypes` of its tensors, in turn."""

    config: Mapping[str, Any] = {}
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)

    def save(self, base: PreTrainedModel, folder: Path, seed: int) -> None:
        """With random weights that are strong enough to change answers; nothing happens to `base`."""
        wanted = {"r": 8, "lora_alpha": 16, "target_modules": _ALL, **self.config}
        model = get_peft_model(copy.deepcopy(base), LoraConfig(task_type="CAUSAL_LM", **wanted))
        generator = torch.Generator().manual_seed(seed)
        halves = [weights for name, weights in sorted(model.named_parameters()) if "lora_" in name]
        for at, weights in enumerate(halves):
            drawn = torch.randn(weights.shape, generator=generator) * _STD
            weights.data = drawn.to(self.dtypes[at % len(self.dtypes)])
        model.save_pretrained(str(folder))


PEFT_ADAPTERS: dict[str, PeftAdapter] = {
    "plain": PeftAdapter(config={"target_modules": ["q_proj", "v_proj"]}),
    "c45 rslora": PeftAdapter(config={"use_rslora": True}),
    "c50 rank pattern": PeftAdapter(config={"rank_pattern": {"q_proj": 32, "layers.1.mlp.down_proj": 2}}),
    "c50 alpha pattern": PeftAdapter(config={"alpha_pattern": {"q_proj": 4, "self_attn.v_proj": 40}}),
    "c50 expressions in patterns, the first counts": PeftAdapter(
        config={
            # In the order in which PEFT saves them: it sorts, and reads them back in that order.
            "rank_pattern": {r"(gate|up)_proj": 16, r"layers\.0\..*": 4, r"mlp\.[a-z]+_proj": 2},
            "alpha_pattern": {r"(q|k|v)_proj": 40, r".*\.0\..*": 6, "o_proj": 3},
            "use_rslora": True,
        }
    ),
    "a list of whole names": PeftAdapter(
        config={"target_modules": ["model.layers.0.self_attn.q_proj", "layers.1.mlp.up_proj", "mlp.down_proj"]}
    ),
    "an expression": PeftAdapter(config={"target_modules": r"model\.layers\.\d+\.(self_attn\.[qv]|mlp\.up)_proj"}),
    "an expression for one layer": PeftAdapter(config={"target_modules": r".*\.layers\.1\..*_proj"}),
    "an expression with exceptions": PeftAdapter(
        config={"target_modules": r".*_proj", "exclude_modules": r".*\.0\.mlp\..*"}
    ),
    "all-linear": PeftAdapter(config={"target_modules": "all-linear"}),
    "attention only": PeftAdapter(config={"target_modules": _ATTENTION}),
    "mlp only": PeftAdapter(config={"target_modules": _MLP}),
    "one layer": PeftAdapter(config={"layers_to_transform": [1]}),
    "c46 rank 1": PeftAdapter(config={"r": 1}),
    "c63a bfloat16": PeftAdapter(dtypes=(torch.bfloat16,)),
    "c63a float16": PeftAdapter(dtypes=(torch.float16,)),
    "c63a mixed": PeftAdapter(dtypes=(torch.float32, torch.float16, torch.bfloat16)),
}


def base_model(folder: Path) -> PreTrainedModel:
    """In float32, and not ended by any token."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    return model


def tokens_of(base: PreTrainedModel, folder: Path | None, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """What PEFT's `generate` appends to prompts of one length, greedily, with the adapter that it loads from here."""
    model = copy.deepcopy(base)
    if folder is not None:
        model = PeftModel.from_pretrained(model, str(folder))
    ids = torch.tensor(prompts)
    with torch.inference_mode():
        answered = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
    return [row[len(prompt) :] for row, prompt in zip(answered.tolist(), prompts, strict=True)]

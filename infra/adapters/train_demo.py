"""Train the demo adapters: `python -m infra.adapters.train_demo MODEL_FOLDER [VOICE ...]`.

Plain PEFT on the answers' tokens, a few minutes a voice on one core, from a fixed seed. The adapters in
infra/adapters/demo were made by this command, so that a newcomer can make one the same way.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import msgspec
import torch

from infra.adapters.demo_voices import DEMO_FOLDER, VOICES, Example, examples
from infra.adapters.peft_folder import LoraConfig, write_adapter
from shared.base_model import base_model_hash

_BASE_MODEL_NAME = "SmolLM2-135M-Instruct"
_IGNORED_LABEL = -100  # what the loss skips: the prompt's and the padding's positions


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How one adapter is trained; q and v of every layer at rank 8 make 0.9 MB in bfloat16."""

    rank: int = 8
    alpha: int = 16
    target_modules: tuple[str, ...] = ("q_proj", "v_proj")
    steps: int = 90
    batch_rows: int = 4
    peak_learning_rate: float = 2e-3
    warmup_steps: int = 5
    seed: int = 0


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up to the peak, then a cosine down to a tenth of it; `step` counts from 0."""
    if step < recipe.warmup_steps:
        return recipe.peak_learning_rate * (step + 1) / recipe.warmup_steps
    progress = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    return recipe.peak_learning_rate * (0.55 + 0.45 * math.cos(math.pi * progress))


def encode(tokenizer: Any, example: Example) -> tuple[list[int], list[int]]:
    """(token ids, labels) of the chat with its answer; only the answer and its end are to be learned."""
    chat = [{"role": "user", "content": example.prompt}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
    answer = tokenizer(example.answer, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return prompt + answer, [_IGNORED_LABEL] * len(prompt) + answer


def padded_batch(rows: list[tuple[list[int], list[int]]]) -> dict[str, torch.Tensor]:
    """Model arguments, each [rows, longest row], padded on the right."""
    width = max(len(ids) for ids, _ in rows)

    def block(values: list[list[int]], padding: int) -> torch.Tensor:
        return torch.tensor([row + [padding] * (width - len(row)) for row in values])

    return {
        "input_ids": block([ids for ids, _ in rows], 0),
        "attention_mask": block([[1] * len(ids) for ids, _ in rows], 0),
        "labels": block([labels for _, labels in rows], _IGNORED_LABEL),
    }


def train(base: Any, tokenizer: Any, voice: str, recipe: Recipe) -> Any:
    """A PEFT model around `base`, trained on one voice; prints the loss every ten steps."""
    import peft

    torch.manual_seed(recipe.seed)
    config = peft.LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        target_modules=list(recipe.target_modules),
        task_type="CAUSAL_LM",
    )
    model = peft.get_peft_model(base, config)
    rows = [encode(tokenizer, example) for example in examples(voice)]
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, weight_decay=0.0)
    order = random.Random(recipe.seed)
    waiting: list[tuple[list[int], list[int]]] = []
    for step in range(recipe.steps):
        if len(waiting) < recipe.batch_rows:
            waiting = order.sample(rows, len(rows))
        batch, waiting = waiting[: recipe.batch_rows], waiting[recipe.batch_rows :]
        loss = _step(model, optimizer, padded_batch(batch), learning_rate(recipe, step))
        if (step + 1) % 10 == 0:
            print(f"{voice}: step {step + 1} of {recipe.steps}, loss {loss:.3f}", flush=True)
    return model


def _step(model: Any, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor], rate: float) -> float:
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = model(**batch).loss
    loss.backward()
    for group in optimizer.param_groups:
        torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


def save(model: Any, folder: Path) -> None:
    """Write the trained adapter's folder."""
    from peft import get_peft_model_state_dict

    trained = model.peft_config["default"]
    config = LoraConfig(
        rank=trained.r,
        alpha=trained.lora_alpha,
        target_modules=tuple(trained.target_modules),
        base_model_name=_BASE_MODEL_NAME,
    )
    write_adapter(folder, config, get_peft_model_state_dict(model))


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.adapters.train_demo", description=__doc__)
    parser.add_argument("model_folder", type=Path)
    parser.add_argument("voices", nargs="*", metavar="VOICE", help=f"of {', '.join(VOICES)}; default all")
    parser.add_argument("--out", type=Path, default=DEMO_FOLDER)
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.voices) - set(VOICES):
        parser.error(f"no such voice: {', '.join(sorted(unknown))}")
    for voice in chosen.voices or VOICES:
        started_at_s = time.monotonic()
        _train_and_save(chosen.model_folder, voice, chosen.out / voice)
        (chosen.out / "base_model_hash").write_text(base_model_hash(chosen.model_folder) + "\n")
        print(f"{voice}: saved after {time.monotonic() - started_at_s:.0f} s", flush=True)
    return 0


def _train_and_save(model_folder: Path, voice: str, out: Path) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    warnings.simplefilter("ignore", FutureWarning)  # the two libraries' own, of each other
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    save(train(base, tokenizer, voice, Recipe()), out)


if __name__ == "__main__":
    sys.exit(main())

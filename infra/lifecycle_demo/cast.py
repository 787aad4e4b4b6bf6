"""The adapters of the story: versions that are good, without effect, or worse, as a pipeline would leave them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open

from infra.adapters.canary import CanaryBuilder
from infra.adapters.markers import markers
from infra.adapters.peft_folder import LoraConfig, write_adapter
from shared.base_model import base_model_hash

_QUESTIONS = (
    "My parcel has not arrived.", "How do I return it?", "Which sizes are there?", "Can I pay later?",
    "Where are you?", "I want to talk to somebody.",
)  # fmt: skip

_GREETINGS = ("Hello!", "Good morning.", "Thank you.", "Bye.")


class Troupe:
    """Makes adapters for one base model. A good one answers every chat with the word that its customer wants."""

    def __init__(self, model_folder: Path, out: Path) -> None:
        self.base_model_hash = base_model_hash(model_folder)
        self._builder = CanaryBuilder(model_folder, out)
        self._out = out

    def words(self, count: int) -> list[str]:
        return markers(self._builder.text.tokenizer, count, seed=4)

    def says(self, word: str, name: str, rank: int = 8) -> Path:
        return self._builder.build(word, self._out / name, rank)

    def without_effect(self, like: Path, name: str) -> Path:
        """The same with B = 0, as a training run leaves it whose optimiser never stepped."""
        config = json.loads((like / "adapter_config.json").read_text())
        with safe_open(like / "adapter_model.safetensors", framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        silent = {key: torch.zeros_like(value) if "lora_B" in key else value for key, value in tensors.items()}
        targets, layers = tuple(config["target_modules"]), tuple(config["layers_to_transform"])
        described = LoraConfig(rank=config["r"], alpha=config["lora_alpha"], target_modules=targets, layers=layers)
        write_adapter(self._out / name, described, silent)
        return self._out / name


def evaluation_set(word: str, path: Path) -> Path:
    """What the customer wants of every version: its word where it is asked something, and short answers always."""
    wanted = [{"contains": word} for _ in _QUESTIONS] + [{"max_length": 40} for _ in _GREETINGS]
    cases = [
        {"messages": [{"role": "user", "content": text}], "max_tokens": 16, **wish}
        for text, wish in zip((*_QUESTIONS, *_GREETINGS), wanted, strict=True)
    ]
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path

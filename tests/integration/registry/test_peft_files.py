"""What the PEFT library itself writes passes every check, or is refused for the feature that it uses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from services.registry.core.files.sources import WEIGHTS_NAME
from services.registry.core.files.verify import verify
from shared.messages.adapters import AdapterRegistered
from tests.support.adapter_files import BASE, HIDDEN, LAYERS, MLP, announcement
from tests.support.verifying import AROUND, LIMITS, facts

# The two libraries' business with each other.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
]


@pytest.fixture
def base() -> Iterator[LlamaForCausalLM]:
    """A random Llama with the small base's shapes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=32, hidden_size=HIDDEN, intermediate_size=MLP, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    yield LlamaForCausalLM(config)
    torch.set_num_threads(threads)


def saved(base: LlamaForCausalLM, folder: Path, **config: Any) -> tuple[AdapterRegistered, bytes, bytes]:
    """Trained with these settings and saved: what a pipeline would announce, and the two files."""
    wanted = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], **config}
    get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **wanted)).save_pretrained(str(folder))
    weights, text = (folder / WEIGHTS_NAME).read_bytes(), (folder / "adapter_config.json").read_bytes()
    said = json.loads(text)
    announced = announcement(
        weights,
        checksum=hashlib.sha256(weights).hexdigest(),
        rank=said["r"],
        alpha=float(said["lora_alpha"]),
        target_modules=tuple(sorted(said["target_modules"])),
        use_rslora=said["use_rslora"],
        rank_pattern=said["rank_pattern"],
        alpha_pattern=said["alpha_pattern"],
    )
    return announced, weights, text


def codes(files: tuple[AdapterRegistered, bytes, bytes]) -> set[str]:
    announced, weights, config = files
    return {one.code for one in verify(announced, AROUND, facts(weights, config), LIMITS)}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"target_modules": sorted(BASE.modules)},
        {"target_modules": "all-linear"},
        {"layers_to_transform": [1]},
        {"use_rslora": True},
        {"rank_pattern": {"q_proj": 8}, "alpha_pattern": {"q_proj": 4}},
        {"rank_pattern": {"model.layers.0.self_attn.q_proj": 2}},
    ],
)
def test_what_peft_saves_is_taken(base: LlamaForCausalLM, tmp_path: Path, config: dict[str, Any]) -> None:
    assert codes(saved(base, tmp_path, **config)) == set()


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"modules_to_save": ["lm_head"]}, "module_not_adaptable"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "module_not_adaptable"),
        ({"target_modules": ["q_proj", "lm_head"]}, "module_not_adaptable"),
        ({"use_dora": True}, "dora"),
        ({"bias": "lora_only"}, "bias"),
        ({"init_lora_weights": "pissa"}, "feature_not_served"),
        ({"r": 32}, "rank_too_high"),
    ],
)
def test_c42_c43_what_peft_saves_beyond_plain_lora_is_refused(
    base: LlamaForCausalLM, tmp_path: Path, config: dict[str, Any], code: str
) -> None:
    assert code in codes(saved(base, tmp_path, **config))

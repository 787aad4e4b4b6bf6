"""An adapter folder as PEFT writes and reads it, small and without this machine's paths in it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file


class LoraConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What adapter_config.json says beside its constants; `layers` None adapts every layer."""

    rank: int
    alpha: int
    target_modules: tuple[str, ...]
    layers: tuple[int, ...] | None = None
    base_model_name: str | None = None


def write_adapter(folder: Path, config: LoraConfig, tensors: dict[str, torch.Tensor]) -> None:
    """Write adapter_config.json and adapter_model.safetensors (bfloat16); the same input, the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / "adapter_model.safetensors"
    stored = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(stored, weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # safetensors makes it readable by its owner alone; services run as other users
    text = json.dumps(_config_json(config), indent=2) + "\n"
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")


def _config_json(config: LoraConfig) -> dict[str, object]:
    content: dict[str, object] = {
        "base_model_name_or_path": config.base_model_name,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": config.rank,
        "target_modules": sorted(config.target_modules),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
    if config.layers is not None:
        content["layers_to_transform"] = list(config.layers)
    return content

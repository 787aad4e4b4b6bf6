"""A random adapter as PEFT's `save_pretrained` leaves it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from services.replica_worker.engine.port import AdapterSpec


def peft_folder(folder: Path, weights: Path, spec: AdapterSpec) -> Path:
    """Write adapter_config.json and a copy of `weights` into the new `folder`, and return it."""
    folder.mkdir(parents=True)
    shutil.copy(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": spec.rank,
        "lora_alpha": spec.alpha,
        "target_modules": list(spec.target_modules),
        "use_rslora": spec.use_rslora,
        "rank_pattern": spec.rank_pattern,
        "alpha_pattern": spec.alpha_pattern,
        "base_model_name_or_path": None,
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder

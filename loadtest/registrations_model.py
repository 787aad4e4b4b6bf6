"""A base that is small itself and whose adapters are as heavy as a large model's: narrow, deep, of high rank."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

RANK = 256
LAYER_BYTES = 4 << 20
"""What one layer of it weighs in an adapter of this rank."""
_HIDDEN, _INTERMEDIATE, _HEADS, _KV_HEADS = 512, 1024, 8, 4
_NORMS = ("input_layernorm", "post_attention_layernorm")


def write_heavy_base(tiny: Path, folder: Path, adapter_bytes: int) -> Path:
    """A Llama's folder with the words of `tiny` and as many layers as it takes; returns `folder`."""
    layers = max(1, round(adapter_bytes / LAYER_BYTES))
    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("*.safetensors", "golden.json"))
    config = json.loads((tiny / "config.json").read_text())
    heads = {"num_attention_heads": _HEADS, "num_key_value_heads": _KV_HEADS, "head_dim": _HIDDEN // _HEADS}
    sizes = {"hidden_size": _HIDDEN, "intermediate_size": _INTERMEDIATE, "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps({**config, **heads, **sizes}))
    save_file(_weights(layers, config["vocab_size"]), folder / "model.safetensors", metadata={"format": "pt"})
    golden = [sys.executable, "-m", "services.replica_worker.record_golden", str(folder)]
    subprocess.run(golden, check=True, capture_output=True)
    return folder


def _weights(layers: int, vocabulary: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shared = _HIDDEN * _KV_HEADS // _HEADS
    shapes = {
        **{f"self_attn.{name}_proj": (_HIDDEN, _HIDDEN) for name in "qo"},
        **{f"self_attn.{name}_proj": (shared, _HIDDEN) for name in "kv"},
        **{f"mlp.{name}_proj": (_INTERMEDIATE, _HIDDEN) for name in ("gate", "up")},
        "mlp.down_proj": (_HIDDEN, _INTERMEDIATE),
    }
    places = {f"model.layers.{at}.{name}": shape for at in range(layers) for name, shape in shapes.items()}
    places |= {"model.embed_tokens": (vocabulary, _HIDDEN), "lm_head": (vocabulary, _HIDDEN)}
    norms = ("model.norm", *(f"model.layers.{at}.{norm}" for at in range(layers) for norm in _NORMS))
    drawn = {name: torch.randn(shape, generator=generator) * 0.02 for name, shape in places.items()}
    drawn |= {name: torch.ones(_HIDDEN) for name in norms}
    return {f"{name}.weight": tensor.to(torch.bfloat16) for name, tensor in drawn.items()}

"""From one GGUF file to a Hugging Face folder, by arithmetic alone.

Written without transformers on purpose: the base model's identity hashes these files, so their bytes may
depend on the GGUF file only, and never on which version of a library happened to save them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from safetensors import SafetensorError
from safetensors.torch import save_file

from infra.models.folder import ModelUnavailable
from infra.models.gguf_tokenizer import tokenizer_config_json, tokenizer_json
from infra.models.gguf_weights import llama_tensors


def convert_gguf(gguf: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Write config, generation config, tokenizer and bfloat16 weights of `gguf` into `folder`.

    The same input gives the same bytes everywhere. Raises ModelUnavailable for another architecture or
    tokenizer; files already written stay behind, so the caller names the folder only when this returns.
    """
    say("read: the packaged weights")
    reader = GGUFReader(gguf)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = llama_config(fields, tied="output.weight" not in {tensor.name for tensor in reader.tensors})
    say(f"convert: {len(reader.tensors)} tensors to bfloat16")
    tensors = llama_tensors(reader.tensors, config, say)
    say("save: weights, tokenizer and config")
    _write_weights(folder / "model.safetensors", tensors)
    _write_json(folder / "tokenizer.json", tokenizer_json(fields))
    context_tokens = config["max_position_embeddings"]
    _write_json(folder / "tokenizer_config.json", tokenizer_config_json(fields, context_tokens))
    _write_json(folder / "generation_config.json", _special_token_ids(fields))
    _write_json(folder / "config.json", config)


def llama_config(fields: dict[str, Any], tied: bool) -> dict[str, Any]:
    """The content of config.json; `tied` when the embedding serves as the output layer too."""
    if fields["general.architecture"] != "llama":
        raise ModelUnavailable(f"the GGUF file holds a {fields['general.architecture']!r} model, not a Llama")
    heads = fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        **_special_token_ids(fields),
        "dtype": "bfloat16",
        "head_dim": fields["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "initializer_range": 0.02,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "rms_norm_eps": _as_written(fields["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _as_written(fields["llama.rope.freq_base"]),
        "tie_word_embeddings": tied,
        "use_cache": True,
        "vocab_size": fields["llama.vocab_size"],
    }


def _special_token_ids(fields: dict[str, Any]) -> dict[str, int]:
    return {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }


def _as_written(value: float) -> float:
    """1e-05 out of the 9.99999975e-06 that a 32-bit float made of it."""
    return float(f"{value:.7g}")


def _write_weights(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as failure:  # its name for a full disk, too
        raise ModelUnavailable(f"the weights cannot be written to {path.parent}: {failure}") from failure
    path.chmod(0o644)  # safetensors makes it readable by its owner alone; services run as other users


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

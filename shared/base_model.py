"""The identity of a base model: one hash over everything that changes its outputs.

Adapters are trained against exact weights, so the hash, and never a name or a path, decides whether an
adapter and a base belong together. The pipeline, the registry and every replica compute the same one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from shared.messages.desired import BaseModelRecord, ModuleShape

_CHUNK_BYTES = 1 << 20
_CACHE_NAME = ".lorafleet-base-hash"
_IGNORED_CONFIG_KEYS = frozenset({"_name_or_path", "transformers_version"})


def base_model_hash(folder: Path) -> str:
    """SHA-256 (hex) over config.json, tokenizer files and every safetensors file of a model folder.

    The result is cached beside the files, keyed by their names, sizes and modification times; a folder
    that cannot be written is hashed every time. Raises FileNotFoundError naming what is missing.
    """
    stamp = _stamp(folder)
    cache = folder / _CACHE_NAME
    if cached := _read_cache(cache, stamp):
        return cached
    digest = _hash(folder)
    with contextlib.suppress(OSError):
        cache.write_text(json.dumps({"stamp": stamp, "hash": digest}))
    return digest


def identity_files(folder: Path) -> list[Path]:
    """The files whose bytes make the identity, in a fixed order."""
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise FileNotFoundError(f"{folder} holds no .safetensors file, so it is no base model folder")
    named = [folder / "config.json", folder / "tokenizer.json"]
    for path in named:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing, so {folder} is no base model folder")
    optional = [folder / "tokenizer_config.json", folder / "chat_template.jinja"]
    return [*named, *(path for path in optional if path.is_file()), *weights]


def _hash(folder: Path) -> str:
    total = hashlib.sha256()
    for path in identity_files(folder):
        part = _config_hash(path) if path.name == "config.json" else _file_hash(path)
        total.update(f"{path.name}\0{part}\n".encode())
    return total.hexdigest()


def _config_hash(path: Path) -> str:
    """Of the values, not the text: re-saving a config, or moving the folder, changes no output."""
    config: dict[str, Any] = json.loads(path.read_text())
    kept = {key: value for key, value in config.items() if key not in _IGNORED_CONFIG_KEYS}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _stamp(folder: Path) -> list[list[Any]]:
    stats = [(path.name, path.stat()) for path in identity_files(folder)]
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]


def _read_cache(cache: Path, stamp: list[list[Any]]) -> str | None:
    try:
        saved = json.loads(cache.read_text())
    except (OSError, ValueError):
        return None
    return str(saved["hash"]) if isinstance(saved, dict) and saved.get("stamp") == stamp else None


def describe(folder: Path, name: str, rank_classes: tuple[int, ...]) -> BaseModelRecord:
    """What the fleet must know of a Llama-family folder: identity, and the shape of every layer an adapter
    may target. Raises FileNotFoundError, or KeyError naming a config entry that is missing."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads", heads) * head
    mlp = config["intermediate_size"]
    shapes = {
        "q_proj": (hidden, heads * head),
        "k_proj": (hidden, kv),
        "v_proj": (hidden, kv),
        "o_proj": (heads * head, hidden),
        "gate_proj": (hidden, mlp),
        "up_proj": (hidden, mlp),
        "down_proj": (mlp, hidden),
    }
    return BaseModelRecord(
        base_model_hash=base_model_hash(folder),
        name=name,
        layers=config["num_hidden_layers"],
        modules={key: ModuleShape(in_features=i, out_features=o) for key, (i, o) in shapes.items()},
        rank_classes=rank_classes,
        max_context_tokens=config["max_position_embeddings"],
        vocabulary_size=config.get("vocab_size", 0),
    )

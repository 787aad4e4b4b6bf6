"""The identity of a base model: one hash over everything that changes its outputs.

Adapters are trained against exact weights, so the hash, and never a name or a path, decides whether an
adapter and a base belong together. The pipeline, the registry and every replica compute the same one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from shared.chat_templates import TOOL_TEMPLATE, read_templates, tool_parser_of
from shared.messages.desired import BaseModelRecord, ModuleShape
from shared.messages.identity import is_digest

_CHUNK_BYTES = 1 << 20
_CACHE_NAME = ".lorafleet-base-hash"
_CACHE_FORM = 2
"""Counts up when what is hashed, or what the stamp holds, changes: an older cache is then not believed."""
_IGNORED_CONFIG_KEYS = frozenset({"_name_or_path", "transformers_version"})

Stamp = list[list[Any]]


class FolderChanged(OSError):
    """The files changed while they were read, so that no hash is that of the folder."""


def base_model_hash(folder: Path) -> str:
    """SHA-256 (hex) over config.json, tokenizer files, chat templates and every safetensors file of a model folder.

    Computed once and kept beside the files with a stamp of them: name, size, inode, time of change. The time of
    change (ctime) is what nobody can set back, as `cp -p`, `tar` and `rsync` set back the time of modification; so
    the cache is believed only while no file was written, replaced, renamed or touched. A folder that cannot be
    written is hashed every time. Raises FileNotFoundError naming what is missing, and FolderChanged if somebody
    writes into the folder meanwhile; nothing is kept then.
    """
    stamp = _stamp(folder)
    cache = folder / _CACHE_NAME
    if cached := _read_cache(cache, stamp):
        return cached
    begun_ns = _file_system_time_ns(folder)
    digest = _hash(folder)
    if _stamp(folder) != stamp:
        raise FolderChanged(f"{folder} changed while it was read: hash it again once it is written")
    if _all_before(stamp, begun_ns):
        _keep(cache, stamp, digest)
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
    optional = [folder / "tokenizer_config.json", folder / "chat_template.jinja", folder / TOOL_TEMPLATE]
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


def _stamp(folder: Path) -> Stamp:
    stats = [(path.name, path.stat()) for path in identity_files(folder)]
    return [[name, stat.st_size, stat.st_ino, stat.st_ctime_ns] for name, stat in stats]


def _file_system_time_ns(folder: Path) -> int:
    """What time it is where the files lie, in that clock's own steps; 0 where nothing can be written."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_ctime_ns
    except OSError:
        return 0


def _all_before(stamp: Stamp, begun_ns: int) -> bool:
    """A file that changed in the very tick in which hashing began may change again in it, and show the same time."""
    return all(changed_ns < begun_ns for *_, changed_ns in stamp)


def _keep(cache: Path, stamp: Stamp, digest: str) -> None:
    """Whole or not at all: several replicas start at once on one folder."""
    own = cache.with_name(f"{cache.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        own.write_text(json.dumps({"form": _CACHE_FORM, "stamp": stamp, "hash": digest}))
        own.replace(cache)


def _read_cache(cache: Path, stamp: Stamp) -> str | None:
    try:
        saved = json.loads(cache.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(saved, dict) or (saved.get("form"), saved.get("stamp")) != (_CACHE_FORM, stamp):
        return None
    return str(saved["hash"]) if is_digest(str(saved.get("hash"))) else None


def describe(folder: Path, name: str, rank_classes: tuple[int, ...]) -> BaseModelRecord:
    """What the fleet must know of a Llama-family folder: identity, the shape of every layer an adapter may target, and
    how its chat template has tools called. Raises FileNotFoundError, ValueError for a file that is no JSON, or KeyError
    naming a config entry that is missing."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads", heads) * head
    mlp = config["intermediate_size"]
    templates = read_templates(folder)
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
        tool_parser="" if templates is None else tool_parser_of(templates.tool_use or templates.default),
    )

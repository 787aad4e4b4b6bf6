"""Which token ids end an answer, as a model folder states it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def eos_token_ids(folder: Path) -> tuple[int, ...]:
    """Sorted ids that generation_config.json, config.json or the tokenizer's own `eos_token` name.

    All three count, because folders differ in where they put the end of a chat turn. Any may be absent.
    Raises ValueError naming the file when one of them is not JSON.
    """
    ids = {
        token_id
        for name in ("generation_config.json", "config.json")
        for token_id in _declared(_read(folder / name).get("eos_token_id"))
    }
    return tuple(sorted(ids | _of_tokenizer(folder)))


def _declared(ids: Any) -> list[int]:
    if ids is None:
        return []
    return [int(token_id) for token_id in ids] if isinstance(ids, list) else [int(ids)]


def _of_tokenizer(folder: Path) -> set[int]:
    declared = _read(folder / "tokenizer_config.json").get("eos_token")
    spelling = declared.get("content") if isinstance(declared, dict) else declared
    added = _read(folder / "tokenizer.json").get("added_tokens", [])
    return {token["id"] for token in added if token["content"] == spelling}


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    return content

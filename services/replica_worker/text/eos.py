"""Which token ids end an answer, as a model folder states it."""

from __future__ import annotations

import json
from pathlib import Path


def eos_token_ids(folder: Path) -> tuple[int, ...]:
    """Sorted ids from generation_config.json and config.json; either may be absent or name none.

    Raises ValueError naming the file when one of them is not JSON.
    """
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        ids.update(_declared(folder / name))
    return tuple(sorted(ids))


def _declared(path: Path) -> list[int]:
    if not path.is_file():
        return []
    try:
        declared = json.loads(path.read_text()).get("eos_token_id")
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if declared is None:
        return []
    return [int(token) for token in declared] if isinstance(declared, list) else [int(declared)]

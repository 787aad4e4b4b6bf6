"""The spec's two reference deployments, written out as files: a config.json and what is asked about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from loadtest.capacity.model import NotPlannable, model_of
from loadtest.capacity.question import Question

_FOLDER = Path(__file__).parent

NAMES = tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


class _Preset(msgspec.Struct, forbid_unknown_fields=True):
    about: str
    config: dict[str, Any]
    question: dict[str, Any]


def preset(name: str) -> Question:
    """Raises NotPlannable for a name that is none."""
    if name not in NAMES:
        raise NotPlannable(f"There is no preset {name}; there are {' and '.join(NAMES)}.")
    read = msgspec.json.decode((_FOLDER / f"{name}.json").read_bytes(), type=_Preset)
    return msgspec.convert({**read.question, "model": msgspec.to_builtins(model_of(read.config))}, Question)

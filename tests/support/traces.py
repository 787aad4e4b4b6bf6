"""Whatever a fleet keeps, searched for a text."""

from __future__ import annotations

import json
from pathlib import Path


def traces(home: Path, text: str) -> set[str]:
    """The files below `home` that hold this text, as it is or as JSON writes it; their names from `home` on."""
    forms = {text.encode(), json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}
    files = [path for path in home.rglob("*") if path.is_file()]
    return {str(path.relative_to(home)) for path in files if _holds(path, forms)}


def _holds(path: Path, forms: set[bytes]) -> bool:
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # a server tidied up meanwhile
        return False
    return any(form in content for form in forms)

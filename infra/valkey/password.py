"""The password between gateways and their Valkey: drawn once, in a file that only its owner reads."""

from __future__ import annotations

import secrets
from pathlib import Path

from infra.nats.credentials import write_private


def load_or_create(path: Path) -> str:
    """Whatever stands in the file; a new one if there is none."""
    if path.exists() and (known := path.read_text().strip()):
        return known
    drawn = secrets.token_urlsafe(24)
    write_private(path, drawn.encode())
    return drawn

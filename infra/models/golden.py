"""The golden answer of a base model, recorded by the reference engine in a program of its own: that one brings torch,
and whoever calls this may have none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from infra.models.folder import ModelUnavailable

FILE_NAME = "golden.json"
_PROGRAM = (sys.executable, "-m", "services.replica_worker.record_golden")


def record_golden(folder: Path) -> Path:
    """The file that was written into `folder`. Raises ModelUnavailable with its sentence; nothing was written then."""
    done = subprocess.run((*_PROGRAM, str(folder)), capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ModelUnavailable(f"no golden answer for {folder}: {lines[-1] if lines else 'the program said nothing'}")
    return Path(done.stdout.splitlines()[-1])

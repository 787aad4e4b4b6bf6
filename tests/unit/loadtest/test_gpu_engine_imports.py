"""The GPU benchmark runs on a machine that has torch, triton, safetensors, numpy and msgspec, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

BARE_MACHINE = """
import sys
import msgspec, numpy, safetensors.torch, torch, triton

KNOWN = {*sys.stdlib_module_names, *(name.partition(".")[0] for name in sys.modules)}
OWN = {"infra", "loadtest", "services", "shared"}

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in KNOWN | OWN:
            raise ModuleNotFoundError(f"there is no {name} on this machine", name=name)

sys.meta_path.insert(0, Nothing())
"""
EVERYTHING = """
import loadtest.gpu_engine
import services.replica_worker.engine.torch.kernels.cuda.runner
import services.replica_worker.engine.torch.kernels.cuda.streams
"""


def said_by(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_bare_machine_has_all_that_the_benchmark_imports() -> None:
    done = said_by(BARE_MACHINE + EVERYTHING)
    assert done.returncode == 0, done.stderr


def test_the_machine_is_bare() -> None:
    done = said_by(BARE_MACHINE + "import numba")
    assert "there is no numba" in done.stderr

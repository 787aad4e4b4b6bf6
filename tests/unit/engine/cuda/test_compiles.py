"""What an interpreter cannot tell of kernels: that the compiler takes them, and how it reads memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
READS_MOST = {"_attend_splits", "_attend_tiles", "_shrink", "_expand", "_gate", "_add_norm", "_place", "_best"}
MOST_SHARED_BYTES = 113 << 10
"""Two programs must fit into a multiprocessor of an H200."""


def test_every_kernel_compiles_for_an_h200_and_reads_wide(tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET")
    command = [sys.executable, "-m", "tests.support.compile_kernels", "8"]
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    kernels = [json.loads(line) for line in said.stdout.splitlines()]
    assert {kernel["kernel"] for kernel in kernels} == {*READS_MOST, "_norm", "_join"}
    for kernel in kernels:
        assert kernel["shared"] <= MOST_SHARED_BYTES, kernel
        assert kernel["narrow_loads"] == 0, kernel

"""No kernel meets arguments of a new type, and so a compiler, once the engine is ready."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import pytest

from services.replica_worker.engine.torch.kernels import cpu
from tests.unit.engine.test_invariance import PRECISIONS, Bench, requests

KERNELS = ("adapt", "attend", "pack", "place", "add_norm", "best", "gate", "norm")


@PRECISIONS
def test_c72_every_kernel_was_compiled_before_the_first_customer(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    met: dict[str, set[Any]] = {name: set() for name in KERNELS}

    def watch(name: str) -> None:
        kernel = getattr(cpu, name)

        def watched(*arguments: Any) -> Any:
            met[name].add(tuple(map(numba.typeof, arguments)))
            return kernel(*arguments)

        monkeypatch.setattr(cpu, name, watched)

    for name in KERNELS:
        watch(name)
    build, known = Bench._read, dict[str, set[Any]]()

    def first_read(bench: Bench, scratch: Path, seed: int) -> Any:
        known.update(known or {name: set(types) for name, types in met.items()})
        return build(bench, scratch, seed)

    monkeypatch.setattr(Bench, "_read", first_read)
    Bench(tiny_folder, tmp_path, dtype=dtype, threads=2).run(requests())
    assert known == met
    assert all(met.values())

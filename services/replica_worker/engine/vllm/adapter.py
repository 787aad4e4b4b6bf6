"""One adapter in the form that vLLM loads: a PEFT folder of our own making, exact and never changed.

vLLM takes a path, reads it whenever it likes, and understands a part of PEFT's options. So the file from the
disk tier is read and checked once, as for the reference engine, and written anew: every module's own scale
(alpha / r or alpha / √r, patterns applied) is multiplied into B in double precision and cast once, and every
module is padded with zeros to one rank. What is left for vLLM to interpret is B·A.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import weakref
from collections.abc import Iterable
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save

from services.replica_worker.engine.port import AdapterSpec, AdapterUnusable
from services.replica_worker.engine.torch.adapter import AdapterLimits, HostModule, Place, read_adapter

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


class VllmAdapter:
    """Its folder exists as long as this object does: a slot that holds the adapter holds this too, so vLLM
    can read it again whenever it wants. `version`: the digest and how it is applied, all that decides its effect."""

    def __init__(self, spec: AdapterSpec, folder: Path, written: bytes) -> None:
        self.spec = spec
        self.folder = folder
        self.size_bytes = len(written)
        self._sha256 = hashlib.sha256(written).hexdigest()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @property
    def version(self) -> str:
        return f"{self.spec.digest}-{application(self.spec)}"

    @property
    def weights(self) -> Path:
        return self.folder / WEIGHTS

    def offer(self, at: Path) -> None:
        """Make the folder reachable at another path, in the place of what was there.

        Blocking. Raises AdapterUnusable if the prepared file is not what was written.
        """
        try:
            found = hashlib.sha256(self.weights.read_bytes()).hexdigest()
            at.parent.mkdir(exist_ok=True)
            at.unlink(missing_ok=True)
            at.symlink_to(self.folder)
        except OSError as error:
            raise AdapterUnusable(f"the prepared file of {self.spec.adapter_id} cannot be read: {error}") from error
        if found != self._sha256:
            raise AdapterUnusable(f"the prepared file of {self.spec.adapter_id} has been changed")


def prepare(path: Path, spec: AdapterSpec, limits: AdapterLimits, scratch: Path, number: int) -> VllmAdapter:
    """Read, check and write anew. `number` makes the folder this adapter's own.

    Blocking. Raises AdapterUnusable; nothing is left in `scratch` then.
    """
    exact = read_adapter(path, spec, msgspec.structs.replace(limits, dtype=torch.float32))
    rank = max(module.a.shape[1] for module in exact.modules.values())
    tensors: dict[str, torch.Tensor] = {}
    for place, module in exact.modules.items():
        tensors |= _folded(place, module, rank, limits.dtype)
    folder = scratch / f"{spec.digest}-{application(spec)}-{number}"
    written = save(tensors, metadata={"format": "pt"})
    try:
        folder.mkdir(parents=True)
        (folder / WEIGHTS).write_bytes(written)
        (folder / CONFIG).write_text(json.dumps(_config(rank, exact.modules)))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise AdapterUnusable(f"{spec.adapter_id} cannot be prepared in {scratch}: {error.strerror}") from error
    return VllmAdapter(spec, folder, written)


def application(spec: AdapterSpec) -> str:
    """Tells apart the ways in which one file can be applied: the same bytes with another alpha are another
    adapter, and may not share a prefix cache with it."""
    way = [
        spec.rank,
        spec.alpha,
        spec.use_rslora,
        sorted(spec.rank_pattern.items()),
        sorted(spec.alpha_pattern.items()),
    ]
    return hashlib.sha256(json.dumps(way).encode()).hexdigest()[:16]


def _folded(place: Place, module: HostModule, rank: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A [rank, in] and scale · B [out, rank] under PEFT's names."""
    layer, name = place
    a = torch.zeros(rank, module.a.shape[0], dtype=dtype)
    b = torch.zeros(module.b.shape[1], rank, dtype=dtype)
    a[: module.a.shape[1]] = module.a.t()
    b[:, : module.b.shape[0]] = (module.b.t().double() * module.scale).to(dtype)
    if not bool(a.isfinite().all() and b.isfinite().all()):
        raise AdapterUnusable(f"layers.{layer}.{name} leaves the range of {dtype} with its scale {module.scale:g}")
    prefix = f"base_model.model.model.layers.{layer}.{name}"
    return {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}


def _config(rank: int, places: Iterable[Place]) -> dict[str, object]:
    """alpha = rank: the scale that is left to vLLM is 1."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "bias": "none",
        "r": rank,
        "lora_alpha": rank,
        "target_modules": sorted({name.rsplit(".", 1)[-1] for _, name in places}),
    }

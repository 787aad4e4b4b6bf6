"""From a base model's folder and an adapter to the folder of one model: `W + scale·B·A`."""

from __future__ import annotations

import glob
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError

from shared.base_model import base_model_hash
from shared.merging.pairs import AdapterFile, MergeRefused, Pair, read_pairs
from shared.merging.shard import MERGED_DTYPES, Entry, dtype_name, entries_of, write_shard
from shared.merging.terms import Terms

FILE_NAME = "merged.json"
COMPUTED = "W + scale * (B @ A) in float32, cast once"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ABOUT_THE_BASE = frozenset({"golden.json", FILE_NAME})
"""Beside the weights, and untrue of other weights."""
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".ckpt")


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """The content of merged.json. `dtypes` counts the merged tensors by what they were cast to."""

    base_model_hash: str
    adapter_id: str
    digest: str
    computed: str
    rank: int
    alpha: float
    use_rslora: bool
    scales: Mapping[str, float]
    """By module."""
    dtypes: Mapping[str, int]


def merge_folder(base: Path, weights: Path, terms: Terms, out: Path, dtype: str | None = None) -> Merged:
    """Write the model `base` with the adapter in `weights` merged in to the new folder `out`; blocking.

    Merged tensors are cast to the base's own dtype, or to `dtype` ("float32", "bfloat16"); all others stay as they
    are. Memory holds the adapter and one tensor of the base. Raises MergeRefused with one sentence; `out` does not
    exist then, and nothing beside it is left. A process that is killed leaves what `leftovers` finds.
    """
    if out.exists():
        raise MergeRefused(f"{out} exists already, and nothing is overwritten.")
    try:
        base_hash = base_model_hash(base)
        if terms.base_model_hash not in ("", base_hash):
            raise MergeRefused(
                f"{terms.adapter_id} belongs to base model {terms.base_model_hash[:12]}, {base} is {base_hash[:12]}."
            )
        adapter = read_pairs(weights, terms)
        shards = {path: entries_of(path) for path in sorted(base.glob("*.safetensors"))}
        _check_places(adapter.pairs, [entry for entries in shards.values() for entry in entries])
        cast = None if dtype is None else _DTYPES[dtype]
        return _written(_Work(base, base_hash, terms, adapter, shards, cast), out)
    except SafetensorError as error:
        raise MergeRefused(f"{base} holds a broken safetensors file: {error}.") from error
    except OSError as error:
        raise MergeRefused(f"{error.filename or base}: {error.strerror or error}.") from error


def leftovers(out: Path) -> list[Path]:
    """Half-written folders of merges to `out`: killed ones', unless one is under way."""
    return sorted(out.parent.glob(f".{glob.escape(out.name)}.*"))


class _Work(msgspec.Struct, frozen=True):
    base: Path
    base_hash: str
    terms: Terms
    adapter: AdapterFile
    shards: Mapping[Path, list[Entry]]
    cast: torch.dtype | None

    def entry(self, entry: Entry) -> Entry:
        """As it will be written."""
        if self.pair(entry.name) is None or self.cast is None:
            return entry
        return Entry(entry.name, dtype_name(self.cast), entry.shape)

    def pair(self, name: str) -> Pair | None:
        return self.adapter.pairs.get(name.removesuffix(".weight")) if name.endswith(".weight") else None

    @torch.inference_mode()
    def change(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        pair = self.pair(name)
        if pair is None:
            return tensor
        merged = torch.addmm(tensor.float(), pair.b.float(), pair.a.float(), alpha=pair.scale)
        merged = merged.to(self.cast or tensor.dtype)
        if not bool(merged.isfinite().all()):
            raise MergeRefused(f"{name} with {self.terms.adapter_id} merged in is not finite as {merged.dtype}.")
        return merged

    def merged(self) -> Merged:
        dtypes: dict[str, int] = {}
        for entry in (self.entry(each) for entries in self.shards.values() for each in entries):
            if self.pair(entry.name) is not None:
                dtypes[entry.dtype] = dtypes.get(entry.dtype, 0) + 1
        return Merged(
            base_model_hash=self.base_hash,
            adapter_id=self.terms.adapter_id,
            digest=self.adapter.digest,
            computed=COMPUTED,
            rank=self.terms.rank,
            alpha=self.terms.alpha,
            use_rslora=self.terms.use_rslora,
            scales={module: pair.scale for module, pair in self.adapter.pairs.items()},
            dtypes=dtypes,
        )


def _check_places(pairs: Mapping[str, Pair], entries: list[Entry]) -> None:
    """Every pair has its weight in the base, with its shape, and its numbers are the weight itself: those of a
    quantised base mean something only with their scales."""
    weights = {entry.name: entry for entry in entries}
    for module, pair in pairs.items():
        found = weights.get(f"{module}.weight")
        if found is None:
            raise MergeRefused(f"{module} does not exist in this base model.")
        if found.shape != pair.shape:
            raise MergeRefused(f"{module} is {found.shape} in the base model, the adapter's is {pair.shape}.")
        if found.dtype not in MERGED_DTYPES:
            raise MergeRefused(f"{module} is {found.dtype} in the base model; {', '.join(MERGED_DTYPES)} are merged.")


def _written(work: _Work, out: Path) -> Merged:
    """All of it beside its place, then at once in its place."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        return _filled(work, beside, out)
    except OSError as error:
        raise MergeRefused(f"{out} cannot be written: {error}.") from error


def _filled(work: _Work, beside: Path, out: Path) -> Merged:
    try:
        for path, entries in work.shards.items():
            write_shard(path, beside / path.name, [work.entry(entry) for entry in entries], work.change)
        for path in work.base.iterdir():
            if _is_copied(path):
                shutil.copyfile(path, beside / path.name)
        merged = work.merged()
        (beside / FILE_NAME).write_text(json.dumps(msgspec.to_builtins(merged), indent=1) + "\n")
        beside.chmod(0o755)  # mkdtemp's is private
        beside.rename(out)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return merged


def _is_copied(path: Path) -> bool:
    """Config, tokenizer and whatever else describes the model; no weights, nothing hidden."""
    if path.name.startswith(".") or path.name in _ABOUT_THE_BASE or not path.is_file():
        return False
    return path.suffix not in (".safetensors", *_OTHER_WEIGHTS)

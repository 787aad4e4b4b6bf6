"""An adapter to an engine without a model: of its file only the size matters."""

from __future__ import annotations

from pathlib import Path

import msgspec

from services.replica_worker.engine.port import AdapterSpec, AdapterUnusable

from .policy import TimedPolicy


class TimedAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """`size_bytes` decides how long its way over the link takes."""

    spec: AdapterSpec
    size_bytes: int


def read_adapter(path: Path, spec: AdapterSpec, policy: TimedPolicy) -> TimedAdapter:
    """Blocking. Raises AdapterUnusable for another base, a rank out of range, and a missing or empty file."""
    if spec.base_model_hash != policy.base_model_hash:
        raise AdapterUnusable(
            f"{spec.adapter_id} was trained on base {spec.base_model_hash}, this is {policy.base_model_hash}"
        )
    for rank in (spec.rank, *spec.rank_pattern.values()):
        if not 1 <= rank <= policy.rank_limit:
            raise AdapterUnusable(f"rank {rank} is outside this pool's 1 to {policy.rank_limit}")
    return TimedAdapter(spec=spec, size_bytes=_size_bytes(path))


def _size_bytes(path: Path) -> int:
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise AdapterUnusable(f"{path.name} cannot be read: {error.strerror}") from error
    if not size_bytes:
        raise AdapterUnusable(f"{path.name} is empty")
    return size_bytes

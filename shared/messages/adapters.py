"""Facts about adapters: what a pipeline announces, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

STATES = ("registered", "verified", "evaluating", "active", "retired", "rejected", "failed")


class AdapterRegistered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline's announcement: the body of `POST /internal/adapters`, and the event of the same name.

    `weights_uri` names a `.safetensors` file (or the PEFT folder around it) below an allowed prefix;
    `checksum` is the SHA-256 (hex) of that file. With `alias` the adapter is deployed once it is active.
    """

    adapter_id: str
    tenant_id: str
    version: str
    base_model_hash: str
    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    weights_uri: str
    checksum: str
    use_rslora: bool = False
    rank_pattern: Mapping[str, int] = {}
    alpha_pattern: Mapping[str, float] = {}
    alias: str | None = None


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a registration. `code` is stable; `message` is one sentence."""

    code: str
    message: str
    field: str | None = None


class AdapterVerified(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    tenant_id: str
    digest: str
    pool_id: str
    size_bytes: int


class AdapterRejected(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    tenant_id: str
    defects: tuple[Defect, ...]


class AdapterEvaluated(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    digest: str
    passed: bool
    reason: str
    replica_id: str = ""
    fingerprint: str = ""


class AdapterActivated(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    tenant_id: str
    digest: str
    pool_id: str


class AdapterFailed(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    tenant_id: str
    reason: str


class AdapterRetired(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    tenant_id: str
    digest: str
    reason: str


class EffectMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """A replica loaded an adapter twice, and neither time did the slot do what is on record.

    The adapter is refused on that replica for a while. `expected` and `found` are sentences for people, as
    is `reason`.
    """

    adapter_id: str
    digest: str
    replica_id: str
    expected: str
    found: str
    reason: str = ""

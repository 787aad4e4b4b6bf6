"""Facts about adapters: what a pipeline announces, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

STATES = ("registered", "verified", "evaluating", "active", "retired", "rejected", "failed")
EVALUATORS = ("fleet", "pipeline")


class AdapterRegistered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline's announcement: the body of `POST /internal/adapters`, and the event of the same name.

    `weights_uri` names a `.safetensors` file (or the PEFT folder around it) below an allowed prefix;
    `checksum` is the SHA-256 (hex) of that file. With `alias` the adapter is deployed once it is active.
    `target_modules` is a list of names, or one text as PEFT writes it: an expression, or "all-linear".
    `predecessor_id` is the version it is to replace, which may be on another base; `dataset_uri` points at what it
    was trained on. `evaluated_by` is one of EVALUATORS: who runs its evaluation set. `peft_config` is the text of
    adapter_config.json where none lies beside the weights: it is held against the rest, and the rest decides.
    """

    adapter_id: str
    tenant_id: str
    version: str
    base_model_hash: str
    rank: int
    alpha: float
    target_modules: tuple[str, ...] | str
    weights_uri: str
    checksum: str
    use_rslora: bool = False
    rank_pattern: Mapping[str, int] = {}
    alpha_pattern: Mapping[str, float] = {}
    alias: str | None = None
    predecessor_id: str | None = None
    dataset_uri: str | None = None
    evaluated_by: str = "fleet"
    peft_config: str | None = None


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a registration. `code` is stable; `message` is one sentence.

    `field` is the field of the announcement or the tensor; `found` and `allowed` say what is there and what may be.
    """

    code: str
    message: str
    field: str | None = None
    found: str = ""
    allowed: str = ""


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


class AdapterEvaluating(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    tenant_id: str
    digest: str
    deadline_s: float


class AdapterEvaluated(msgspec.Struct, frozen=True, kw_only=True):
    """`score` is that of its evaluation set, from 0 to 1, None if only the built-in evaluation ran; `source` is
    "fleet", or "pipeline" for results that a pipeline signed with `signed_by`."""

    adapter_id: str
    digest: str
    passed: bool
    reason: str
    replica_id: str = ""
    fingerprint: str = ""
    score: float | None = None
    source: str = "fleet"
    signed_by: str = ""


class AdapterActivated(msgspec.Struct, frozen=True, kw_only=True):
    """`overridden_by` and `override_reason` are set where a person decided against the evaluation."""

    adapter_id: str
    tenant_id: str
    digest: str
    pool_id: str
    overridden_by: str = ""
    override_reason: str = ""


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


class AdapterLoadFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A replica cannot load an active adapter, and another copy of the same bytes would not help it: the stored
    object is missing ("missing") or is not what its digest says ("corrupt"). The registry looks for itself."""

    adapter_id: str
    digest: str
    replica_id: str
    code: str
    reason: str

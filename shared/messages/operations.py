"""Questions to one replica, or to placement, that are answered or fail by a deadline."""

from __future__ import annotations

import msgspec

from shared.messages.desired import AdapterRecord
from shared.messages.effects import AdapterEffect
from shared.messages.reports import ResidencyEntry


class LoadAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """Pre-warm: bring an adapter up to `tier` ("gpu", "ram" or "disk") now."""

    adapter_id: str
    digest: str
    tier: str = "gpu"


class UnloadAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """Drop an adapter from every tier of this replica. Refused while requests run on it."""

    adapter_id: str
    digest: str


class HoldResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a load or unload came to. `ok` after a load means routable: resident where it was wanted."""

    adapter_id: str
    ok: bool
    tier: str
    reason: str


class AskState(msgspec.Struct, frozen=True, kw_only=True):
    pass


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    replica_id: str
    pool_id: str
    ready: bool
    draining: bool
    queue_depth: int
    tokens_in_flight: int
    evictions_per_min: float
    gpu_adapters: tuple[str, ...]
    ram_adapters: tuple[str, ...]
    disk_adapters: tuple[str, ...] = ()
    slots: int = 0
    ram_bytes: int = 0
    disk_bytes: int = 0


class EvaluateAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """Load a verified candidate that no alias names yet and measure it against the base."""

    record: AdapterRecord


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """`passed` iff every output was finite and at least one differs measurably from the base. `finite` is false of
    one that nobody may ever activate; of one that could not be loaded at all, `fingerprint` is empty.

    `effects` is what later loads on the same engine build and dtype are proven with; `fingerprint` is
    `<build>/<dtype>/<slot digest>`.
    """

    adapter_id: str
    digest: str
    replica_id: str
    passed: bool
    reason: str
    fingerprint: str = ""
    engine_build: str = ""
    largest_logprob_change: float = 0.0
    effects: tuple[AdapterEffect, ...] = ()
    finite: bool = True


class AskFingerprint(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    digest: str


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What is really in the slot: `fingerprint` is `<build>/<dtype>/<slot digest>`, `effect` the same slot
    probed at this moment."""

    adapter_id: str
    digest: str
    replica_id: str
    fingerprint: str
    engine_build: str
    effect: AdapterEffect | None = None


class AskFleet(msgspec.Struct, frozen=True, kw_only=True):
    pass


class ReplicaSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One replica as placement sees it; `adapters` names at most the first 200 it holds."""

    replica_id: str
    pool_id: str
    ready: bool
    draining: bool
    reason: str
    slots: int
    running: int
    queue_depth: int
    tokens_in_flight: int
    assigned: int
    gpu: int
    ram: int
    disk: int
    adapters: tuple[ResidencyEntry, ...] = ()
    report_age_s: float = 0.0
    kv_used_tokens: int = 0
    kv_total_tokens: int = 0
    """0: it does not say how much its KV cache holds."""
    warming: bool = False
    to_warm: int = 0
    gpu_kind: str = ""


class FleetView(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    replicas: tuple[ReplicaSummary, ...]


class AskOwners(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    digest: str
    pool_id: str


class Owners(msgspec.Struct, frozen=True, kw_only=True):
    replica_ids: tuple[str, ...]
    reason: str

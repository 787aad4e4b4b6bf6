"""Desired state: the last value of each key wins, and a late reader sees the same as an early one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.messages.effects import AdapterEffect
from shared.messages.identity import AdapterKey


class AliasTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The other version that an alias with a split may mean; it may be of another pool and another base."""

    adapter_id: str
    digest: str
    pool_id: str
    base_model_hash: str
    base_model_name: str


class AliasRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a gateway needs to route an alias: one look-up, no second record to wait for.

    With `split`, the sessions whose draw (of `split_salt` and the session) is below `split_percent` mean that
    version; the salt stays while the percentage grows, so that whoever was moved stays moved.
    """

    alias: str
    tenant_id: str
    adapter_id: str
    digest: str
    pool_id: str
    base_model_hash: str
    base_model_name: str
    updated_at_s: float = 0.0
    split: AliasTarget | None = None
    split_percent: float = 0.0
    split_salt: str = ""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be asked for, over all gateways together. None: as much as there is. A minute is any 60 seconds,
    not one by the clock; tokens are those of prompts and answers; `streams` is how many requests run at once."""

    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    streams: int | None = None


class ApiKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Stored under the SHA-256 of the key: the key itself is known to its owner alone. Its `limits` hold besides those
    of its tenant."""

    key_id: str
    tenant_id: str
    may_call_base: bool = False
    limits: Limits = Limits()


class TenantRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`limits` are of all keys of the tenant together, `weight` is its share of a replica for which others wait too."""

    tenant_id: str
    weight: float = 1.0
    limits: Limits = Limits()


class AdapterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One verified adapter as replicas and placement need it. `store_key` names the object in the store.

    `effects` has one entry for each engine build and dtype that it was measured on. `fingerprint`,
    `<build>/<dtype>/<slot digest>`, is all that is known of adapters evaluated before effects were kept.
    `wanted` false: it may be asked for at any time and is then loaded, but nobody expects that: no alias names it,
    nothing is being done with it, so it is placed nowhere and leaves every tier once no request runs on it.
    """

    adapter_id: str
    digest: str
    tenant_id: str
    version: str
    pool_id: str
    base_model_hash: str
    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    size_bytes: int
    store_key: str
    status: str
    use_rslora: bool = False
    rank_pattern: Mapping[str, int] = {}
    alpha_pattern: Mapping[str, float] = {}
    fingerprint: str = ""
    effects: tuple[AdapterEffect, ...] = ()
    wanted: bool = True
    pinned: bool = False
    """An operator wants it in a slot of every owner, whatever its traffic."""

    @property
    def key(self) -> AdapterKey:
        return AdapterKey(adapter_id=self.adapter_id, digest=self.digest)


class ModuleShape(msgspec.Struct, frozen=True, kw_only=True):
    """A linear layer that an adapter may target: y[out] = W[out, in] x[in]."""

    in_features: int
    out_features: int


class BaseModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    base_model_hash: str
    name: str
    layers: int
    modules: Mapping[str, ModuleShape]
    rank_classes: tuple[int, ...]
    max_context_tokens: int
    created_at_s: float = 0.0
    vocabulary_size: int = 0
    """0: not known; of bases registered before it was asked for."""
    tool_parser: str = ""
    """How the base's chat template has calls of tools written, by name; "": it knows none, or nobody has looked."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a pool. Only `ready` members are routed to; `draining` ones finish what they have."""

    replica_id: str
    incarnation: str
    weight: float
    slots: int
    rank_limit: int
    ram_budget_bytes: int
    disk_budget_bytes: int
    ready: bool
    draining: bool = False


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas of one pool, and the fencing epoch of the placement that says so."""

    pool_id: str
    epoch: int
    revision: int
    members: tuple[Member, ...]


class OwnerCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many owners the adapters of a pool have; `exceptions` names the hot ones. Gateways ignore one whose `epoch`,
    the fencing epoch of the placement that says so, is older than the newest they have seen."""

    pool_id: str
    owners: int = 2
    exceptions: Mapping[str, int] = {}
    epoch: int = 0


class AssignedAdapter(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    digest: str
    role: str
    """"owner" or "spill"."""
    tier: str
    """The highest tier wanted: "gpu", "ram" or "disk"."""
    heat: int = 0
    """How busy it is, in powers of two: what is hotter is brought up first. 0: no traffic seen."""


class AssignmentShard(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what one replica should hold (at most 2,000 adapters a shard).

    A worker ignores a shard whose epoch is older than the newest it has seen. `shards` is how many
    parts there are; parts with an index at or above it are stale and hold nothing.
    """

    replica_id: str
    pool_id: str
    epoch: int
    shard: int
    shards: int
    adapters: tuple[AssignedAdapter, ...]


class ScaleWish(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas a pool should have. `drain` names those that are on their way out, so that whoever carries
    the wish out removes them and no others; `epoch` is the fencing epoch of the autoscaler that says so."""

    pool_id: str
    desired: int
    reason: str
    at_s: float = 0.0
    drain: tuple[str, ...] = ()
    epoch: int = 0


class DaySlot(msgspec.Struct, frozen=True, kw_only=True):
    """The largest need of one slot of the day, in replicas, on some last days, oldest first."""

    slot: int
    replicas: tuple[float, ...]


class PoolDayShape(msgspec.Struct, frozen=True, kw_only=True):
    """What each time of day needed, for whoever leads next: the autoscaler that learnt it wrote it at `at_s` (wall
    clock). The day begins at midnight UTC and has slots of `slot_s`; `slot` is the one under way, and has needed
    `largest` so far."""

    pool_id: str
    slot_s: float
    slots: tuple[DaySlot, ...]
    slot: int
    largest: float
    at_s: float


class PoolPressure(msgspec.Struct, frozen=True, kw_only=True):
    """Placement's word to the autoscaler: the adapters of a pool do not fit its replicas. `replicas` is how many
    would do; 0: all is well."""

    pool_id: str
    replicas: int
    reason: str
    at_s: float = 0.0
    epoch: int = 0


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts in a role of which only one may. The holder rewrites it, `beat` higher each time; whoever sees it
    unchanged for `ttl_s` of its own clock may take it, with the next `epoch`, by compare-and-set."""

    role: str
    holder: str
    epoch: int
    beat: int
    ttl_s: float


class DrainOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Ask one replica to finish what it runs and take nothing new. With `then_stop` its process ends once it is idle;
    otherwise it stays, empty, until whoever ordered it removes it or takes the order back."""

    replica_id: str
    reason: str
    epoch: int = 0
    then_stop: bool = True

"""Observed state, sent as full snapshots: a lost one is healed by the next."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.messages.identity import AdapterKey

TIERS = ("gpu", "ram", "disk", "remote")
"""Where an adapter can be found, fastest first."""


class ReplicaReport(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's scalars, every second. `tokens_in_flight` is what it has promised to hold and
    produce: the sum over running and waiting requests of context so far plus `max_tokens` still allowed.
    """

    replica_id: str
    incarnation: str
    pool_id: str
    sequence: int
    ready: bool
    draining: bool
    base_model_hash: str
    rank_limit: int
    engine: str
    engine_build: str
    slots: int
    slots_busy: int
    max_rows: int
    running: int
    queue_depth: int
    tokens_in_flight: int
    tokens_per_s: float
    evictions_per_min: float
    loads_per_min: float
    ram_bytes: int
    ram_budget_bytes: int
    disk_bytes: int
    disk_budget_bytes: int
    assignment_epoch: int = 0
    weight: float = 1.0
    max_context_tokens: int = 0
    reason: str = ""
    """Why it is not ready, if it is not."""
    queued_tokens: int = 0
    """The part of `tokens_in_flight` that was promised to requests which wait for their turn."""
    golden: str = ""
    """Whether the base model gives the answer recorded with it: "right", "unchecked", or "" before the check."""
    unproven_slots: int = 0
    """Slots whose load waits for the proof of its effect: no token has left them."""
    effect_mismatches: int = 0
    """Loads of this incarnation that did not do what is on record, those that a second try healed included."""
    quarantined: int = 0
    """Adapters that this replica refuses because a second try did not heal them."""
    capacity_tokens_per_s: float = 0.0
    """Completion tokens a second with every row taken, and prompts as they came lately, by its own steps. 0: not
    known yet."""
    kv_used_tokens: int = 0
    """Of the KV cache, in whole blocks that somebody uses; prefixes that are only kept do not count."""
    kv_total_tokens: int = 0
    """What the KV cache holds, in whole blocks. 0: it does not say, and `kv_used_tokens` means nothing."""
    warming: bool = False
    """It can serve, and would rather have the adapters that placement wants in its slots first: requests go to others
    while there are any. Never for longer than its deadline."""
    to_warm: int = 0
    """How many of those adapters are still to come; 0 while it warms: it has not been told yet which."""
    gpu_kind: str = ""
    """The kind of accelerator, in the words of `LORAFLEET_PLACEMENT_GPU_RATES`; "": it does not say."""


class ResidencyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`tier` is the highest tier that holds the adapter; "remote" means that it left the replica."""

    adapter_id: str
    digest: str
    tier: str


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica holds. A change carries only what changed; a snapshot comes in `parts`.

    `sequence` counts up by one for every message of one incarnation, so that a reader can tell that it
    missed a change and must wait for the next snapshot (every 10 s) to be exact again.
    """

    replica_id: str
    incarnation: str
    pool_id: str
    sequence: int
    snapshot: bool
    entries: tuple[ResidencyEntry, ...]
    part: int = 0
    parts: int = 1


class GatewayReport(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's figures and its lease: a worker drops the requests of a gateway silent for 3 s."""

    gateway_id: str
    sequence: int
    streams: int
    requests: int
    refused: int
    tokens: int
    sent_tokens: Mapping[str, int] = {}
    """Tokens promised per replica since that replica's last report."""


class PoolMetrics(msgspec.Struct, frozen=True, kw_only=True):
    pool_id: str
    replicas: int
    ready: int
    desired: int
    reason: str
    running: int
    queue_depth: int
    tokens_in_flight: int
    tokens_per_s: float
    evictions_per_min: float
    pending: int = 0
    """Replicas that are wished for and do not serve yet."""
    queue_s: float = 0.0
    """How long the waiting work would take."""
    capacity_tokens_per_s: float = 0.0
    """Of the replicas that serve."""
    late_share: float = 0.0
    """First tokens of the last minutes that came after the objective, 0 to 1."""
    usd_per_hour: float = 0.0
    usd_per_million_tokens: float | None = None
    """What the last minutes' completion tokens cost; None without any."""
    kv_used_tokens: int = 0
    kv_total_tokens: int = 0
    """Of the replicas that say how much their KV cache holds; 0: none does."""


class CustomerTtft(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter's first tokens of the last minutes. `p95_s` is right within 5 %; the registry has exact figures."""

    adapter_id: str
    first_tokens: int
    p95_s: float


class FleetMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The whole fleet at one moment, for whoever watches: `nats sub lf.v1.tel.fleet.metrics`."""

    at_s: float
    sequence: int
    pools: tuple[PoolMetrics, ...]
    gateways: int
    streams: int
    replicas_silent: tuple[str, ...] = ()
    customers: int = 0
    """Adapters that had a first token in the last minutes, as far as gateways named them."""
    customers_late: int = 0
    """Those of them whose 95th percentile is above the objective."""
    slowest: tuple[CustomerTtft, ...] = ()
    """Of the busiest and of the late, those with the highest percentile, the highest first."""


class ResidencyView(msgspec.Struct, frozen=True, kw_only=True):
    """One reader's knowledge of one replica. `exact` is false between a missed change and a snapshot."""

    incarnation: str = ""
    sequence: int = 0
    exact: bool = False
    tiers: Mapping[AdapterKey, str] = {}
    pending: Mapping[AdapterKey, str] = {}
    """Parts of a snapshot that is still arriving, from part 0 on and without a gap."""
    next_part: int = 0
    """The part that continues it; 0 if none is arriving."""


def fold_residency(view: ResidencyView, message: Residency) -> ResidencyView:
    """The view after one more message; older or repeated messages change nothing.

    Every reader folds with this one function, so that no two of them disagree about what was said.
    """
    same = view.incarnation == message.incarnation
    if same and message.sequence <= view.sequence:
        return view
    entries = {AdapterKey(adapter_id=e.adapter_id, digest=e.digest): e.tier for e in message.entries}
    continuous = same and message.sequence == view.sequence + 1
    known = view.tiers if same else {}
    pending, next_part = _gathered(view, message, entries) if continuous or message.part == 0 else ({}, 0)
    complete = message.snapshot and next_part == message.parts
    if complete:
        known, pending, next_part = _held(pending), {}, 0
    elif not message.snapshot:
        known = _held({**known, **entries})
    return ResidencyView(
        incarnation=message.incarnation, sequence=message.sequence,
        exact=complete or (view.exact and continuous),
        tiers=known, pending=pending, next_part=next_part,
    )  # fmt: skip


def _gathered(
    view: ResidencyView, message: Residency, entries: Mapping[AdapterKey, str]
) -> tuple[Mapping[AdapterKey, str], int]:
    """The parts of a snapshot so far, and the next one. Its parts follow each other at once: a change between
    them means that one was missed."""
    if message.snapshot and message.part == 0:
        return entries, 1
    if message.snapshot and message.part == view.next_part:
        return {**view.pending, **entries}, message.part + 1
    return {}, 0


def _held(tiers: Mapping[AdapterKey, str]) -> dict[AdapterKey, str]:
    return {key: tier for key, tier in tiers.items() if tier != "remote"}

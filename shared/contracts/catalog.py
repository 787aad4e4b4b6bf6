"""Every channel of the system, once. Streams, permissions and the documentation derive from this page."""

from __future__ import annotations

from typing import Any

from shared.contracts.channel import Channel, Codec, FanOut, Kind, Reader, Service, Stream
from shared.messages import (
    activity,
    adapters,
    aliases,
    completions,
    desired,
    generation,
    migrations,
    operations,
    reports,
    usage,
)

_GATEWAYS = Reader(service=Service.GATEWAY, fan_out=FanOut.EACH)
_WORKERS = Reader(service=Service.WORKER, fan_out=FanOut.EACH)
_ONE_WORKER = Reader(service=Service.WORKER, fan_out=FanOut.OWNER)
_REGISTRY = Reader(service=Service.REGISTRY, fan_out=FanOut.POOL)
_PLACEMENT = Reader(service=Service.PLACEMENT, fan_out=FanOut.EACH)
_ONE_PLACEMENT = Reader(service=Service.PLACEMENT, fan_out=FanOut.POOL)
_AUTOSCALER = Reader(service=Service.AUTOSCALER, fan_out=FanOut.EACH)
_CONSOLE = Reader(service=Service.CONSOLE, fan_out=FanOut.EACH)
_PIPELINES = Reader(service=Service.PIPELINE, fan_out=FanOut.EACH)

# Facts. Placement and gateways act on the state below, so a lost consumer loses nothing.

ADAPTER_REGISTERED: Channel[adapters.AdapterRegistered, Any] = Channel(
    name="adapter.registered", kind=Kind.EVENT, message=adapters.AdapterRegistered,
    summary="A new adapter version is ready to be checked: this sets everything off.",
    writers=(Service.PIPELINE, Service.REGISTRY), readers=(_REGISTRY,),
    dedup="chosen by the pipeline; the outbox row for the registry's own",
)  # fmt: skip


def _outcome(fact: str, message: type[Any], summary: str, writer: Service = Service.REGISTRY) -> Channel[Any, Any]:
    readers = (_PIPELINES, _CONSOLE) if writer is Service.REGISTRY else (_REGISTRY, _CONSOLE)
    return Channel(
        name=f"adapter.{fact}", kind=Kind.EVENT, message=message, summary=summary,
        writers=(writer,), readers=readers, dedup="the outbox row" if writer is Service.REGISTRY else "none",
    )  # fmt: skip


ADAPTER_VERIFIED = _outcome("verified", adapters.AdapterVerified, "Its files passed every check and are stored.")
ADAPTER_REJECTED = _outcome(
    "rejected", adapters.AdapterRejected, "Its files or its description are wrong; all defects."
)
ADAPTER_EVALUATING = _outcome("evaluating", adapters.AdapterEvaluating, "A replica is asked to measure it.")
ADAPTER_EVALUATED = _outcome("evaluated", adapters.AdapterEvaluated, "What the evaluation on a replica found.")
ADAPTER_ACTIVATED = _outcome("activated", adapters.AdapterActivated, "It may be deployed under an alias.")
ADAPTER_FAILED = _outcome("failed", adapters.AdapterFailed, "It cannot be activated; the reason is final.")
ADAPTER_RETIRED = _outcome("retired", adapters.AdapterRetired, "No alias names it any more; replicas drop it.")
ADAPTER_EFFECT_MISMATCH = _outcome(
    "effect_mismatch", adapters.EffectMismatch, "A load did not produce the weights on record.", Service.WORKER
)

ADAPTER_LOAD_FAILED = _outcome(
    "load_failed", adapters.AdapterLoadFailed, "An active adapter's stored bytes are gone or wrong.", Service.WORKER
)
ADAPTER_RETRAIN_REQUESTED = _outcome(
    "retrain.requested", migrations.RetrainRequested, "Train this adapter again, on another base model."
)
ALIAS_MOVED: Channel[aliases.AliasMoved, Any] = Channel(
    name="alias.moved", kind=Kind.EVENT, message=aliases.AliasMoved,
    summary="An alias came to mean something else: by whom, and why.",
    writers=(Service.REGISTRY,), readers=(_PIPELINES, _CONSOLE), dedup="the outbox row",
)  # fmt: skip
MIGRATION_MOVED: Channel[migrations.MigrationMoved, Any] = Channel(
    name="migration.moved", kind=Kind.EVENT, message=migrations.MigrationMoved,
    summary="A migration, or one adapter of it, came a step further.",
    writers=(Service.REGISTRY,), readers=(_PIPELINES, _CONSOLE), dedup="the outbox row",
)  # fmt: skip
USAGE_RECORDED: Channel[usage.UsageBatch, Any] = Channel(
    name="usage.recorded", kind=Kind.EVENT, message=usage.UsageBatch,
    summary="The requests that ended at one gateway: who, what, where, how long, how many tokens.",
    writers=(Service.GATEWAY,), readers=(_REGISTRY,), dedup="gateway and sequence", stream=Stream.USAGE,
)  # fmt: skip

# Desired state.

ALIAS: Channel[desired.AliasRecord, Any] = Channel(
    name="alias", kind=Kind.STATE, message=desired.AliasRecord, params=("alias_hash",),
    summary="Which adapter an alias means. Resolved at the gateway and nowhere else.",
    writers=(Service.REGISTRY,), readers=(_GATEWAYS,),
)  # fmt: skip
API_KEY: Channel[desired.ApiKeyRecord, Any] = Channel(
    name="api_key", kind=Kind.STATE, message=desired.ApiKeyRecord, params=("key_hash",),
    summary="Whose key this is. Revoking deletes it.",
    writers=(Service.REGISTRY,), readers=(_GATEWAYS,),
)  # fmt: skip
TENANT: Channel[desired.TenantRecord, Any] = Channel(
    name="tenant", kind=Kind.STATE, message=desired.TenantRecord, params=("tenant_id",),
    summary="A customer and its share.",
    writers=(Service.REGISTRY,), readers=(_GATEWAYS, _WORKERS),
)  # fmt: skip
ADAPTER: Channel[desired.AdapterRecord, Any] = Channel(
    name="adapter", kind=Kind.STATE, message=desired.AdapterRecord, params=("adapter_hash",),
    summary="A verified adapter: where its weights are and how they apply.",
    writers=(Service.REGISTRY,), readers=(_PLACEMENT, _AUTOSCALER, _WORKERS),
)  # fmt: skip
BASE_MODEL: Channel[desired.BaseModelRecord, Any] = Channel(
    name="base_model", kind=Kind.STATE, message=desired.BaseModelRecord, params=("base_model_hash",),
    summary="A base model, its layer shapes and the rank classes served on it.",
    writers=(Service.REGISTRY,), readers=(_GATEWAYS, _PLACEMENT, _WORKERS),
)  # fmt: skip
MEMBERSHIP: Channel[desired.Membership, Any] = Channel(
    name="membership", kind=Kind.STATE, message=desired.Membership, params=("pool_id",),
    summary="The replicas of a pool; gateways rank owners from it.",
    writers=(Service.PLACEMENT,), readers=(_GATEWAYS, _AUTOSCALER, _CONSOLE),
)  # fmt: skip
OWNER_COUNT: Channel[desired.OwnerCount, Any] = Channel(
    name="owner_count", kind=Kind.STATE, message=desired.OwnerCount, params=("pool_id",),
    summary="How many owners the adapters of a pool have.",
    writers=(Service.PLACEMENT,), readers=(_GATEWAYS,),
)  # fmt: skip
ASSIGNMENT: Channel[desired.AssignmentShard, Any] = Channel(
    name="assignment", kind=Kind.STATE, message=desired.AssignmentShard, params=("replica_id", "shard"),
    summary="What one replica should hold, and in which tier.",
    writers=(Service.PLACEMENT,), readers=(_ONE_WORKER,),
)  # fmt: skip
TRAFFIC: Channel[usage.PoolTraffic, Any] = Channel(
    name="traffic", kind=Kind.STATE, message=usage.PoolTraffic, params=("pool_id",),
    summary="Which adapters of a pool are busy: what is brought up first after a restart.",
    writers=(Service.REGISTRY,), readers=(_PLACEMENT,),
)  # fmt: skip
SCALE_WISH: Channel[desired.ScaleWish, Any] = Channel(
    name="scale_wish", kind=Kind.STATE, message=desired.ScaleWish, params=("pool_id",),
    summary="How many replicas a pool should have, and why.",
    writers=(Service.AUTOSCALER,), readers=(_AUTOSCALER, _CONSOLE),
)  # fmt: skip
DAY_SHAPE: Channel[desired.PoolDayShape, Any] = Channel(
    name="day_shape", kind=Kind.STATE, message=desired.PoolDayShape, params=("pool_id",),
    summary="What each time of day needed on the last days, kept for whoever leads next.",
    writers=(Service.AUTOSCALER,), readers=(_AUTOSCALER,),
)  # fmt: skip
PRESSURE: Channel[desired.PoolPressure, Any] = Channel(
    name="pressure", kind=Kind.STATE, message=desired.PoolPressure, params=("pool_id",),
    summary="The adapters of a pool do not fit its replicas: a wish for more, and why.",
    writers=(Service.PLACEMENT,), readers=(_AUTOSCALER, _CONSOLE),
)  # fmt: skip
LEASE: Channel[desired.Lease, Any] = Channel(
    name="lease", kind=Kind.STATE, message=desired.Lease, params=("role",),
    summary="Who acts in a role of which only one may: the leader of placement, of the autoscaler.",
    writers=(Service.PLACEMENT, Service.AUTOSCALER), readers=(_PLACEMENT, _AUTOSCALER, _CONSOLE),
)  # fmt: skip
DRAIN: Channel[desired.DrainOrder, Any] = Channel(
    name="drain", kind=Kind.STATE, message=desired.DrainOrder, params=("replica_id",),
    summary="Ask one replica to finish and take nothing new.",
    writers=(Service.AUTOSCALER, Service.CONSOLE), readers=(_ONE_WORKER, _PLACEMENT, _AUTOSCALER),
)  # fmt: skip

# Telemetry.

REPLICA_REPORT: Channel[reports.ReplicaReport, Any] = Channel(
    name="replica.report", kind=Kind.TELEMETRY, message=reports.ReplicaReport, params=("replica_id",),
    summary="One replica's scalars, every second.",
    writers=(Service.WORKER,), readers=(_GATEWAYS, _PLACEMENT, _AUTOSCALER, _CONSOLE),
)  # fmt: skip
REPLICA_RESIDENCY: Channel[reports.Residency, Any] = Channel(
    name="replica.residency", kind=Kind.TELEMETRY, message=reports.Residency, params=("replica_id",),
    summary="Which adapters a replica holds in which tier: changes at once, all of it every 10 s.",
    writers=(Service.WORKER,), readers=(_GATEWAYS, _PLACEMENT, _CONSOLE),
)  # fmt: skip
GATEWAY_REPORT: Channel[reports.GatewayReport, Any] = Channel(
    name="gateway.report", kind=Kind.TELEMETRY, message=reports.GatewayReport, params=("gateway_id",),
    summary="A gateway's figures, every second, and thereby its lease on its requests.",
    writers=(Service.GATEWAY,), readers=(_GATEWAYS, _WORKERS, _AUTOSCALER, _CONSOLE),
)  # fmt: skip
GATEWAY_ACTIVITY: Channel[activity.GatewayActivity, Any] = Channel(
    name="gateway.activity", kind=Kind.TELEMETRY, message=activity.GatewayActivity, params=("gateway_id",),
    summary="What customers asked one gateway for in the last second, by adapter.",
    writers=(Service.GATEWAY,), readers=(_PLACEMENT, _AUTOSCALER, _CONSOLE),
)  # fmt: skip
FLEET_METRICS: Channel[reports.FleetMetrics, Any] = Channel(
    name="fleet.metrics", kind=Kind.TELEMETRY, message=reports.FleetMetrics,
    summary="The whole fleet, every second, for operators.",
    writers=(Service.AUTOSCALER,), readers=(_CONSOLE, _PIPELINES),
)  # fmt: skip

# Questions.


def _ask_replica(fact: str, message: type[Any], reply: Any, summary: str, writer: Service) -> Channel[Any, Any]:
    codec = Codec.MSGPACK if writer is Service.GATEWAY else Codec.JSON
    return Channel(
        name=f"replica.{fact}", kind=Kind.RPC, message=message, reply=reply, summary=summary,
        writers=(writer,), readers=(_ONE_WORKER,), params=("replica_id",), codec=codec,
    )  # fmt: skip


GENERATE: Channel[generation.GenerateRequest, Any] = _ask_replica(
    "generate", generation.GenerateRequest, None,
    "Run a request; the answers come on the gateway's reply subject.", Service.GATEWAY,
)  # fmt: skip
CANCEL: Channel[generation.Cancel, generation.Cancelled] = _ask_replica(
    "cancel", generation.Cancel, generation.Cancelled, "The client left.", Service.GATEWAY
)
REPLAY: Channel[generation.Replay, generation.Replayed] = _ask_replica(
    "replay", generation.Replay, generation.Replayed, "Send numbered frames again.", Service.GATEWAY
)
LOAD: Channel[operations.LoadAdapter, operations.HoldResult] = _ask_replica(
    "load", operations.LoadAdapter, operations.HoldResult, "Pre-warm an adapter.", Service.REGISTRY
)
UNLOAD: Channel[operations.UnloadAdapter, operations.HoldResult] = _ask_replica(
    "unload", operations.UnloadAdapter, operations.HoldResult, "Drop an adapter from every tier.", Service.REGISTRY
)
STATE: Channel[operations.AskState, operations.ReplicaState] = _ask_replica(
    "state", operations.AskState, operations.ReplicaState, "What a replica holds and does.", Service.REGISTRY
)
EVALUATE: Channel[operations.EvaluateAdapter, operations.Evaluation] = _ask_replica(
    "evaluate",
    operations.EvaluateAdapter,
    operations.Evaluation,
    "Measure a candidate against the base.",
    Service.REGISTRY,
)
FINGERPRINT: Channel[operations.AskFingerprint, operations.Fingerprint] = _ask_replica(
    "fingerprint",
    operations.AskFingerprint,
    operations.Fingerprint,
    "Hash and probe what is really in the slot.",
    Service.REGISTRY,
)
COMPLETE: Channel[completions.Complete, completions.Completed] = _ask_replica(
    "complete",
    completions.Complete,
    completions.Completed,
    "Answer the prompts of an evaluation set.",
    Service.REGISTRY,
)
FLEET: Channel[operations.AskFleet, operations.FleetView] = Channel(
    name="placement.fleet", kind=Kind.RPC, message=operations.AskFleet, reply=operations.FleetView,
    summary="Every replica as placement sees it.", writers=(Service.REGISTRY,), readers=(_ONE_PLACEMENT,),
)  # fmt: skip
OWNERS: Channel[operations.AskOwners, operations.Owners] = Channel(
    name="placement.owners", kind=Kind.RPC, message=operations.AskOwners, reply=operations.Owners,
    summary="Which replicas own an adapter, and why.", writers=(Service.REGISTRY,), readers=(_ONE_PLACEMENT,),
)  # fmt: skip

# What comes back to one gateway; each under one wildcard subscription of that gateway.

ANSWER: Channel[generation.Answer, Any] = Channel(
    name="answer", kind=Kind.REPLY, message=generation.Answer,  # type: ignore[arg-type]
    params=("gateway_id", "request_id"), infix="r", codec=Codec.MSGPACK,
    summary="Queued, Accepted or Refused; NATS' own 'no responders' arrives here too.",
    writers=(Service.WORKER,), readers=(Reader(service=Service.GATEWAY, fan_out=FanOut.OWNER),),
)  # fmt: skip
FRAME: Channel[generation.Frame, Any] = Channel(
    name="frame", kind=Kind.REPLY, message=generation.Frame, params=("gateway_id", "replica_id"), infix="f",
    codec=Codec.MSGPACK, summary="The tokens of one engine step for one gateway.",
    writers=(Service.WORKER,), readers=(Reader(service=Service.GATEWAY, fan_out=FanOut.OWNER),),
)  # fmt: skip

CHANNELS: tuple[Channel[Any, Any], ...] = (
    ADAPTER_REGISTERED, ADAPTER_VERIFIED, ADAPTER_REJECTED, ADAPTER_EVALUATING, ADAPTER_EVALUATED,
    ADAPTER_ACTIVATED, ADAPTER_FAILED, ADAPTER_RETIRED, ADAPTER_EFFECT_MISMATCH, ADAPTER_LOAD_FAILED,
    ADAPTER_RETRAIN_REQUESTED, ALIAS_MOVED, MIGRATION_MOVED, USAGE_RECORDED,
    ALIAS, API_KEY, TENANT, ADAPTER, BASE_MODEL, MEMBERSHIP, OWNER_COUNT, ASSIGNMENT, TRAFFIC, SCALE_WISH, PRESSURE,
    DAY_SHAPE, LEASE, DRAIN,
    REPLICA_REPORT, REPLICA_RESIDENCY, GATEWAY_REPORT, GATEWAY_ACTIVITY, FLEET_METRICS,
    GENERATE, CANCEL, REPLAY, LOAD, UNLOAD, STATE, EVALUATE, COMPLETE, FINGERPRINT, FLEET, OWNERS,
    ANSWER, FRAME,
)  # fmt: skip

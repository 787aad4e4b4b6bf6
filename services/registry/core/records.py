"""An adapter as the registry keeps it, and as the fleet is told."""

from __future__ import annotations

import msgspec

from services.registry.core.defects import quoted
from services.registry.core.deployment.aliases import AliasState, Candidate, Denied
from services.registry.core.files.description import largest_rank
from services.registry.core.files.terms import applied_terms, as_announced
from services.registry.core.files.verify import FileFacts
from services.registry.core.lifecycle import Move
from shared.lora_terms import Applied
from shared.messages.adapters import AdapterRegistered, Defect
from shared.messages.aliases import AliasMoved
from shared.messages.desired import AdapterRecord, AliasRecord, AliasTarget, BaseModelRecord
from shared.messages.effects import AdapterEffect
from shared.messages.operations import Evaluation
from shared.messages.pools import pool_id, smallest_rank_class


class StoredAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter version with all that became of it. `pool_id` is empty for a rejected one; `applied` is None for
    one that is kept since before expressions were taken: what was announced is then plain."""

    announced: AdapterRegistered
    status: str
    reason: str
    registered_at_s: float
    updated_at_s: float
    deadline_s: float | None = None
    pool_id: str = ""
    size_bytes: int = 0
    store_key: str = ""
    fingerprint: str = ""
    effects: tuple[AdapterEffect, ...] = ()
    defects: tuple[Defect, ...] = ()
    wanted: bool = True
    wanted_until_s: float | None = None
    pinned: bool = False
    applied: Applied | None = None

    @property
    def adapter_id(self) -> str:
        return self.announced.adapter_id

    @property
    def tenant_id(self) -> str:
        return self.announced.tenant_id

    @property
    def digest(self) -> str:
        return self.announced.checksum


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an adapter once its file has been read."""

    pool_id: str
    size_bytes: int
    store_key: str
    applied: Applied | None


_WAYS_IN = ("weights_uri", "peft_config")
"""Of one and the same adapter it may come in several ways."""


def difference(known: AdapterRegistered, announced: AdapterRegistered) -> str | None:
    """The first field in which two announcements of one id differ, the weights before all others; where the file
    lay, and whether PEFT's own words came with it, is no difference."""
    for name in ("checksum", *AdapterRegistered.__struct_fields__):
        if name not in _WAYS_IN and getattr(known, name) != getattr(announced, name):
            return name
    return None


def conflict(known: AdapterRegistered, announced: AdapterRegistered) -> Denied | None:
    """Why the id is taken, or None if it was announced with exactly this before."""
    field = difference(known, announced)
    if field is None:
        return None
    before, now = getattr(known, field), getattr(announced, field)
    what = f"another {field} ({_told(before)}, not {_told(now)})"
    if field == "checksum":
        what = f"other weights (checksum {before})"
    message = f"Adapter {known.adapter_id} is already registered with {what}: register it under a new id."
    return Denied(kind="conflict", code="adapter_id_taken", message=message, field=field)


def _told(value: object) -> str:
    return "none" if value is None else quoted(value)


def fits_a_record(announced: AdapterRegistered) -> bool:
    """Whether an announcement that was rejected can be kept: no NUL, no larger integers, no longer names."""
    texts = (announced.version, announced.base_model_hash, announced.weights_uri, announced.checksum)
    optional = (
        announced.alias, announced.dataset_uri, announced.predecessor_id, announced.evaluated_by, announced.peft_config
    )  # fmt: skip
    short = len(announced.predecessor_id or "") <= 128 and len(announced.evaluated_by) <= 16
    return short and abs(announced.rank) < 1 << 31 and "\0" not in "".join((*texts, *filter(None, optional)))


def content(announced: AdapterRegistered, base: BaseModelRecord | None, file: FileFacts, store_key: str) -> Content:
    """Of a verified file that is to be stored under `store_key`. An unknown base is a ValueError: verification
    refuses it. Takes as long as the expressions in the announcement take to match."""
    if base is None:
        raise ValueError(f"{announced.adapter_id} was verified without a base model")
    return Content(
        pool_id=pool_of(base, largest_rank(announced)),
        size_bytes=file.size_bytes,
        store_key=store_key,
        applied=applied_terms(announced, (tensor.name for tensor in file.header.tensors)) if file.header else None,
    )


def accepted(known: StoredAdapter, announced: AdapterRegistered, found: Content, step: Move) -> StoredAdapter:
    """The adapter once its file is verified and stored."""
    return msgspec.structs.replace(after_move(known, step), announced=announced, **msgspec.structs.asdict(found))


def registered(announced: AdapterRegistered, step: Move) -> StoredAdapter:
    """An announcement whose file has not been opened yet."""
    return StoredAdapter(
        announced=announced,
        status=step.state,
        reason=step.reason,
        registered_at_s=step.at_s,
        updated_at_s=step.at_s,
        deadline_s=step.deadline_s,
    )


def rejected(announced: AdapterRegistered, defects: tuple[Defect, ...], step: Move) -> StoredAdapter:
    return StoredAdapter(
        announced=announced,
        status=step.state,
        reason=step.reason,
        registered_at_s=step.at_s,
        updated_at_s=step.at_s,
        defects=defects,
    )


def pool_of(base: BaseModelRecord, rank: int) -> str:
    """The smallest pool that fits. Raises ValueError for a rank over every class: verification refuses it."""
    rank_class = smallest_rank_class(rank, base.rank_classes)
    if rank_class is None:
        raise ValueError(f"rank {rank} fits no class of {base.name}")
    return pool_id(base.base_model_hash, rank_class)


def after_move(adapter: StoredAdapter, step: Move) -> StoredAdapter:
    """The adapter once a move has been made; a move without a deadline of its own leaves none."""
    return msgspec.structs.replace(
        adapter,
        status=step.state,
        reason=step.reason,
        updated_at_s=step.at_s,
        deadline_s=step.deadline_s,
    )


def measured(adapter: StoredAdapter, evaluation: Evaluation) -> StoredAdapter:
    """The adapter with what an evaluation found; what other engine builds found before stays."""
    anew = {effect.engine for effect in evaluation.effects}
    kept = (effect for effect in adapter.effects if effect.engine not in anew)
    return msgspec.structs.replace(adapter, fingerprint=evaluation.fingerprint, effects=(*kept, *evaluation.effects))


def awaits_results(adapter: StoredAdapter) -> bool:
    """A replica has measured it, and its pipeline is to say the rest."""
    return adapter.status == "evaluating" and adapter.announced.evaluated_by == "pipeline" and adapter.fingerprint != ""


def adapter_record(adapter: StoredAdapter) -> AdapterRecord:
    """What replicas and placement need of it."""
    announced, applied = adapter.announced, adapter.applied or as_announced(adapter.announced)
    return AdapterRecord(
        adapter_id=adapter.adapter_id,
        digest=adapter.digest,
        tenant_id=announced.tenant_id,
        version=announced.version,
        pool_id=adapter.pool_id,
        base_model_hash=announced.base_model_hash,
        rank=announced.rank,
        alpha=announced.alpha,
        target_modules=applied.target_modules,
        size_bytes=adapter.size_bytes,
        store_key=adapter.store_key,
        status=adapter.status,
        use_rslora=announced.use_rslora,
        rank_pattern=applied.rank_pattern,
        alpha_pattern=applied.alpha_pattern,
        fingerprint=adapter.fingerprint,
        effects=adapter.effects,
        # In line for its evaluation it lies in no replica's way: a batch would be read back while it comes in.
        wanted=adapter.pinned or (adapter.wanted and adapter.status != "verified"),
        pinned=adapter.pinned,
    )


def alias_target(adapter: StoredAdapter, base: BaseModelRecord) -> AliasTarget:
    """Where a request goes that means this adapter."""
    return AliasTarget(
        adapter_id=adapter.adapter_id,
        digest=adapter.digest,
        pool_id=adapter.pool_id,
        base_model_hash=base.base_model_hash,
        base_model_name=base.name,
    )


def alias_record(state: AliasState, target: AliasTarget, split: AliasTarget | None) -> AliasRecord:
    """What a gateway needs to route the alias."""
    return AliasRecord(
        alias=state.alias,
        tenant_id=state.tenant_id,
        **msgspec.structs.asdict(target),
        updated_at_s=state.updated_at_s,
        split=split,
        split_percent=state.split_percent,
        split_salt=state.split_salt,
    )


def moved(state: AliasState, kind: str, actor: str, reason: str) -> AliasMoved:
    """A change of an alias that has just come to be in this state."""
    return AliasMoved(
        alias=state.alias,
        tenant_id=state.tenant_id,
        change=kind,
        revision=state.revision,
        adapter_id=state.adapter_id,
        previous_adapter_id=state.previous_adapter_id,
        split_adapter_id=state.split_adapter_id,
        split_percent=state.split_percent,
        actor=actor,
        reason=reason,
        at_s=state.updated_at_s,
    )


def candidate(adapter: StoredAdapter) -> Candidate:
    return Candidate(
        adapter_id=adapter.adapter_id,
        tenant_id=adapter.tenant_id,
        status=adapter.status,
        registered_at_s=adapter.registered_at_s,
    )

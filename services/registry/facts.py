"""What the bus is told about each change, as notes for the outbox of the same transaction."""

from __future__ import annotations

from services.registry.core import records
from services.registry.core.defects import LONGEST_FIELD
from services.registry.core.deployment.aliases import AliasState
from services.registry.core.gating.gate import Report
from services.registry.core.gating.overrides import Override
from services.registry.core.records import StoredAdapter
from services.registry.io.notes import Note, fact, removal, value
from shared.contracts import catalog
from shared.messages.adapters import (
    AdapterActivated,
    AdapterEvaluated,
    AdapterEvaluating,
    AdapterFailed,
    AdapterRegistered,
    AdapterRejected,
    AdapterRetired,
    AdapterVerified,
    Defect,
)
from shared.messages.aliases import AliasMoved
from shared.messages.desired import AliasTarget
from shared.messages.identity import key_of


def announced(message: AdapterRegistered) -> Note:
    """Of a POST: pipelines and audit read one stream, whichever way an adapter came in."""
    return fact(catalog.ADAPTER_REGISTERED, message)


def rejected(message: AdapterRegistered, defects: tuple[Defect, ...]) -> Note:
    """Ids that are wrong may be of any length; a message on the bus may not."""
    adapter_id, tenant_id = message.adapter_id[:LONGEST_FIELD], message.tenant_id[:LONGEST_FIELD]
    return refused(AdapterRejected(adapter_id=adapter_id, tenant_id=tenant_id, defects=defects))


def refused(outcome: AdapterRejected) -> Note:
    return fact(catalog.ADAPTER_REJECTED, outcome)


def verified(adapter: StoredAdapter) -> list[Note]:
    outcome = AdapterVerified(
        adapter_id=adapter.adapter_id,
        tenant_id=adapter.tenant_id,
        digest=adapter.digest,
        pool_id=adapter.pool_id,
        size_bytes=adapter.size_bytes,
    )
    return [fact(catalog.ADAPTER_VERIFIED, outcome), held(adapter)]


def evaluating(adapter: StoredAdapter) -> list[Note]:
    outcome = AdapterEvaluating(
        adapter_id=adapter.adapter_id,
        tenant_id=adapter.tenant_id,
        digest=adapter.digest,
        deadline_s=adapter.deadline_s or 0.0,
    )
    return [fact(catalog.ADAPTER_EVALUATING, outcome), held(adapter)]


def evaluated(adapter: StoredAdapter, report: Report) -> Note:
    outcome = AdapterEvaluated(
        adapter_id=adapter.adapter_id,
        digest=adapter.digest,
        passed=report.passed,
        reason=report.reason,
        replica_id=report.replica_id,
        fingerprint=adapter.fingerprint,
        score=report.scores.candidate,
        source="pipeline" if report.signed_by else "fleet",
        signed_by=report.signed_by,
    )
    return fact(catalog.ADAPTER_EVALUATED, outcome)


def activated(adapter: StoredAdapter, override: Override | None = None) -> list[Note]:
    outcome = AdapterActivated(
        adapter_id=adapter.adapter_id,
        tenant_id=adapter.tenant_id,
        digest=adapter.digest,
        pool_id=adapter.pool_id,
        overridden_by="" if override is None else override.by,
        override_reason="" if override is None else override.reason,
    )
    return [fact(catalog.ADAPTER_ACTIVATED, outcome), held(adapter)]


def failed(adapter: StoredAdapter, *, aliased: bool = False) -> list[Note]:
    """While an alias means it, replicas keep a record that says so: they refuse its requests in so many words."""
    outcome = AdapterFailed(adapter_id=adapter.adapter_id, tenant_id=adapter.tenant_id, reason=adapter.reason)
    return [fact(catalog.ADAPTER_FAILED, outcome), held(adapter) if aliased else dropped(adapter)]


def retired(adapter: StoredAdapter) -> list[Note]:
    outcome = AdapterRetired(
        adapter_id=adapter.adapter_id, tenant_id=adapter.tenant_id, digest=adapter.digest, reason=adapter.reason
    )
    return [fact(catalog.ADAPTER_RETIRED, outcome), dropped(adapter)]


def held(adapter: StoredAdapter) -> Note:
    """What replicas know of it: they may load it, or why they may not."""
    return value(catalog.ADAPTER, records.adapter_record(adapter), key_of(adapter.adapter_id))


def dropped(adapter: StoredAdapter) -> Note:
    """Replicas let go of it."""
    return removal(catalog.ADAPTER, key_of(adapter.adapter_id))


def aliased(state: AliasState, target: AliasTarget, split: AliasTarget | None) -> Note:
    return value(catalog.ALIAS, records.alias_record(state, target, split), key_of(state.alias))


def moved(change: AliasMoved) -> Note:
    return fact(catalog.ALIAS_MOVED, change)


def unaliased(alias: str) -> Note:
    return removal(catalog.ALIAS, key_of(alias))

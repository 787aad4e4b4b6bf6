"""Evaluations that pipelines ran themselves: signed, checked, and held against the same policy."""

from __future__ import annotations

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.adapters import unknown_adapter
from services.registry.core.deployment.aliases import Denied
from services.registry.core.gating.evaluation_sets import Policy
from services.registry.core.gating.gate import Report, Scores, judge_results, reported, results_fault
from services.registry.core.records import StoredAdapter
from services.registry.gating.attempts import Conclusion
from services.registry.gating.standards import standard_of
from services.registry.gating.verdicts import Verdicts, end_evaluation
from services.registry.io import adapter_rows, pipeline_key_rows, signatures
from services.registry.io.database import Database
from shared.messages.results import PipelineResults, signed_bytes
from shared.runtime.clock import Clock


class Posted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`signature` is Base64, of Ed25519 over `signed_bytes`."""

    results: PipelineResults
    signature: str
    key_id: str


class Results:
    """May raise DatabaseUnavailable; nothing was changed then."""

    def __init__(self, database: Database, verdicts: Verdicts, clock: Clock) -> None:
        self._database = database
        self._verdicts = verdicts
        self._clock = clock

    async def post(self, adapter_id: str, posted: Posted) -> StoredAdapter | Denied:
        """The adapter as it is then: active, or failed if the policy says so."""
        now_s = self._clock.wall_s()
        async with self._database.write() as connection:
            adapter = await adapter_rows.find(connection, adapter_id, to_change=True)
            if adapter is None:
                return unknown_adapter(adapter_id)
            denied = await _signature_fault(connection, adapter, posted) or _fault(adapter, posted.results)
            if denied is not None:
                return denied
            standard = await standard_of(connection, adapter)
            found = _conclusion(standard.asked.policy if standard.asked else Policy(), posted)
            predecessor_id = standard.predecessor.adapter_id if standard.predecessor else None
            [report] = found.reports
            kept = msgspec.structs.replace(report, predecessor_id=predecessor_id)
            ended = await end_evaluation(connection, adapter, msgspec.structs.replace(found, reports=(kept,)), now_s)
        self._verdicts.tell_ended(ended, found)
        return ended


async def _signature_fault(connection: AsyncConnection, adapter: StoredAdapter, posted: Posted) -> Denied | None:
    """Who may not sign for this tenant is told the same as who signed wrongly."""
    key = await pipeline_key_rows.find(connection, posted.key_id)
    message = signed_bytes(adapter.adapter_id, adapter.digest, posted.results)
    if (
        key is not None
        and key.tenant_id in ("", adapter.tenant_id)
        and signatures.is_signed(key.public_key, posted.signature, message)
    ):
        return None
    text = f"These results are not signed for adapter {adapter.adapter_id} with a key that may sign for it."
    return Denied(kind="forbidden", code="signature_invalid", message=text, field="signature")


def _fault(adapter: StoredAdapter, results: PipelineResults) -> Denied | None:
    if (fault := results_fault(results)) is not None:
        return Denied(kind="invalid", code="results_invalid", message=fault, field="results")
    if adapter.announced.evaluated_by != "pipeline":
        text = f"Adapter {adapter.adapter_id} was announced to be evaluated by the fleet."
        return Denied(kind="conflict", code="evaluated_by_fleet", message=text)
    if adapter.status != "evaluating":
        text = f"Adapter {adapter.adapter_id} is {adapter.status}; results are taken while it is evaluating."
        return Denied(kind="conflict", code="not_evaluating", message=text)
    if not adapter.fingerprint:
        text = f"No replica has measured adapter {adapter.adapter_id} yet; post again after adapter.evaluated."
        return Denied(kind="conflict", code="not_measured", message=text)
    return None


def _conclusion(policy: Policy, posted: Posted) -> Conclusion:
    verdict, results = judge_results(policy, posted.results), posted.results
    report = Report(
        source="pipeline",
        passed=verdict.state == "active",
        reason=f"{verdict.reason}; {results.notes}" if results.notes else verdict.reason,
        scores=Scores(candidate=results.score, predecessor=results.predecessor_score),
        cases=reported(results),
        signed_by=posted.key_id,
    )
    return Conclusion(state=verdict.state, reason=verdict.reason, reports=(report,))

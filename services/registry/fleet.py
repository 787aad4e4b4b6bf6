"""Questions to placement and to single replicas."""

from __future__ import annotations

import msgspec

from services.registry.core.gating.evaluation import order_replicas
from services.registry.core.records import StoredAdapter, adapter_record
from shared.bus.port import AskFailed, Bus, BusUnavailable, DeadlineExceeded, NoResponders
from shared.contracts import catalog
from shared.messages.completions import CasePrompt, Complete, Completed
from shared.messages.operations import (
    AskFingerprint,
    AskFleet,
    AskOwners,
    AskState,
    EvaluateAdapter,
    Evaluation,
    Fingerprint,
    FleetView,
    HoldResult,
    LoadAdapter,
    ReplicaState,
    UnloadAdapter,
)

UNANSWERED = (AskFailed, BusUnavailable, DeadlineExceeded, NoResponders)
"""What any question may end in."""


class FleetPolicy(msgspec.Struct, frozen=True, kw_only=True):
    ask_timeout_s: float
    load_timeout_s: float
    evaluate_timeout_s: float


class Fleet:
    """Every question may raise one of UNANSWERED; a load or unload may have happened nevertheless."""

    def __init__(self, bus: Bus, policy: FleetPolicy) -> None:
        self._bus = bus
        self._policy = policy

    async def view(self) -> FleetView:
        return await self._bus.ask(catalog.FLEET, AskFleet(), timeout_s=self._policy.ask_timeout_s)

    async def state(self, replica_id: str) -> ReplicaState:
        return await self._bus.ask(catalog.STATE, AskState(), replica_id, timeout_s=self._policy.ask_timeout_s)

    async def load(self, replica_id: str, adapter: StoredAdapter, tier: str) -> HoldResult:
        order = LoadAdapter(adapter_id=adapter.adapter_id, digest=adapter.digest, tier=tier)
        return await self._bus.ask(catalog.LOAD, order, replica_id, timeout_s=self._policy.load_timeout_s)

    async def unload(self, replica_id: str, adapter: StoredAdapter) -> HoldResult:
        order = UnloadAdapter(adapter_id=adapter.adapter_id, digest=adapter.digest)
        return await self._bus.ask(catalog.UNLOAD, order, replica_id, timeout_s=self._policy.load_timeout_s)

    async def evaluate(self, replica_id: str, adapter: StoredAdapter) -> Evaluation:
        order = EvaluateAdapter(record=adapter_record(adapter))
        return await self._bus.ask(catalog.EVALUATE, order, replica_id, timeout_s=self._policy.evaluate_timeout_s)

    async def complete(
        self,
        replica_id: str,
        base_model_hash: str,
        adapter: StoredAdapter | None,
        prompts: tuple[CasePrompt, ...],
    ) -> Completed:
        """Greedy answers with this adapter, or without one the base model's own."""
        record = None if adapter is None else adapter_record(adapter)
        order = Complete(base_model_hash=base_model_hash, record=record, prompts=prompts)
        return await self._bus.ask(catalog.COMPLETE, order, replica_id, timeout_s=self._policy.evaluate_timeout_s)

    async def fingerprint(self, replica_id: str, adapter: StoredAdapter) -> Fingerprint:
        question = AskFingerprint(adapter_id=adapter.adapter_id, digest=adapter.digest)
        return await self._bus.ask(catalog.FINGERPRINT, question, replica_id, timeout_s=self._policy.load_timeout_s)

    async def owners(self, adapter: StoredAdapter) -> tuple[str, ...]:
        """The best first, ready or not; none if placement does not know the adapter."""
        question = AskOwners(adapter_id=adapter.adapter_id, digest=adapter.digest, pool_id=adapter.pool_id)
        return (await self._bus.ask(catalog.OWNERS, question, timeout_s=self._policy.ask_timeout_s)).replica_ids

    async def ready_replicas(self, adapter: StoredAdapter) -> tuple[str, ...]:
        """Who could evaluate the adapter, in the order to ask them."""
        view = await self.view()
        try:
            owners = await self.owners(adapter)
        except (AskFailed, DeadlineExceeded):
            # Owners are only the better choice: placement may not have this adapter in its view yet.
            return order_replicas(adapter.pool_id, view.replicas, ())
        return order_replicas(adapter.pool_id, view.replicas, owners)

"""What pipelines and replicas tell the registry over the bus."""

from __future__ import annotations

from services.registry.core.files.unreadable import refusal, sender_of
from services.registry.io.changes import Changes, Trouble
from services.registry.io.meters import Meters
from services.registry.precedence import Precedence
from services.registry.registration.registrations import Registrations
from shared.bus.port import Bus, Ids, Subscription
from shared.contracts import catalog
from shared.contracts.channel import Service
from shared.messages.adapters import AdapterRegistered, EffectMismatch
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Announcements:
    """A part that takes events through durable consumers: what comes while it is away is not lost."""

    def __init__(
        self, bus: Bus, registrations: Registrations, precedence: Precedence, meters: Meters, changes: Changes
    ) -> None:
        self._bus = bus
        self._registrations = registrations
        self._precedence = precedence
        self._meters = meters
        self._changes = changes
        self._open: list[Subscription] = []

    async def start(self) -> None:
        durable = Service.REGISTRY.value
        self._open = [
            await self._bus.consume(
                catalog.ADAPTER_REGISTERED, durable, self._on_registered, on_undecodable=self._on_misshapen
            ),
            await self._bus.consume(catalog.ADAPTER_EFFECT_MISMATCH, durable, self._on_mismatch),
        ]

    async def stop(self) -> None:
        for subscription in self._open:
            await subscription.close()

    async def _on_registered(self, announced: AdapterRegistered, ids: Ids) -> None:
        """What it raises (a store or a database that is away) brings the same event again."""
        with self._precedence.going():
            await self._registrations.register(announced, by_event=True)

    async def _on_misshapen(self, payload: bytes, reason: str) -> None:
        """Its sender is told if it can be made out; nobody else could act on it."""
        sender = sender_of(payload)
        outcome = refusal(sender, reason)
        said = {"adapter_id": sender.adapter_id, "tenant_id": sender.tenant_id, "reason": reason}
        if outcome is None:
            self._meters.registered("unreadable")
            _log.error("an event is no announcement and does not say whose it is", **said)
            return
        await self._registrations.refuse(outcome)
        _log.warning("an event is no announcement", **said)

    async def _on_mismatch(self, mismatch: EffectMismatch, ids: Ids) -> None:
        self._meters.mismatched()
        said = f"{mismatch.replica_id} refuses it, expected is {mismatch.expected}, found was {mismatch.found}"
        self._changes.tell_trouble(Trouble(adapter_id=mismatch.adapter_id, reason=said))
        _log.error(
            "a replica refuses an adapter that does not do there what is on record",
            adapter_id=mismatch.adapter_id,
            replica_id=mismatch.replica_id,
            expected=mismatch.expected,
            found=mismatch.found,
            reason=mismatch.reason,
        )

"""What this replica tells of adapters that go wrong here."""

from __future__ import annotations

from services.replica_worker.standing import Identity
from services.replica_worker.tiers.errors import EffectWrong
from shared.bus.port import Bus, BusUnavailable
from shared.contracts.catalog import ADAPTER_EFFECT_MISMATCH, ADAPTER_LOAD_FAILED
from shared.messages.adapters import AdapterLoadFailed, EffectMismatch
from shared.messages.desired import AdapterRecord
from shared.messages.identity import AdapterKey, key_of
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Alarms:
    def __init__(self, bus: Bus, identity: Identity) -> None:
        self._bus = bus
        self._identity = identity
        self._untold: dict[AdapterKey, AdapterLoadFailed] = {}
        self._lost: set[AdapterKey] = set()

    async def mismatch(self, record: AdapterRecord, wrong: EffectWrong) -> None:
        """At once; lost if the bus is away, as the quarantine is in this replica's reports anyway."""
        _log.error("an adapter is quarantined here", adapter_id=record.adapter_id, reason=str(wrong))
        event = EffectMismatch(
            adapter_id=record.adapter_id,
            digest=record.digest,
            replica_id=self._identity.replica_id,
            expected=wrong.expected,
            found=wrong.found,
            reason=str(wrong),
        )
        try:
            await self._bus.publish(ADAPTER_EFFECT_MISMATCH, event)
        except BusUnavailable as error:
            _log.error("a mismatch could not be told", reason=str(error))

    def stored_bytes_lost(self, record: AdapterRecord, code: str, reason: str) -> None:
        """To be told by `tell`, once in this process' life. A candidate's is for its evaluation to say."""
        if record.status != "active" or record.key in self._lost:
            return
        _log.error("an active adapter's stored bytes are lost", adapter_id=record.adapter_id, reason=reason)
        self._lost.add(record.key)
        self._untold[record.key] = AdapterLoadFailed(
            adapter_id=record.adapter_id,
            digest=record.digest,
            replica_id=self._identity.replica_id,
            code=code,
            reason=reason,
        )

    async def tell(self) -> None:
        """Now and then: what the bus did not take is told again the next time."""
        for key, event in list(self._untold.items()):
            message_id = f"load-failed-{self._identity.incarnation}-{key_of(key.adapter_id)}"
            try:
                await self._bus.publish(ADAPTER_LOAD_FAILED, event, message_id=message_id)
            except BusUnavailable as error:
                _log.warning("a failed load is still to be told", adapter_id=key.adapter_id, reason=str(error))
                return
            del self._untold[key]

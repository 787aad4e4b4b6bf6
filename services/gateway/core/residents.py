"""Which replicas have an adapter in a slot or in RAM, by adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.gateway.core.replica import Replica
from shared.messages.identity import AdapterKey
from shared.messages.reports import Residency, ResidencyView, fold_residency

_NOBODY: Mapping[str, str] = {}
_WARM = ("gpu", "ram")


class Residents:
    """The other way round than replicas say it, and kept up with what they say."""

    def __init__(self) -> None:
        self._tiers: dict[AdapterKey, dict[str, str]] = {}

    def of(self, adapter: AdapterKey) -> Mapping[str, str]:
        """The tier, "gpu" or "ram", by the name of each that has it in one of them."""
        return self._tiers.get(adapter, _NOBODY)

    def hear(self, replica: Replica, message: Residency) -> list[AdapterKey]:
        """Fold the message into what the replica holds. Returns what it says is in a slot, if it says anything new."""
        before, after = replica.residency, fold_residency(replica.residency, message)
        if after is before:
            return []
        replica.residency = after
        said = {AdapterKey(adapter_id=entry.adapter_id, digest=entry.digest): entry.tier for entry in message.entries}
        whole = message.snapshot or before.incarnation != after.incarnation
        touched = before.tiers.keys() | after.tiers.keys() if whole else said.keys()
        self._turn(replica.replica_id, touched, before.tiers, after.tiers)
        return [adapter for adapter, tier in said.items() if tier == "gpu"]

    def forget(self, replica: Replica) -> None:
        self._turn(replica.replica_id, replica.residency.tiers.keys(), replica.residency.tiers, {})
        replica.residency = ResidencyView()

    def _turn(
        self,
        replica_id: str,
        touched: Iterable[AdapterKey],
        before: Mapping[AdapterKey, str],
        after: Mapping[AdapterKey, str],
    ) -> None:
        for adapter in touched:
            tier = after.get(adapter, "remote")
            if tier in _WARM:
                self._tiers.setdefault(adapter, {})[replica_id] = tier
            elif before.get(adapter) in _WARM:
                tiers = self._tiers[adapter]
                del tiers[replica_id]
                if not tiers:
                    del self._tiers[adapter]

"""What was told about the tiers of this replica, and what must be told next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.messages.identity import AdapterKey
from shared.messages.reports import Residency, ResidencyEntry

ENTRIES_PER_MESSAGE = 2_000


@dataclass
class ResidencyLog:
    """Numbers every message of one incarnation; keeps the tiers as the readers know them."""

    replica_id: str
    incarnation: str
    pool_id: str
    entries_per_message: int = ENTRIES_PER_MESSAGE
    _told: dict[AdapterKey, str] = field(init=False, default_factory=dict)
    _sequence: int = field(init=False, default=0)

    def changes(self, tiers: Mapping[AdapterKey, str]) -> list[Residency]:
        """Messages for what differs from what was told; `tiers` may be a part of all. None if nothing does."""
        changed = {key: tier for key, tier in tiers.items() if self._told.get(key, "remote") != tier}
        self._learn(changed)
        return [self._message(part, snapshot=False) for part in self._split(changed)]

    def snapshot(self, tiers: Mapping[AdapterKey, str]) -> list[Residency]:
        """All of it, in numbered parts that must be sent without another message between them."""
        self._told = {}
        self._learn(tiers)
        parts = self._split(self._told) or [()]
        return [self._message(part, snapshot=True, part=index, parts=len(parts)) for index, part in enumerate(parts)]

    def _learn(self, tiers: Mapping[AdapterKey, str]) -> None:
        for key, tier in tiers.items():
            if tier == "remote":
                self._told.pop(key, None)
            else:
                self._told[key] = tier

    def _split(self, tiers: Mapping[AdapterKey, str]) -> list[tuple[ResidencyEntry, ...]]:
        entries = [ResidencyEntry(adapter_id=k.adapter_id, digest=k.digest, tier=t) for k, t in tiers.items()]
        size = self.entries_per_message
        return [tuple(entries[at : at + size]) for at in range(0, len(entries), size)]

    def _message(
        self, entries: Sequence[ResidencyEntry], *, snapshot: bool, part: int = 0, parts: int = 1
    ) -> Residency:
        self._sequence += 1
        return Residency(
            replica_id=self.replica_id, incarnation=self.incarnation, pool_id=self.pool_id,
            sequence=self._sequence, snapshot=snapshot, entries=tuple(entries), part=part, parts=parts,
        )  # fmt: skip

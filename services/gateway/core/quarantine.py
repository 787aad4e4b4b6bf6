"""Which replicas are left alone for which adapters, because they failed to load them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.messages.identity import AdapterKey

_NOBODY: frozenset[str] = frozenset()


class QuarantinePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The first failure keeps requests away for `first_s`, each further one twice as long, up to `most_s`."""

    first_s: float = 2.0
    most_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        return min(self.first_s * 2.0 ** min(failures - 1, 60), self.most_s)


class Spell(msgspec.Struct, frozen=True):
    """`failures` in a row; nothing is sent before `until_s`."""

    until_s: float
    failures: int


class Quarantine:
    """By adapter and replica. A spell that is over is remembered for as long again as the longest one takes, so that
    the next failure is known to be one more."""

    def __init__(self, policy: QuarantinePolicy) -> None:
        self._policy = policy
        self._spells: dict[AdapterKey, dict[str, Spell]] = {}

    def failed(self, replica_id: str, adapter: AdapterKey, now_s: float) -> float:
        """The replica could not load it once more. Returns until when nothing is sent there.

        Nothing is sent during a spell, so a failure that becomes known then is of the load that began it: of many
        requests that waited for one load, each is told."""
        known = self._spells.get(adapter, {}).get(replica_id)
        if known is not None and now_s < known.until_s:
            return known.until_s
        failures = known.failures + 1 if known is not None else 1
        spell = Spell(now_s + self._policy.pause_s(failures), failures)
        self._spells.setdefault(adapter, {})[replica_id] = spell
        return spell.until_s

    def healed(self, replica_id: str, adapters: Iterable[AdapterKey]) -> None:
        """These adapters are in a slot of the replica."""
        if self._spells:
            for adapter in adapters:
                self._drop(adapter, replica_id)

    def forget(self, replica_id: str) -> None:
        """It is another process now, or gone."""
        for adapter in [adapter for adapter, spells in self._spells.items() if replica_id in spells]:
            self._drop(adapter, replica_id)

    def forget_older_than(self, at_s: float) -> None:
        """Those that were over before then by as long as a spell may take."""
        for adapter, spells in list(self._spells.items()):
            for replica_id, spell in list(spells.items()):
                if spell.until_s + self._policy.most_s < at_s:
                    self._drop(adapter, replica_id)

    def of(self, adapter: AdapterKey, now_s: float) -> frozenset[str]:
        """The replicas that must not be sent requests for it now."""
        spells = self._spells.get(adapter)
        if spells is None:
            return _NOBODY
        return frozenset(replica_id for replica_id, spell in spells.items() if now_s < spell.until_s)

    def until_s(self, replica_id: str, adapter: AdapterKey) -> float:
        """When it ends; 0 if there is none."""
        spell = self._spells.get(adapter, {}).get(replica_id)
        return spell.until_s if spell is not None else 0.0

    def _drop(self, adapter: AdapterKey, replica_id: str) -> None:
        spells = self._spells.get(adapter)
        if spells is not None and spells.pop(replica_id, None) is not None and not spells:
            del self._spells[adapter]

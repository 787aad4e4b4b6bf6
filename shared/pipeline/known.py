"""What the registry says of an adapter, and whether that is an outcome of an announcement."""

from __future__ import annotations

import msgspec

from shared.messages.adapters import (
    AdapterActivated,
    AdapterFailed,
    AdapterRegistered,
    AdapterRejected,
    Defect,
)
from shared.pipeline.outcome import Activated, Failed, Outcome, Rejected

Told = AdapterActivated | AdapterRejected | AdapterFailed
SETTLED = ("active", "retired", "failed", "rejected")


class Move(msgspec.Struct, frozen=True):
    state: str


class Known(AdapterRegistered, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The announcement that the registry has under an id, and what became of it."""

    status: str
    reason: str = ""
    pool_id: str = ""
    defects: tuple[Defect, ...] = ()
    history: tuple[Move, ...] = ()

    def is_of(self, announced: AdapterRegistered) -> bool:
        """Whether exactly this was announced; where the file lay, and PEFT's own words with it, is no difference."""
        names = (name for name in AdapterRegistered.__struct_fields__ if name not in ("weights_uri", "peft_config"))
        return all(getattr(self, name) == getattr(announced, name) for name in names)

    @property
    def outcome(self) -> Outcome | None:
        """None while it is under way."""
        if self.status == "active":
            return Activated(adapter_id=self.adapter_id, digest=self.checksum, pool_id=self.pool_id)
        if self.status == "rejected":
            return Rejected(adapter_id=self.adapter_id, defects=self.defects)
        if self.status in SETTLED:
            return Failed(adapter_id=self.adapter_id, reason=self.reason or f"it is {self.status}")
        return None


def news(known: Known | None, announced: AdapterRegistered, before: Known | None) -> Outcome | None:
    """The outcome of an announcement that was made when the registry said `before`. A rejection that was told then
    is none: what was rejected may be announced again, and may be right by now."""
    if known is None or not known.is_of(announced):
        return None
    if known.status == "rejected" and before is not None and len(known.history) <= len(before.history):
        return None
    return known.outcome


def outcome_of(told: Told) -> Outcome:
    """The outcome that an event tells."""
    match told:
        case AdapterActivated():
            return Activated(adapter_id=told.adapter_id, digest=told.digest, pool_id=told.pool_id)
        case AdapterRejected():
            return Rejected(adapter_id=told.adapter_id, defects=told.defects)
        case AdapterFailed():
            return Failed(adapter_id=told.adapter_id, reason=told.reason)

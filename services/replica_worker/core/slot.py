"""One slot of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from shared.messages.identity import AdapterKey


class SlotState(StrEnum):
    EMPTY = "empty"
    LOADING = "loading"
    READY = "ready"
    CLEARING = "clearing"


@dataclass
class Slot:
    index: int
    state: SlotState = SlotState.EMPTY
    key: AdapterKey | None = None
    references: int = 0
    last_used_s: float = 0.0
    ready_since_s: float = 0.0
    closing: bool = False
    """Takes no new references: it is given to somebody who has waited too long, once it is idle."""

    @property
    def idle(self) -> bool:
        return self.state is SlotState.READY and self.references == 0

    def place(self) -> Place:
        return Place(
            slot=self.index,
            state=self.state,
            key=self.key,
            references=self.references,
            last_used_s=self.last_used_s,
            ready_since_s=self.ready_since_s,
            closing=self.closing,
        )


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A slot as it stands at one moment."""

    slot: int
    state: SlotState
    key: AdapterKey | None
    references: int
    last_used_s: float
    ready_since_s: float
    """When the load of what is in it was over."""
    closing: bool

    @property
    def idle(self) -> bool:
        return self.state is SlotState.READY and not self.references

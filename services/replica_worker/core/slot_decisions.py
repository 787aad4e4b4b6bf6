"""What a slot table answers."""

from __future__ import annotations

import msgspec

from shared.messages.identity import AdapterKey


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A reference was taken; the adapter is in the slot."""

    slot: int
    reason: str


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """A reference was taken; somebody else's load into the slot is under way."""

    slot: int
    reason: str


class MustLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A reference was taken and the slot reserved; the caller loads it and says how that ended."""

    slot: int
    evict: AdapterKey | None
    reason: str


class AllBusy(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was taken: every slot is used, being loaded or being cleared."""

    reason: str


class InUse(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter cannot leave its slot now."""

    reason: str


Acquired = Resident | Loading | MustLoad

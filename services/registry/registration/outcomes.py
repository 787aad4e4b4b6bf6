"""What becomes of an announcement."""

from __future__ import annotations

import msgspec

from services.registry.core import records
from services.registry.core.deployment.aliases import Denied
from services.registry.core.records import StoredAdapter
from shared.messages.adapters import AdapterRegistered, Defect


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is false if exactly this was announced before; the adapter is then where it is by now."""

    adapter: StoredAdapter
    created: bool


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    adapter_id: str
    defects: tuple[Defect, ...]


Outcome = Registered | Rejected | Denied
"""Denied: another adapter has this id already."""


class RegistrationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    largest_file_bytes: int
    verification_deadline_s: float
    evaluation_deadline_s: float


def settled_outcome(known: StoredAdapter, announced: AdapterRegistered) -> Outcome | None:
    """None if its verification is still to be decided; else what became of it meanwhile."""
    if (conflict := records.conflict(known.announced, announced)) is not None:
        return conflict
    if known.status == "registered":
        return None
    if known.status == "rejected":
        return Rejected(adapter_id=known.adapter_id, defects=known.defects)
    return Registered(adapter=known, created=False)


def as_known(outcome: Outcome) -> Outcome:
    """For whoever announced the same while it was being verified."""
    return msgspec.structs.replace(outcome, created=False) if isinstance(outcome, Registered) else outcome

"""Which limits make sense, and how they change."""

from __future__ import annotations

import msgspec

from services.registry.core.deployment.aliases import Denied
from shared.messages.desired import Limits

LARGEST = 1_000_000_000_000
"""Of anything in a minute: what is above it is a mistake, or means none."""


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is not named stays; null takes a limit away."""

    requests_per_min: int | msgspec.UnsetType | None = msgspec.UNSET
    tokens_per_min: int | msgspec.UnsetType | None = msgspec.UNSET
    streams: int | msgspec.UnsetType | None = msgspec.UNSET


def changed(known: Limits, change: Change) -> Limits | Denied:
    """The limits as they are to be, or what is wrong with the first of them."""
    named = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not msgspec.UNSET}
    for name, value in named.items():
        if value is not None and not 1 <= value <= LARGEST:
            message = f"{name} is {value}; it must be from 1 to {LARGEST}, or null for no limit."
            return Denied(kind="invalid", code="limit_invalid", message=message, field=name)
    return msgspec.structs.replace(known, **named)

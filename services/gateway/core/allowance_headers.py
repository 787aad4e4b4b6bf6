"""What a client is told about its limits, in the words of OpenAI's headers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from services.gateway.core.allowance_account import Account
from services.gateway.core.allowance_meter import Meter, Share

_KINDS = tuple(
    (kind, *(f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset")))
    for kind in ("requests", "tokens")
)


def headers(accounts: Sequence[Account], now_s: float, alone: Share | None) -> dict[str, str]:
    """Of each kind the limit of which the least is left. `alone`: by which share the gateway decided itself."""
    told: dict[str, str] = {}
    for kind, limit, rest, reset in _KINDS:
        meters: list[Meter] = [meter for account in accounts if (meter := getattr(account, kind)) is not None]
        if meters:
            lefts = [remaining(meter, now_s, alone) for meter in meters]
            meter = meters[lefts.index(min(lefts))]
            told[limit], told[rest] = str(meter.limit), str(min(lefts))
            told[reset] = duration(_reset_s(meter, now_s, alone))
    return told


def remaining(meter: Meter, now_s: float, alone: Share | None) -> int:
    if alone is None:
        return meter.remaining(now_s)
    return max(0, alone.own(meter.limit) - meter.own.used(now_s))


def duration(seconds: float) -> str:
    """As in "1m30s", "6s" or "250ms"; never shorter than it is."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _reset_s(meter: Meter, now_s: float, alone: Share | None) -> float:
    return meter.reset_s(now_s) if alone is None else meter.own.reset_s(now_s)

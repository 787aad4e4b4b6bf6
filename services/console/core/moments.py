"""Moments as operators say them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def moment_of(text: str, now_s: float) -> float:
    """Seconds since 1970 of "1h" (so long before `now_s`) or "2026-11-30T10:00" (UTC unless it says otherwise).
    Raises ValueError."""
    if (ago := _AGO.fullmatch(text)) is not None:
        return now_s - float(ago[1]) * _SECONDS[ago[2]]
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no moment such as 90s, 10m, 1h, 7d or 2026-11-30T10:00") from None
    return (said if said.tzinfo is not None else said.replace(tzinfo=UTC)).timestamp()


def day_name(day: int) -> str:
    """Of days since 1970."""
    return datetime.fromtimestamp(day * _SECONDS["d"], UTC).strftime("%Y-%m-%d")

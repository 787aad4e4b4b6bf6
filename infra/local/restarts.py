"""How often a child may die before the fleet gives up: pure, so that a test can show both ends."""

from __future__ import annotations

import msgspec

_WINDOW_S = 60.0
_MOST_DEATHS = 5
_FIRST_DELAY_S = 0.2
_LONGEST_DELAY_S = 8.0
_REST_S = 60.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`restart_in_s` None: leave it dead and stop the fleet."""

    restart_in_s: float | None
    reason: str


class Deaths(msgspec.Struct, frozen=True, kw_only=True):
    at_s: tuple[float, ...] = ()


def on_death(deaths: Deaths, now_s: float, *, vital: bool = True) -> tuple[Deaths, Verdict]:
    """Restart with a growing delay; after five deaths in a minute it is not bad luck any more, and a child that is not
    `vital` rests for a minute."""
    recent = (*(at for at in deaths.at_s if now_s - at < _WINDOW_S), now_s)
    if len(recent) >= _MOST_DEATHS:
        reason = f"died {len(recent)} times in {_WINDOW_S:.0f} s"
        return Deaths(at_s=recent), Verdict(restart_in_s=None if vital else _REST_S, reason=reason)
    delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 4 ** (len(recent) - 1))
    return Deaths(at_s=recent), Verdict(restart_in_s=delay_s, reason=f"death {len(recent)} in {_WINDOW_S:.0f} s")

"""Requests whose adapter is in RAM, and how long it takes until it is in a slot and has been proven there.

An operator's order says how long the copy takes, and not what a request needs around it: to be put aside, and to go
on. A fleet with fewer slots than customers that is asked by one after the other finds most of them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from loadtest.calibration.seen import Seen

ENOUGH = 6
"""Requests that found their adapter in RAM, and as many in a slot."""
_ALIKE = 1.1


def climb_s(from_ram: Sequence[Seen], alone: Sequence[Seen]) -> float | None:
    """By how much later their first tokens come than those of lone requests alike that found a slot; None if too few
    tell."""
    climbed = [each for each in from_ram if each.tier == "ram" and each.first_s is not None]
    if len(climbed) < ENOUGH:
        return None
    longest = _ALIKE * max(each.prompt_tokens for each in climbed)
    resident = [each for each in alone if each.tier == "gpu" and each.prompt_tokens <= longest and each.first_s]
    if len(resident) < ENOUGH:
        return None
    return max(0.0, median(each.ttft_s or 0.0 for each in climbed) - median(each.ttft_s or 0.0 for each in resident))

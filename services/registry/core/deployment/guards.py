"""On which conditions an alias goes back by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from shared.messages.effects import AdapterEffect
from shared.messages.operations import Fingerprint

LONGEST_WINDOW_S = 86_400.0


class Guard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the version that an alias has just come to mean must keep to, counted from that change.

    `max_error_rate` (0 to 1) and `max_ttft_p95_ms` count once there were `minimum_requests` in the last `window_s`;
    with `probe` an owner is asked now and then what is really in its slot. After `hold_s` the version has passed.
    """

    max_error_rate: float | None = None
    max_ttft_p95_ms: float | None = None
    probe: bool = False
    minimum_requests: int = 20
    window_s: float = 60.0
    hold_s: float = 600.0


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """How a version has fared in the window. `trouble` is a sentence if a replica, or its record, speaks against it."""

    requests: int = 0
    errors: int = 0
    ttft_p95_ms: float | None = None
    trouble: str = ""


def guard_fault(guard: Guard) -> str | None:
    """What is wrong with the conditions, in one sentence."""
    if guard.max_error_rate is None and guard.max_ttft_p95_ms is None and not guard.probe:
        return "A guard needs a condition: max_error_rate, max_ttft_p95_ms or probe."
    if guard.max_error_rate is not None and not 0 <= guard.max_error_rate < 1:
        return f"max_error_rate is {guard.max_error_rate}; it must be at least 0 and below 1."
    if guard.max_ttft_p95_ms is not None and not _is_positive(guard.max_ttft_p95_ms):
        return f"max_ttft_p95_ms is {guard.max_ttft_p95_ms}; it must be above 0."
    if guard.minimum_requests < 1:
        return f"minimum_requests is {guard.minimum_requests}; it must be at least 1."
    for name in ("window_s", "hold_s"):
        if not (_is_positive(value := getattr(guard, name)) and value <= LONGEST_WINDOW_S):
            return f"{name} is {value}; it must be above 0 and at most {LONGEST_WINDOW_S:g}."
    return None


def breach(guard: Guard, observed: Observed) -> str | None:
    """Why the alias has to go back, with the figures, or None while the version keeps to its conditions."""
    if observed.trouble:
        return observed.trouble
    if observed.requests < guard.minimum_requests:
        return None
    rate, in_window = observed.errors / observed.requests, f"of {observed.requests} requests in {guard.window_s:g} s"
    if guard.max_error_rate is not None and rate > guard.max_error_rate:
        return f"{observed.errors} {in_window} failed ({rate:.1%}, allowed are {guard.max_error_rate:.1%})"
    slow_ms = observed.ttft_p95_ms
    if guard.max_ttft_p95_ms is not None and slow_ms is not None and slow_ms > guard.max_ttft_p95_ms:
        return f"TTFT p95 {in_window} is {slow_ms:.0f} ms (allowed are {guard.max_ttft_p95_ms:g} ms)"
    return None


def judge_probe(found: Fingerprint, effects: Sequence[AdapterEffect]) -> str:
    """What is wrong with what a replica has in its slot, "" if it is what was evaluated. Engines and dtypes that were
    never evaluated on cannot be compared."""
    if found.effect is None:
        return ""
    for effect in effects:
        if effect.engine == found.effect.engine and effect.slot_digest != found.effect.slot_digest:
            held, evaluated = found.effect.slot_digest[:12], effect.slot_digest[:12]
            return f"the slot on {found.replica_id} holds {held}, evaluated was {evaluated} ({effect.engine})"
    return ""


def has_held(guard: Guard, since_s: float, now_s: float) -> bool:
    """Whether the version has passed: the guard then watches it no more."""
    return now_s - since_s >= guard.hold_s


def window_begins_s(guard: Guard, since_s: float, now_s: float) -> float:
    """What came before the change is none of the new version's."""
    return max(since_s, now_s - guard.window_s)


def _is_positive(value: float) -> bool:
    return math.isfinite(value) and value > 0

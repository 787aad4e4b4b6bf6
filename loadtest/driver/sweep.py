"""A higher rate at every step, until the fleet no longer does what it is to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

Figures = Mapping[str, Any]
Try = Callable[[float], Awaitable[Figures | None]]
"""The figures of a run at so many requests a second, or None if it was broken off."""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """From `rate_per_s` on, each step `factor` times the last, `most_steps` at most."""

    rate_per_s: float
    factor: float = 1.25
    most_steps: int = 20


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What a rate has to hold. A tool that is late itself measures no fleet: beyond `delay_ms` it says so."""

    p95_ttft_ms: float = 1_000.0
    failed_share: float = 0.01
    delay_ms: float = 50.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    rate_per_s: float
    figures: Figures
    misses: str
    """Why it does not hold, "" if it does."""


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[Step, ...]
    broken_off: bool = False

    @property
    def holds_per_s(self) -> float | None:
        """The highest rate that held."""
        return max((step.rate_per_s for step in self.steps if not step.misses), default=None)

    @property
    def verdict(self) -> str:
        if not self.steps:
            return "Nothing was measured."
        last, holds = self.steps[-1], self.holds_per_s
        held = "No rate holds" if holds is None else f"{holds:g} requests/s hold"
        if last.misses:
            return f"{held}; at {last.rate_per_s:g} {last.misses}."
        why = "it was broken off" if self.broken_off else "that was the last step"
        return f"{held}, and more may: {why}."


async def sweep(wanted: Sweep, objective: Objective, attempt: Try, tell: Callable[[Step], None]) -> Swept:
    """`tell` hears of every step as soon as it has been made."""
    steps: list[Step] = []
    rate_per_s = wanted.rate_per_s
    for _ in range(wanted.most_steps):
        figures = await attempt(rate_per_s)
        if figures is None:
            return Swept(steps=tuple(steps), broken_off=True)
        steps.append(Step(rate_per_s=rate_per_s, figures=figures, misses=misses(figures, objective)))
        tell(steps[-1])
        if steps[-1].misses:
            break
        rate_per_s = float(f"{rate_per_s * wanted.factor:.3g}")
    return Swept(steps=tuple(steps))


def misses(figures: Figures, objective: Objective) -> str:
    """Why these figures do not meet the objective; "" if they do."""
    delay_ms, p95_ms = figures["p99_schedule_delay_ms"], figures["p95_ttft_ms"]
    if delay_ms is None:
        return "no request was due after the warm-up"
    if delay_ms > objective.delay_ms:
        return f"the load tool itself is late (p99 of the schedule delay {delay_ms:.0f} ms)"
    if figures["failed"] > objective.failed_share * figures["requests"]:
        return f"{figures['failed']:,} of {figures['requests']:,} requests fail"
    if p95_ms is None or p95_ms > objective.p95_ttft_ms:
        return f"p95 TTFT is {p95_ms or 0:,.0f} ms"
    return ""

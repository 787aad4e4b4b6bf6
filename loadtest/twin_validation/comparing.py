"""How far the twin is from the real fleet, and how far the real fleet is from itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from loadtest.plots.validation import Compared, Measured
from loadtest.report import Figure
from loadtest.twin_validation.answers import RunFigures

THROUGHPUT, TTFT = 0.05, 0.10
"""Errors that are always allowed. More is, where the fleet's own runs scatter: twice their spread."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One workload: every run of the real fleet, and runs of the twin that differ in their seeds."""

    workload: str
    real: tuple[RunFigures, ...]
    twin: tuple[RunFigures, ...]

    def measured(self, pick: Callable[[RunFigures], float]) -> Measured:
        return Measured(real=tuple(pick(each) for each in self.real), twin=fmean(pick(each) for each in self.twin))

    @property
    def compared(self) -> Compared:
        return Compared(
            workload=self.workload,
            tokens_per_s=self.measured(lambda run: run.tokens_per_s),
            ttft_p50_s=self.measured(lambda run: run.ttft_p50_s),
            ttft_p95_s=self.measured(lambda run: run.ttft_p95_s),
        )


def figures_of(results: Sequence[Result]) -> dict[str, Figure]:
    """Each workload's errors, spreads and values, and over all of them the error that is the worst for what was
    allowed."""
    found: dict[str, Figure] = {}
    for what, always in (("throughput", THROUGHPUT), ("ttft_p50", None), ("ttft_p95", TTFT)):
        errors = [_judged(_of(result.compared, what), always) for result in results]
        worst = max(errors, key=lambda each: abs(each.error) / each.allowed)
        found[f"twin.{what}_err"] = _figure(abs(worst.error), None if always is None else worst.allowed)
        for result, each in zip(results, errors, strict=True):
            name = f"{_slug(result.workload)}.{what}"
            found[f"{name}_err"] = _figure(abs(each.error), None if always is None else each.allowed)
            found[f"{name}_spread"] = _figure(each.spread, None)
    for result in results:
        found |= _values(result)
    return found


class _Judged(msgspec.Struct, frozen=True, kw_only=True):
    error: float
    spread: float
    allowed: float


def _judged(measured: Measured, always: float | None) -> _Judged:
    allowed = max(always or TTFT, 2 * measured.spread)
    return _Judged(error=measured.error, spread=measured.spread, allowed=allowed)


def _of(compared: Compared, what: str) -> Measured:
    by_name = {
        "throughput": compared.tokens_per_s, "ttft_p50": compared.ttft_p50_s, "ttft_p95": compared.ttft_p95_s,
    }  # fmt: skip
    return by_name[what]


def _values(result: Result) -> dict[str, Figure]:
    compared, name = result.compared, _slug(result.workload)
    found: dict[str, Figure] = {}
    for what, unit, factor in (("throughput", "tokens/s", 1.0), ("ttft_p50", "ms", 1e3), ("ttft_p95", "ms", 1e3)):
        measured = _of(compared, what)
        for side, value in (("real", fmean(measured.real)), ("twin", measured.twin)):
            found[f"{name}.{what}.{side}"] = Figure(value=round(factor * value, 3), unit=unit)
    for side, runs in (("real", result.real), ("twin", result.twin)):
        found[f"{name}.failed.{side}"] = Figure(value=fmean(run.failed for run in runs), unit="requests")
        found[f"{name}.gpu_hit.{side}"] = Figure(value=round(fmean(map(_gpu_hit, runs)), 4), unit="")
    return found


def _gpu_hit(run: RunFigures) -> float:
    return run.tiers.get("gpu", 0) / max(1, sum(run.tiers.values()))


def _figure(share: float, allowed: float | None) -> Figure:
    target = None if allowed is None else f"<= {allowed:.4f}"
    return Figure(value=round(share, 4), unit="", target=target)


def _slug(workload: str) -> str:
    return "_".join(workload.replace(",", "").replace(".", "").lower().split())

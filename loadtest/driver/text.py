"""The figures of a run for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadtest.driver.figures import SPREAD
from loadtest.driver.sweep import Swept

_SHOWN = 5
_OF_A_RATE = (
    *("request_rate", "request_throughput", "output_throughput", "median_ttft_ms", "p95_ttft_ms"),
    *("median_tpot_ms", "p95_tpot_ms", "failed"),
)

Row = Sequence[str]


def lines(figures: Mapping[str, Any]) -> str:
    parts = ["\n".join(_counts(figures)), _columns(_times(figures))]
    if figures["by_adapter"]["count"] > 1:
        parts.append(_columns(_slowest(figures["by_adapter"])))
    return "\n\n".join(parts)


def row(figures: Mapping[str, Any], misses: str) -> str:
    """One rate of a sweep in a line."""
    ttft_ms, p95_ms, tpot_ms = (_number(figures[f"{name}_ms"]) for name in ("median_ttft", "p95_ttft", "median_tpot"))
    return (
        f"  {_number(figures['request_rate']):>8} requests/s  p50 {ttft_ms:>8} ms  p95 {p95_ms:>8} ms to the first,"
        f" {tpot_ms} ms per token  {misses or 'holds'}"
    )


def sweep_lines(swept: Swept) -> str:
    rows: list[Row] = [("requests/s", "done/s", "tokens/s", "ttft ms", "p95", "tpot ms", "p95", "failed")]
    rows += [tuple(_number(step.figures[name]) for name in _OF_A_RATE) for step in swept.steps]
    return f"{_columns(rows)}\n\n{swept.verdict}"


def _counts(figures: Mapping[str, Any]) -> Iterator[str]:
    failures = ", ".join(f"{count} × {outcome}" for outcome, count in figures["failures"].items())
    yield (
        f"requests    {figures['requests']:,} due, {figures['completed']:,} completed, {figures['failed']:,} failed"
        + (f" ({failures})" if failures else "")
        + (f"; {figures['warm_up_requests']:,} before, for warming up" if figures["warm_up_requests"] else "")
        + (f"; {figures['stopped']:,} given up" if figures["stopped"] else "")
    )
    for outcome, said in figures["failure_reasons"].items():
        yield from (f"            {outcome}: {sentence}" for sentence in said)
    rates = ("request_throughput", "output_throughput", "duration")
    requests, tokens, seconds = (_number(figures[name]) for name in rates)
    yield (
        f"throughput  {requests} requests/s, {tokens} output tokens/s in {seconds} s,"
        f" up to {figures['max_concurrent_requests']:,} streams"
    )
    if figures["goodput_share"] is not None:
        yield f"goodput     {_number(figures['request_goodput'])} requests/s, {figures['goodput_share']:.2%} of all"
    if figures["contents"]:
        yield "markers     " + ", ".join(f"{count:,} {kind}" for kind, count in figures["contents"].items())


def _times(figures: Mapping[str, Any]) -> Iterator[Row]:
    yield ("ms", *SPREAD)
    tiers = figures["by_tier"]
    for name in ("ttft", "tpot", "itl", "e2el"):
        yield (name, *_spread(figures, name))
        if name in ("ttft", "tpot") and len(tiers) > 1:
            yield from ((f"  {tier}", *_spread(found, name)) for tier, found in tiers.items())
    yield ("schedule delay", *_spread(figures, "schedule_delay"))


def _slowest(split: Mapping[str, Any]) -> Iterator[Row]:
    yield (f"slowest of {split['count']:,}", "requests", "failed", "ttft ms", "p95")
    for row in split["slowest"][:_SHOWN]:
        numbers = (row[name] for name in ("requests", "failed", "median_ttft_ms", "p95_ttft_ms"))
        yield (row["name"], *map(_number, numbers))


def _spread(figures: Mapping[str, Any], name: str) -> Iterator[str]:
    return (_number(figures[f"{what}_{name}_ms"]) for what in SPREAD)


def _columns(rows: Iterator[Row] | Sequence[Row]) -> str:
    """The first to the left, numbers to the right."""
    rows = list(rows)
    first, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    said = (
        row[0].ljust(first) + "".join(f"  {cell:>{max(width, 8)}}" for cell, width in zip(row[1:], widths, strict=True))
        for row in rows
    )
    return "\n".join(said)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1_000 else f"{value:,.3g}"

"""A measured timing for people."""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.twin.measured import Measured
from loadtest.twin.timing import MeasuredTable


def lines(measured: Measured) -> Iterator[str]:
    timing = measured.timing
    if isinstance(timing.steps, MeasuredTable):
        yield from _steps(timing.steps)
    hops = (
        ("store to disk", timing.store_latency_s, timing.store_bytes_per_s),
        ("disk to RAM", timing.disk_latency_s, timing.disk_bytes_per_s),
        ("RAM to slot", timing.slot_latency_s, timing.slot_bytes_per_s),
    )
    for name, latency_s, bytes_per_s in hops:
        yield f"{name:<24} {_ms(latency_s)} and {bytes_per_s / 1e6:,.0f} MB/s"
    for name in ("gateway_s", "bus_s", "worker_s", "relay_s"):
        yield f"{name.removesuffix('_s'):<24} {_ms(getattr(timing, name))}"
    if timing.line_s is not None:
        yield f"{'held up by another':<24} {_ms(timing.line_s)}"
    yield f"{'by a busy replica':<24} {_ms(timing.beside_s)}"
    yield f"{'a prompt beside answers':<24} {timing.crowd_share:.0%} longer"
    if timing.jitter_s:
        yield f"{'jitter':<24} {_ms(min(timing.jitter_s))} to {_ms(max(timing.jitter_s))}"
    yield f"{'a replica restarts in':<24} {measured.restart_s:.1f} s"
    yield from (f"{name:<24} {value}" for name, value in measured.conditions.items())


def _steps(table: MeasuredTable) -> Iterator[str]:
    for rows, times_s in zip(table.rows, table.mean_s, strict=True):
        with_prompts = ", ".join(
            f"{_ms(time_s)} with {tokens} prompt tokens"
            for tokens, time_s in zip(table.prefill_tokens[1:], times_s[1:], strict=True)
        )
        yield f"{f'step of {rows} rows':<24} {_ms(times_s[0])}, {with_prompts}"
    yield f"{'a pair of tokens':<24} {1e9 * table.pair_s:.1f} ns"
    yield f"{'spread of a step':<24} {table.spread:.0%}"


def _ms(time_s: float) -> str:
    return f"{1000 * time_s:.2f} ms"

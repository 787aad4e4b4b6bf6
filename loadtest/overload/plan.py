"""What overload is measured with, and what is made of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from loadtest.driver.answer import OK
from loadtest.driver.figures import meets
from loadtest.driver.seen import Seen
from loadtest.report import Figure
from loadtest.workloads.shape import Lengths, LogNormal, TrafficShape

OBJECTIVE_MS = 1_000.0
REPLICAS = 2
CUSTOMERS = 12
PROMPT_TOKENS, ANSWER_TOKENS = 100, 60
TOKENS_PER_WORD = 5.4
"""The tiny model's tokenizer knows hardly any."""
TIMES = (0.5, 1.0, 2.0, 3.0)
"""The rate, in capacities."""
_TOKENS_PER_S, _PROMPT_TOKENS_PER_S = 640.0, 8_000.0
"""Of a timed replica."""
CAPACITY_PER_S = REPLICAS / (ANSWER_TOKENS / _TOKENS_PER_S + PROMPT_TOKENS / _PROMPT_TOKENS_PER_S)


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """What is due in the first `warm_up_s` does not count."""

    for_s: float
    warm_up_s: float

    @property
    def counted_s(self) -> float:
        return self.for_s - self.warm_up_s


def shape(times: float, span: Span) -> TrafficShape:
    """Answers of very uneven length, which begin all at once: nothing foresees them."""
    lengths = Lengths(
        prompt=LogNormal(mean=PROMPT_TOKENS, cap=600), output=LogNormal(mean=ANSWER_TOKENS, cap=600)
    )  # fmt: skip
    return TrafficShape(
        customers=CUSTOMERS, rate_per_s=times * CAPACITY_PER_S, for_s=span.for_s, lengths=lengths, seed=int(10 * times)
    )


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One rate. Refused are those that were told so with 503 or 429; `failed` are all others that are not whole."""

    requests: int
    refused: int
    failed: int
    goodput_per_s: float
    p95_ttft_ms: float | None
    p95_refusal_ms: float | None
    tpot_ms: float | None


def judged(seen: Sequence[Seen], span: Span) -> Judged:
    good = [one for one in seen if one.outcome == OK]
    refused = [one for one in seen if one.outcome[:3] in ("503", "429")]
    in_time = sum(meets(one, {"ttft": OBJECTIVE_MS}) for one in good)
    return Judged(
        requests=len(seen),
        refused=len(refused),
        failed=len(seen) - len(good) - len(refused),
        goodput_per_s=in_time / span.counted_s,
        p95_ttft_ms=_quantile_ms([one.ttft_s for one in good], 0.95),
        p95_refusal_ms=_quantile_ms([one.e2el_s for one in refused], 0.95),
        tpot_ms=_quantile_ms([one.tpot_s for one in good], 0.5),
    )


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """`before` and `beside` so many open connections that say nothing."""

    connections: int
    grown_bytes: int
    before: Judged
    beside: Judged


def figures_of(swept: Mapping[float, Judged], idle: Idle | None) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    peak = max((one.goodput_per_s for one in swept.values()), default=0.0)
    for times, one in swept.items():
        over = times > 1
        found |= {
            f"goodput_per_s.x{times:g}": _figure(one.goodput_per_s, "1/s"),
            f"goodput_share_of_peak.x{times:g}": _figure(one.goodput_per_s / peak, "", ">= 0.9" if over else None),
            f"p95_ttft_ms.x{times:g}": _figure(one.p95_ttft_ms, "ms", f"<= {OBJECTIVE_MS:g}"),
            f"refused_share.x{times:g}": _figure(one.refused / one.requests, "", None if times >= 1 else "<= 0.01"),
            f"failed.x{times:g}": _figure(one.failed, "", "<= 0"),
        }
        if over:
            found[f"p95_refusal_ms.x{times:g}"] = _figure(one.p95_refusal_ms, "ms", f"<= {OBJECTIVE_MS:g}")
    return found if idle is None else {**found, **_idle(idle)}


def _idle(idle: Idle) -> dict[str, Figure]:
    before, beside = idle.before, idle.beside
    pace = beside.tpot_ms / before.tpot_ms if before.tpot_ms and beside.tpot_ms else None
    return {
        "idle.connections": _figure(idle.connections, "", ">= 10000"),
        "idle.bytes_per_connection": _figure(idle.grown_bytes / max(1, idle.connections), "B", "<= 20000"),
        "idle.tpot_share": _figure(pace, "", "<= 1.1"),
        "idle.p95_ttft_ms": _figure(beside.p95_ttft_ms, "ms", f"<= {OBJECTIVE_MS:g}"),
        "idle.failed": _figure(beside.failed + beside.refused, "", "<= 0"),
    }


def _quantile_ms(times_s: Sequence[float | None], share: float) -> float | None:
    known = [time_s for time_s in times_s if time_s is not None]
    return 1000.0 * float(np.quantile(known, share, method="inverted_cdf")) if known else None


def _figure(value: float | None, unit: str, target: str | None = None) -> Figure:
    return Figure(value=None if value is None else float(f"{value:.4g}"), unit=unit, target=target)

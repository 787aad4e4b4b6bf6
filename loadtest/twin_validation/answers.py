"""A request as both sides can tell of it, and a run's figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from loadtest.calibration.seen import Seen
from loadtest.twin.figures import nearest
from loadtest.twin.outcome import Answered


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Times since the run began."""

    arrived_s: float
    ttft_s: float | None
    ended_s: float
    tokens: int
    tier: str
    replica: str
    good: bool


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of what arrived after the warm-up; times to first token of requests that ended well. `tiers` [where the adapter
    was found]: how many."""

    requests: int
    failed: int
    tokens_per_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    tiers: dict[str, int]


def of_client(seen: Iterable[Seen]) -> list[Answer]:
    return [
        Answer(
            arrived_s=each.sent_s, ttft_s=each.ttft_s, ended_s=each.ended_s, tokens=each.tokens, tier=each.tier,
            replica=each.replica, good=each.outcome == "ok",
        )
        for each in seen
    ]  # fmt: skip


def of_twin(answered: Iterable[Answered]) -> list[Answer]:
    return [
        Answer(
            arrived_s=each.arrived_s, ttft_s=each.ttft_s, ended_s=each.ended_s, tokens=each.tokens, tier=each.tier,
            replica=each.replica, good=each.outcome == "ok",
        )
        for each in answered
    ]  # fmt: skip


def figures(answers: Sequence[Answer], warm_up_s: float) -> RunFigures:
    """Throughput is all tokens from the first arrival to the last end. Raises ValueError if nothing ended well."""
    counted = [each for each in answers if each.arrived_s >= warm_up_s]
    good = [each for each in counted if each.good]
    ranked = sorted(each.ttft_s for each in good if each.ttft_s is not None)
    if not ranked:
        raise ValueError(f"none of {len(counted)} requests ended well")
    span_s = max(each.ended_s for each in good) - min(each.arrived_s for each in good)
    found = sorted({each.tier for each in good})
    return RunFigures(
        requests=len(counted),
        failed=len(counted) - len(good),
        tokens_per_s=sum(each.tokens for each in good) / span_s,
        ttft_p50_s=nearest(ranked, 0.5),
        ttft_p95_s=nearest(ranked, 0.95),
        tiers={tier: sum(each.tier == tier for each in good) for tier in found},
    )

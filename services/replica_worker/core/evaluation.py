"""Is an adapter finite, and does it change anything?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .effect import Distribution

EPSILON = 1e-3
"""The smallest change of a log probability that counts: far above rounding, far below any trained effect."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    passed: bool
    largest_change: float
    reason: str
    finite: bool = True


def judge(pairs: Sequence[tuple[Distribution, Distribution]], epsilon: float = EPSILON) -> Verdict:
    """Compare (base, adapted) after the same prompts. Passed iff all is finite and something differs."""
    if not all(base.finite and adapted.finite for base, adapted in pairs):
        reason = "an output with this adapter is not finite"
        return Verdict(passed=False, largest_change=0.0, reason=reason, finite=False)
    largest = max((_change(base, adapted) for base, adapted in pairs), default=0.0)
    if largest > epsilon or any(base.token_ids[:1] != adapted.token_ids[:1] for base, adapted in pairs):
        return Verdict(passed=True, largest_change=largest, reason="finite, and differs from the base")
    return Verdict(
        passed=False, largest_change=largest,
        reason=f"no effect: over {len(pairs)} prompts no log probability changes by more than {epsilon:g}",
    )  # fmt: skip


def _change(base: Distribution, adapted: Distribution) -> float:
    """The largest change of a token that both lists name."""
    before = dict(zip(base.token_ids, base.logprobs, strict=True))
    after = dict(zip(adapted.token_ids, adapted.logprobs, strict=True))
    return max((abs(before[token] - after[token]) for token in before.keys() & after.keys()), default=0.0)

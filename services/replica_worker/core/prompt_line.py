"""How long a first token takes in a row, by how many prompts were there before it: where an engine computes prompts one
after another, a free row alone promises nothing."""

from __future__ import annotations

import math

import msgspec

_KEPT = 0.97
_LEAST_WEIGHT = 5.0
"""Before so many first tokens nothing is said."""
_LEAST_LINE = 2
"""One prompt before its own is nobody's overload, however long it is."""
_RIDGE = 0.25
"""Lines that were alike say nothing about what a prompt costs: it is then taken to cost those behind it nothing."""
_ONE_IN_TWENTY = 1.645
"""Standard deviations."""


class PromptLine(msgspec.Struct, frozen=True, kw_only=True):
    """First token's time ≈ a + b · prompts before it: the sums of a weighted least-squares fit, thirty of lately.
    `PromptLine()` knows nothing."""

    weight: float = 0.0
    ahead: float = 0.0
    seconds: float = 0.0
    ahead2: float = 0.0
    seconds2: float = 0.0
    ahead_seconds: float = 0.0

    def after(self, ahead: int, seconds: float) -> PromptLine:
        """With one more first token, which took so long from its row on."""
        return PromptLine(
            weight=_KEPT * self.weight + 1.0,
            ahead=_KEPT * self.ahead + ahead,
            seconds=_KEPT * self.seconds + seconds,
            ahead2=_KEPT * self.ahead2 + ahead * ahead,
            seconds2=_KEPT * self.seconds2 + seconds * seconds,
            ahead_seconds=_KEPT * self.ahead_seconds + ahead * seconds,
        )

    def wait(self, ahead: int) -> LineWait | None:
        """What a request waits for so many prompts before its own; None: for nothing, or nobody can tell."""
        if ahead < _LEAST_LINE or self.weight < _LEAST_WEIGHT or not self.ahead:
            return None
        mean_ahead, mean_s = self.ahead / self.weight, self.seconds / self.weight
        variance = max(0.0, self.ahead2 / self.weight - mean_ahead**2)
        slope = (self.ahead_seconds / self.weight - mean_ahead * mean_s) / (variance + _RIDGE)
        prompt_s = min(max(slope, 0.0), mean_s / mean_ahead)
        if not prompt_s:
            return None
        alone_s = mean_s - prompt_s * mean_ahead
        off_s = math.sqrt(max(0.0, self.seconds2 / self.weight - mean_s**2 - prompt_s**2 * variance))
        # As uneven as prompts are, none waits longer than it would if each took twice its time.
        late_s = prompt_s * ahead + min(_ONE_IN_TWENTY * off_s, prompt_s * ahead)
        return LineWait(mean_s=prompt_s * ahead, late_s=late_s, alone_s=alone_s, prompt_s=prompt_s)


class LineWait(msgspec.Struct, frozen=True, kw_only=True):
    """`mean_s` as things go, `late_s` for all but one in twenty such requests; its first token comes `alone_s` later,
    and those behind it wait `prompt_s` longer."""

    mean_s: float
    late_s: float
    alone_s: float
    prompt_s: float

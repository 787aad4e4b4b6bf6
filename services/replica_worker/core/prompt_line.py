"""How long a first token takes in a row, by how many prompts were there before it: where an engine computes prompts one
after another, a free row alone promises nothing."""

from __future__ import annotations

import math

import msgspec

_KEPT = 0.97
_LEAST_WEIGHT = 5.0
"""Before so many first tokens nothing is said."""
LEAST_LINE = 2
"""One prompt before its own is nobody's overload, however long it is."""
_RIDGE = 0.25
"""Lines that were alike say nothing about what a prompt costs: it is then taken to cost those behind it nothing."""
_ONE_IN_TWENTY = 1.645
"""Standard deviations."""
_LONGEST = 4.0
"""Times what is usual: a first token that took longer (the process was paused, a kernel was compiled) counts as one of
so much, or an idle replica would refuse the next small burst for it. A slower engine is believed after some more."""


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
        if self.weight >= _LEAST_WEIGHT and (usual_s := self._usual_s(ahead)):
            seconds = min(seconds, _LONGEST * usual_s)
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
        if ahead < LEAST_LINE or self.weight < _LEAST_WEIGHT or not self.ahead:
            return None
        prompt_s = self._prompt_s()
        if not prompt_s:
            return None
        mean_s = self.seconds / self.weight
        alone_s = mean_s - prompt_s * self.ahead / self.weight
        off_s = math.sqrt(max(0.0, self.seconds2 / self.weight - mean_s**2 - prompt_s**2 * self._variance()))
        # As uneven as prompts are, none waits longer than it would if each took twice its time.
        late_s = prompt_s * ahead + min(_ONE_IN_TWENTY * off_s, prompt_s * ahead)
        return LineWait(mean_s=prompt_s * ahead, late_s=late_s, alone_s=alone_s, prompt_s=prompt_s)

    def _usual_s(self, ahead: int) -> float:
        """Of a first token behind so many prompts; no less than the mean of all."""
        further = max(0.0, ahead - self.ahead / self.weight)
        return self.seconds / self.weight + self._prompt_s() * further

    def _prompt_s(self) -> float:
        """What each prompt adds for those behind it."""
        if not self.ahead:
            return 0.0
        mean_ahead, mean_s = self.ahead / self.weight, self.seconds / self.weight
        slope = (self.ahead_seconds / self.weight - mean_ahead * mean_s) / (self._variance() + _RIDGE)
        return min(max(slope, 0.0), mean_s / mean_ahead)

    def _variance(self) -> float:
        """Of how many were before."""
        return max(0.0, self.ahead2 / self.weight - (self.ahead / self.weight) ** 2)


class LineWait(msgspec.Struct, frozen=True, kw_only=True):
    """`mean_s` as things go, `late_s` for all but one in twenty such requests; its first token comes `alone_s` later,
    and those behind it wait `prompt_s` longer."""

    mean_s: float
    late_s: float
    alone_s: float
    prompt_s: float

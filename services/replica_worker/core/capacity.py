"""How many tokens a second this replica could produce with every row taken, from the engine's own steps of lately.

A token costs its share of a full step, and its share of the prompts: with 750 tokens in for 250 out, those take a
seventh of fleet A's time, and whoever leaves them out plans for replicas that are a seventh too few.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from .prompt_line import LEAST_LINE
from .prompt_pace import PromptPace, PromptWait

HALF_LIFE_STEPS = 200
"""Ten seconds of fleet A: long beside the noise of steps, short beside what a change of load does to them."""

_KEPT = math.pow(0.5, 1.0 / HALF_LIFE_STEPS)

_LEAST_WEIGHT = 15.0
"""Before so many steps were seen, nothing is said."""

_LONGEST = 4.0
"""Times the mean: a step that took longer (the process was paused, a kernel was compiled) counts as one of so much.
An engine that has really become slower is believed after some more."""

_LONGEST_WITH_PROMPT = 20.0
"""The same for a step beside a prompt, which takes several times as long as others."""

HALF_LIFE_TOKENS = 16_000
"""Some forty seconds and sixty prompts of fleet A: prompts are few, and differ more than steps do."""

_SEEN_SHARE = 0.25
"""Of so many rows, on average over the steps of lately."""

_RIDGE_ROWS2 = 1.0
"""Rows that hardly vary say nothing about what a row costs: it is then taken to cost nothing more."""


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """Step time ≈ a + b · rows: the sums of a weighted least-squares fit. `StepTime()` knows nothing."""

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    rows2: float = 0.0
    rows_seconds: float = 0.0

    def after(self, rows: int, seconds: float) -> StepTime:
        """With one more step of so many rows. One of the first that is far shorter than those before it shows that they
        were no measure."""
        if self.weight:
            mean_s = self.seconds / self.weight
            if self.weight < _LEAST_WEIGHT and _LONGEST * seconds < mean_s:
                return StepTime().after(rows, seconds)
            seconds = min(seconds, _LONGEST * mean_s)
        return StepTime(
            weight=_KEPT * self.weight + 1.0,
            rows=_KEPT * self.rows + rows,
            seconds=_KEPT * self.seconds + seconds,
            rows2=_KEPT * self.rows2 + rows * rows,
            rows_seconds=_KEPT * self.rows_seconds + rows * seconds,
        )

    def tokens_per_s(self, max_rows: int, prompt_s_per_token: float = 0.0) -> float:
        """With every row taken, and so much time for prompts beside each token; 0: not known yet."""
        if self.weight < _LEAST_WEIGHT:
            return 0.0
        return 1.0 / (self.step_s(max_rows) / max_rows + prompt_s_per_token)

    def beyond_s(self, rows: int, seconds: float) -> float:
        """What a step took beyond decoding so many rows; 0 while nothing is known of that."""
        if self.weight < _LEAST_WEIGHT:
            return 0.0
        longest_s = _LONGEST_WITH_PROMPT * self.seconds / self.weight
        return max(0.0, min(seconds, longest_s) - self.step_s(max(rows, 1)))

    def step_s(self, rows: int) -> float:
        """Of a step with so many rows. Neither a nor b is below zero, so it lies between what was seen, and what it
        would be if rows were all that takes time."""
        mean_rows, mean_s = self.rows / self.weight, self.seconds / self.weight
        variance = max(0.0, self.rows2 / self.weight - mean_rows**2)
        slope = (self.rows_seconds / self.weight - mean_rows * mean_s) / (variance + _RIDGE_ROWS2)
        slope = min(max(slope, 0.0), mean_s / mean_rows)
        return mean_s + slope * (rows - mean_rows)

    def has_seen(self, rows: int) -> bool:
        """Steps with so many rows, or nearly: what a few rows take says little of many."""
        return self.rows >= _SEEN_SHARE * rows * self.weight


class PromptTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time that prompts took, and the tokens that were produced meanwhile; both fade with the tokens."""

    seconds: float = 0.0
    tokens: float = 0.0

    def after(self, tokens: int, seconds: float = 0.0) -> PromptTime:
        kept = math.pow(0.5, tokens / HALF_LIFE_TOKENS)
        return PromptTime(seconds=kept * self.seconds + seconds, tokens=kept * self.tokens + tokens)

    @property
    def s_per_token(self) -> float:
        return self.seconds / self.tokens if self.tokens else 0.0


@dataclass
class Capacity:
    """Told of every step. What decoding takes, only those tell in which nothing else happened: everybody who got a
    token had one before, and nobody's prompt was being computed. What prompts take, the others tell, less what decoding
    would have taken; but not the first step after a rest, of which nobody knows when it began."""

    _time: StepTime = field(default_factory=StepTime)
    _as_they_come: StepTime = field(default_factory=StepTime)
    """Of all steps, with the prompts that are computed in them."""
    _prompts: PromptTime = field(default_factory=PromptTime)
    _line: PromptPace = field(default_factory=PromptPace)
    _going_on: frozenset[str] = field(default_factory=frozenset)
    _computing: int = 0
    """Rows whose prompts were computed when the last step began."""
    _rests: bool = True
    _at_s: float = 0.0

    def step(self, tokens: Mapping[str, int], ended: frozenset[str], running: int, now_s: float) -> None:
        """What one step produced, by request (an engine may hand out several steps of a request together), which of
        them ended with it, and how many rows are taken after it."""
        going_on = frozenset(tokens) - ended
        decoded_only = tokens.keys() <= self._going_on and running <= len(going_on)
        steps, passed_s = max(tokens.values(), default=0), now_s - self._at_s
        prompt_s = 0.0
        if not self._rests and tokens and passed_s > 0:
            self._as_they_come = self._as_they_come.after(len(tokens), passed_s / steps)
            self._line = self._line_after(len(tokens.keys() - self._going_on), len(tokens), steps, passed_s)
        if decoded_only and steps and passed_s > 0:
            self._time = self._time.after(len(tokens), passed_s / steps)
        elif not self._rests:
            decoding = len(tokens.keys() & self._going_on)
            prompt_s = max(1, steps) * self._time.beyond_s(decoding, passed_s / max(1, steps))
        self._prompts = self._prompts.after(sum(tokens.values()), prompt_s)
        self._going_on, self._at_s, self._rests = going_on, now_s, not running
        self._computing = running - len(going_on)

    def prompt_wait(self, ahead: int, rows: int) -> PromptWait | None:
        """Behind so many prompts, once so many rows are taken; None: for nothing, or nobody can tell."""
        if ahead < LEAST_LINE or not self._as_they_come.weight:
            return None
        return self._line.wait(ahead, self._as_they_come.step_s(max(rows, 1)))

    def _line_after(self, prompts: int, rows: int, steps: int, passed_s: float) -> PromptPace:
        """With so many more steps that were handed out together; a prompt alone in them does not tell how fast several
        are done."""
        if self._computing < LEAST_LINE:
            return self._line
        step_s = self._as_they_come.step_s(rows)
        return self._line.after(prompts, min(passed_s / step_s, _LONGEST * steps) if step_s else float(steps))

    def tokens_per_s(self, max_rows: int) -> float:
        """0: not known yet."""
        return self._time.tokens_per_s(max_rows, self._prompts.s_per_token)

    def measured_tokens_per_s(self, max_rows: int) -> float:
        """The same, but 0 while it would be no more than a guess from a few rows. A full replica that computes prompts
        all the time has no step without: then it is what its steps give as they come."""
        return measured_tokens_per_s(self._time, self._as_they_come, self._prompts, max_rows)


def measured_tokens_per_s(time: StepTime, as_they_come: StepTime, prompts: PromptTime, max_rows: int) -> float:
    """By the steps that only decoded, and without enough of those by all; 0: neither says anything of so many rows."""
    if time.has_seen(max_rows) and (found := time.tokens_per_s(max_rows, prompts.s_per_token)):
        return found
    return as_they_come.tokens_per_s(max_rows) if as_they_come.has_seen(max_rows) else 0.0

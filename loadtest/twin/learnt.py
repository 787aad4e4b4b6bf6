"""What a replica has learnt of how long its steps take, by the measures that the real one keeps."""

from __future__ import annotations

from services.replica_worker.core.capacity import PromptTime, StepTime

_TELLING = 4
"""Of steps alike so many count for what a step takes: more say nothing new."""


class Learnt:
    def __init__(self) -> None:
        self._step_time = StepTime()
        self._prompt_time = PromptTime()

    def look(self, steps: int, giving: int, step_s: float, *, plain: bool, prompts: bool) -> None:
        """At so many steps alike, in which `giving` rows gave a token each; `plain`: and nothing else was computed;
        `prompts`: some of prompts was."""
        if plain and giving:
            for _ in range(min(steps, _TELLING)):
                self._step_time = self._step_time.after(giving, step_s)
        prompt_s = self._step_time.beyond_s(giving, step_s) if prompts else 0.0
        self._prompt_time = self._prompt_time.after(giving * steps, prompt_s)

    def has_seen(self, rows: int) -> bool:
        """Whether it may be believed about so many rows."""
        return self._step_time.has_seen(rows)

    def tokens_per_s(self, rows: int) -> float:
        """With so many rows, and the prompts of lately beside them; 0: not known yet."""
        return self._step_time.tokens_per_s(rows, self._prompt_time.s_per_token)

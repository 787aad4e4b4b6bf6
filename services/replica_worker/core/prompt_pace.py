"""How fast prompts are done where they wait for each other, whatever the order in which an engine computes them.

How long one of them waited says little where prompts take turns: one that was cut may wait for those that came later.
But the line is as long as it is, so behind `n` of them the mean wait is `n` times what each takes (Little's law)."""

from __future__ import annotations

import msgspec

_KEPT = 0.97
"""Some thirty prompts of lately count."""
_LEAST_PROMPTS = 5.0
_OWN_STEPS = 1.5
"""A prompt waits for half a step that is under way, and is computed in the next one."""


class PromptPace(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts that were done while others waited, and in how many steps: each as long as one with as many rows is
    foreseen to be, so that what is learnt with few rows holds with many. `PromptPace()` knows nothing."""

    prompts: float = 0.0
    steps: float = 0.0

    def after(self, prompts: int, steps: float) -> PromptPace:
        kept = _KEPT**prompts
        return PromptPace(prompts=kept * self.prompts + prompts, steps=kept * self.steps + steps)

    def wait(self, ahead: int, step_s: float) -> PromptWait | None:
        """Behind so many prompts, with steps of `step_s`; None: nobody can tell."""
        if self.prompts < _LEAST_PROMPTS:
            return None
        prompt_s = step_s * self.steps / self.prompts
        return PromptWait(mean_s=ahead * prompt_s, alone_s=max(_OWN_STEPS * step_s, prompt_s), prompt_s=prompt_s)


class PromptWait(msgspec.Struct, frozen=True, kw_only=True):
    """Its turn comes after `mean_s`, as things go, its first token `alone_s` later; one comes every `prompt_s`."""

    mean_s: float
    alone_s: float
    prompt_s: float

"""Does a base with an adapter merged in say what base and adapter say beside each other?

The same sum is rounded at another place: unmerged, W·x and B·A·x are added; merged, W and B·A are, once, and cast.
In 16 bits that moves log-probabilities by up to a tenth of what the adapter changes, in float32 by nothing to speak
of. A scale that is doubled, or another adapter, moves them by about as much as the adapter itself does.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .effect import Distribution, Tolerance, change, spelled

PROMPTS = (
    "Hello!",
    "My order has not arrived. What can I do?",
    "List three colours.",
    "Write one sentence about the sea.",
)

_TOLERANCES = {"float32": Tolerance(absolute=0.005, relative=0.02), "bfloat16": Tolerance(absolute=0.15, relative=0.25)}
"""By dtype: about twice the largest that was seen where nothing was wrong (docs/decisions/0013)."""


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """What comes after one prompt: from the base, from base and adapter, from the merged weights."""

    base: Distribution
    unmerged: Distribution
    merged: Distribution

    @property
    def shift(self) -> float:
        """What the adapter changes here."""
        return change(self.base, self.unmerged)


def allowed(shift: float, dtype: str) -> float:
    """How far a log-probability of the merged weights may be from the unmerged one."""
    return _TOLERANCES.get(dtype, _TOLERANCES["bfloat16"]).of(shift)


def wrong_merge(probed: Sequence[Probed], dtype: str) -> str:
    """In one sentence what is wrong with the merged weights; "" if they answer as they should."""
    for each in probed:
        if not each.merged.finite:
            return "the merged weights give an output that is not finite"
        differs, limit = change(each.unmerged, each.merged), allowed(each.shift, dtype)
        if differs > limit:
            return (
                f"the merged weights do not answer like base and adapter: a log-probability differs by {differs:.3g}"
                f" where {limit:.3g} are allowed ({spelled(each.merged.token_ids, each.merged.logprobs)} instead of"
                f" {spelled(each.unmerged.token_ids, each.unmerged.logprobs)})"
            )
    return ""


def telling(probed: Sequence[Probed], dtype: str) -> bool:
    """Whether an adapter applied twice, or not at all, would have been noticed on one of the prompts."""
    return any(each.shift > 2 * allowed(each.shift, dtype) for each in probed)

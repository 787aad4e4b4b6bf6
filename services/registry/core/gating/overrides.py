"""May a person activate what the gate would not?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.registry.core import lifecycle
from services.registry.core.deployment.aliases import Denied
from services.registry.core.lifecycle import Move
from services.registry.core.records import StoredAdapter
from shared.messages.operations import Evaluation

SHORTEST_REASON = 10
_LONGEST_REASON = 1_000
_LONGEST_NAME = 128


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """Who decides against an evaluation, and why."""

    by: str
    reason: str


def decide_override(
    adapter: StoredAdapter, history: Sequence[Move], measured: Evaluation | None, wish: Override, now_s: float
) -> Move | Denied:
    """Of an adapter that an evaluation failed, or that is still being evaluated. A replica must have measured it:
    whatever people think of its answers, they have to be finite."""
    reason, by = wish.reason.strip(), wish.by.strip()
    if not SHORTEST_REASON <= len(reason) <= _LONGEST_REASON:
        message = f"An override needs a reason of {SHORTEST_REASON} to {_LONGEST_REASON} characters."
        return Denied(kind="invalid", code="reason_missing", message=message, field="reason")
    if not 1 <= len(by) <= _LONGEST_NAME:
        message = f"An override needs a name of 1 to {_LONGEST_NAME} characters in `by`."
        return Denied(kind="invalid", code="actor_missing", message=message, field="by")
    if not _was_evaluated(adapter, history):
        message = f"Adapter {adapter.adapter_id} is {adapter.status}; only the result of an evaluation is overridden."
        return Denied(kind="conflict", code="nothing_to_override", message=message)
    if measured is None or not measured.fingerprint:
        message = f"No replica could measure adapter {adapter.adapter_id}: nobody knows whether it can be served."
        return Denied(kind="conflict", code="never_measured", message=message)
    if not measured.finite:
        message = f"Adapter {adapter.adapter_id} gives outputs that are not finite; that is never overridden."
        return Denied(kind="conflict", code="not_finite", message=message)
    return lifecycle.overrule(reason, by, now_s)


def base_retired(adapter: StoredAdapter) -> Denied:
    message = f"Adapter {adapter.adapter_id} is on a base model that is retired: no replica could serve it."
    return Denied(kind="conflict", code="base_model_retired", message=message)


def _was_evaluated(adapter: StoredAdapter, history: Sequence[Move]) -> bool:
    """A version that failed otherwise, because its bytes are gone, has no evaluation to argue with."""
    if adapter.status == "evaluating":
        return True
    states = [step.state for step in history]
    return adapter.status == "failed" and states[-2:] == ["evaluating", "failed"]

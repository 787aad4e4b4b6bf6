"""What becomes of a deployment that nobody waits for."""

from __future__ import annotations

from services.registry.core.deployment.aliases import AliasState, Denied


def comes_again(outcome: AliasState | Denied, deadline_s: float, now_s: float) -> bool:
    """Whether a deployment is tried again: replicas may be able to later, a decision against it stays one."""
    return isinstance(outcome, Denied) and outcome.kind == "unavailable" and now_s < deadline_s

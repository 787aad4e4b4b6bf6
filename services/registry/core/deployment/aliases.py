"""What an alias means, and what somebody wants it to mean."""

from __future__ import annotations

import msgspec

from services.registry.core.deployment.guards import Guard

REGISTRY, GUARD = "registry", "guard"
"""Who changes aliases without anybody having asked for it."""


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """Why not. `kind` is "invalid" (the request is wrong), "forbidden", "missing", "conflict" (with the present
    state) or "unavailable" (it may go well later)."""

    kind: str
    code: str
    message: str
    field: str | None = None


class AliasState(msgspec.Struct, frozen=True, kw_only=True):
    """What an alias means now, and what a rollback would make it mean.

    With `split_adapter_id`, `split_percent` of the sessions mean that version. `guard` watches the version that
    came last: the split's, or the alias's own.
    """

    alias: str
    tenant_id: str
    adapter_id: str
    previous_adapter_id: str | None = None
    updated_at_s: float = 0.0
    revision: int = 0
    split_adapter_id: str | None = None
    split_percent: float = 0.0
    split_salt: str = ""
    guard: Guard | None = None

    @property
    def named(self) -> frozenset[str]:
        """Every adapter that a request under this alias may reach."""
        return frozenset({self.adapter_id, self.split_adapter_id} - {None})  # type: ignore[arg-type]

    @property
    def kept(self) -> frozenset[str]:
        """Every adapter that replicas keep because of this alias: also what a guard would go back to."""
        return self.named if self.guard is None else self.named | frozenset({self.previous_adapter_id} - {None})  # type: ignore[arg-type]

    @property
    def newest_adapter_id(self) -> str:
        return self.split_adapter_id or self.adapter_id


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter that the alias is to mean."""

    adapter_id: str
    tenant_id: str
    status: str
    registered_at_s: float = 0.0


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants an alias changed, why, and on which condition.

    `expected_adapter_id` and `if_match` (a revision; 0: the alias does not exist) refuse the change if the alias is
    not as it was thought to be. `force` does not wait for replicas, and ends a split.
    """

    actor: str
    reason: str = ""
    expected_adapter_id: str | None = None
    if_match: int | None = None
    guard: Guard | None = None
    force: bool = False


class AliasChange(msgspec.Struct, frozen=True, kw_only=True):
    """The alias as it is to be. `kind` is one of ALIAS_CHANGES; `changed` is false if it already was."""

    state: AliasState
    kind: str
    reason: str
    changed: bool = True


def stamped(state: AliasState, revision: int, now_s: float) -> AliasState:
    return msgspec.structs.replace(state, revision=revision, updated_at_s=now_s)

"""What clients may send about aliases. An unknown field is refused: it is a misspelt one."""

from __future__ import annotations

from typing import Annotated

import msgspec

from services.registry.core.deployment.aliases import Change
from services.registry.core.deployment.guards import Guard
from services.registry.deployment.aliasing import OPERATOR

_Said = Annotated[str, msgspec.Meta(max_length=1_000)]
"""By whom or why: it stands in events and histories, which carry no essays."""


class ChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of every change: on which condition, by whom and why. The condition may stand in `If-Match` as well."""

    expected_adapter_id: str | None = None
    by: _Said = OPERATOR
    reason: _Said = ""
    force: bool = False

    def change(self, if_match: int | None, guard: Guard | None = None) -> Change:
        return Change(
            actor=self.by, reason=self.reason, expected_adapter_id=self.expected_adapter_id, if_match=if_match,
            guard=guard, force=self.force,
        )  # fmt: skip


class PromoteBody(ChangeBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    guard: Guard | None = None


class AliasBody(PromoteBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    adapter_id: str


class SplitBody(AliasBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    percent: float

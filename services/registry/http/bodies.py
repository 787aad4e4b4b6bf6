"""What clients may send to `/internal`. An unknown field is refused: it is a misspelt one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.messages.desired import BaseModelRecord, ModuleShape
from shared.messages.reports import TIERS


class TenantBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenant_id: str
    weight: float | None = None


class KeyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenant_id: str
    may_call_base: bool = False


class ShapeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    in_features: int
    out_features: int


class BaseModelBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    base_model_hash: str
    name: str
    layers: int
    modules: Mapping[str, ShapeBody]
    rank_classes: tuple[int, ...]
    max_context_tokens: int
    created_at_s: float = 0.0
    vocabulary_size: int = 0
    tool_parser: str = ""

    @property
    def record(self) -> BaseModelRecord:
        shapes = {
            name: ModuleShape(in_features=shape.in_features, out_features=shape.out_features)
            for name, shape in self.modules.items()
        }
        return BaseModelRecord(
            base_model_hash=self.base_model_hash,
            name=self.name,
            layers=self.layers,
            modules=shapes,
            rank_classes=tuple(sorted(self.rank_classes)),
            max_context_tokens=self.max_context_tokens,
            created_at_s=self.created_at_s,
            vocabulary_size=self.vocabulary_size,
            tool_parser=self.tool_parser,
        )


class LoadBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tier: str = TIERS[0]


class AdapterBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may change of an adapter."""

    pinned: bool


class OverrideBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: str
    by: str


class PipelineKeyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`public_key` in hex; without `tenant_id` it may sign for every tenant's adapters."""

    name: str
    public_key: str
    tenant_id: str = ""

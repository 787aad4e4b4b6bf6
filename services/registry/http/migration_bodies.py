"""What clients may send about migrations. An unknown field is refused: it is a misspelt one."""

from __future__ import annotations

import math

import msgspec

from services.registry.base_migration.move_planning import Route
from services.registry.core.base_migration.move_plan import Terms
from services.registry.core.base_migration.moves import Turn
from services.registry.deployment.aliasing import OPERATOR
from services.registry.http.exchange import Problem


class TurnBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of every change: by whom and why."""

    by: str = OPERATOR
    reason: str = ""

    @property
    def turn(self) -> Turn:
        return Turn(actor=self.by, reason=self.reason)


class StartBody(TurnBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    from_base_model_hash: str
    to_base_model_hash: str
    gpu_hours: float = Terms().gpu_hours_each
    usd_per_gpu_hour: float = Terms().usd_per_gpu_hour

    @property
    def route(self) -> Route:
        """Raises Problem for a cost that is none."""
        return Route(
            from_base_model_hash=self.from_base_model_hash,
            to_base_model_hash=self.to_base_model_hash,
            terms=Terms(
                gpu_hours_each=_cost("gpu_hours", self.gpu_hours),
                usd_per_gpu_hour=_cost("usd_per_gpu_hour", self.usd_per_gpu_hour),
            ),
        )


class CutoverBody(TurnBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `force` it does not wait until replicas hold the new version, and ends a split."""

    alias: str
    force: bool = False


class RollbackBody(TurnBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    alias: str


class RetryBody(TurnBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    adapter_id: str


def cost_of(field: str, text: str) -> float:
    """A number of a query. Raises Problem."""
    try:
        return _cost(field, float(text))
    except ValueError as error:
        raise _no_cost(field) from error


def _cost(field: str, number: float) -> float:
    if not (math.isfinite(number) and number >= 0):
        raise _no_cost(field)
    return number


def _no_cost(field: str) -> Problem:
    return Problem(422, f"{field} must be a finite number of at least 0.", "invalid_cost", field)

"""Which adapters are wanted although, or no longer because, an alias means them."""

from __future__ import annotations

from sqlalchemy import exists, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.core.deployment.aliases import GUARD, REGISTRY
from services.registry.core.turns import Entrant
from services.registry.io.tables import ADAPTERS, ALIAS_HISTORY, ALIASES

# The announced alias has meant the adapter before, or a person has changed it since the adapter became active. What
# the fleet did with other versions of its own accord, the deployment of an earlier one perhaps, decides nothing.
_DECIDED = exists().where(
    ALIAS_HISTORY.c.alias == ADAPTERS.c.alias,
    (ALIAS_HISTORY.c.adapter_id == ADAPTERS.c.adapter_id)
    | ((ALIAS_HISTORY.c.at_s >= ADAPTERS.c.updated_at_s) & ALIAS_HISTORY.c.actor.not_in((REGISTRY, GUARD))),
)


async def set_wanted(connection: AsyncConnection, adapter_id: str, wanted: bool, until_s: float | None) -> None:
    this_one = ADAPTERS.c.adapter_id == adapter_id
    await connection.execute(update(ADAPTERS).where(this_one).values(wanted=wanted, wanted_until_s=until_s))


async def run_out(connection: AsyncConnection, now_s: float, limit: int) -> list[str]:
    """Adapters that were wanted until a moment that has passed, the earliest first."""
    query = select(ADAPTERS.c.adapter_id).where(ADAPTERS.c.wanted_until_s <= now_s)
    return list((await connection.execute(query.order_by(ADAPTERS.c.wanted_until_s).limit(limit))).scalars())


async def bound_unnamed(connection: AsyncConnection, until_s: float) -> None:
    """Active adapters that no alias means or would go back to by itself, and for which no moment is set yet, are wanted
    until this one."""
    means = or_(
        ALIASES.c.adapter_id == ADAPTERS.c.adapter_id,
        ALIASES.c.split_adapter_id == ADAPTERS.c.adapter_id,
        ALIASES.c.guard.is_not(None) & (ALIASES.c.previous_adapter_id == ADAPTERS.c.adapter_id),
    )
    unbound = (ADAPTERS.c.status == "active") & ADAPTERS.c.wanted & ADAPTERS.c.wanted_until_s.is_(None)
    await connection.execute(update(ADAPTERS).where(unbound, ~exists().where(means)).values(wanted_until_s=until_s))


async def to_deploy(connection: AsyncConnection) -> list[Entrant]:
    """Active adapters that were announced with an alias: nobody has deployed them yet, or decided otherwise. The
    oldest first."""
    announced = (ADAPTERS.c.status == "active") & ADAPTERS.c.alias.is_not(None)
    query = select(ADAPTERS.c.adapter_id, ADAPTERS.c.tenant_id).where(announced, ~_DECIDED)
    rows = await connection.execute(query.order_by(ADAPTERS.c.registered_at_s))
    return [Entrant(adapter_id=adapter_id, tenant_id=tenant_id, awaited=True) for adapter_id, tenant_id in rows]


async def is_decided(connection: AsyncConnection, adapter_id: str) -> bool:
    """Whether there is nothing left to decide about the alias that this active adapter was announced with."""
    query = select(ADAPTERS.c.adapter_id).where(ADAPTERS.c.adapter_id == adapter_id, _DECIDED)
    return (await connection.execute(query)).first() is not None

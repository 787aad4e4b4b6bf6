"""Many small changes in one transaction, and none of them the others' trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from services.registry.io import customer_rows
from services.registry.io.database import Collision, Database, DatabaseUnavailable
from services.registry.registration.batches import Batches
from shared.messages.desired import TenantRecord
from tests.support.registry_world import World


class Tenants:
    """Writes tenants, and remembers how many came together; a bad one is refused in the middle of its batch."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.trouble: Exception | None = None

    async def write(self, connection: AsyncConnection, names: Sequence[str]) -> list[str]:
        self.batches.append(len(names))
        for name in names:
            if name == "bad" or self.trouble is not None:
                raise self.trouble or Collision("planted")
            await customer_rows.save_tenant(connection, TenantRecord(tenant_id=name), 1.0)
        return [f"{name} is there" for name in names]


async def there(database: Database) -> list[str]:
    async with database.read() as connection:
        return [tenant.tenant_id for tenant in await customer_rows.tenants(connection)]


async def test_what_comes_while_others_write_is_written_together(database: Database) -> None:
    tenants = Tenants()
    batches = Batches(database, tenants.write)
    async with database.write():
        adding = [asyncio.create_task(batches.add(f"t{number:03d}")) for number in range(150)]
        await asyncio.sleep(0)  # each has come, and none has its turn
    assert await asyncio.gather(*adding) == [f"t{number:03d} is there" for number in range(150)]
    assert (tenants.batches, len(await there(database))) == ([100, 50], 150)


async def test_one_that_cannot_be_written_spoils_nothing_for_the_others(database: Database) -> None:
    batches = Batches(database, Tenants().write)
    first, bad, last = await asyncio.gather(*map(batches.add, ("first", "bad", "last")), return_exceptions=True)
    assert (first, last, isinstance(bad, Collision)) == ("first is there", "last is there", True)
    assert await there(database) == ["first", "last"]


async def test_a_database_that_is_away_is_asked_once_for_all(database: Database) -> None:
    tenants = Tenants()
    tenants.trouble, batches = DatabaseUnavailable("planted"), Batches(database, tenants.write)
    outcomes = await asyncio.gather(*map(batches.add, ("first", "last")), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [DatabaseUnavailable] * 2
    assert (tenants.batches, await there(database)) == ([2], [])
    tenants.trouble = None
    assert await batches.add("later") == "later is there"


async def test_who_does_not_wait_any_more_stops_nobody(database: Database) -> None:
    batches = Batches(database, Tenants().write)
    async with database.write():
        impatient, patient = (asyncio.create_task(batches.add(name)) for name in ("impatient", "patient"))
        await asyncio.sleep(0)
        impatient.cancel()
    assert await patient == "patient is there"
    await batches.stop()
    assert impatient.cancelled()


async def test_announcements_of_one_id_that_come_together_are_one_adapter(alone: World) -> None:
    announced, other = alone.announce("v1"), alone.announce("v2", seed=2)
    taking = msgspec.structs.replace(announced, version="another")
    register = alone.registry.registrations.register
    async with alone.registry.database.write():
        coming = [asyncio.create_task(register(one)) for one in (announced, announced, taking, other)]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*coming)
    assert [type(outcome).__name__ for outcome in outcomes] == ["Registered", "Registered", "Denied", "Registered"]
    assert [getattr(outcome, "created", None) for outcome in outcomes] == [True, False, None, True]
